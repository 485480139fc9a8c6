//! Wires the stages: the only module that knows all of them, and the only one (with `main`) that knows the time.

mod arm;
mod checks;
pub mod clock;
mod doctor;
mod entry;
mod error;
mod explain;
mod goroutines;
mod governor;
mod inspect;
mod known;
mod live;
mod oneshot;
mod pipeline;
mod progress;
mod record;
mod replay;
mod report;
mod rounds;
mod runc;
mod stop;
mod survey;
mod symbols;

pub use entry::{main, observe};
pub use error::SessionError;
pub use inspect::Inspected;
pub use pipeline::Tap;
pub use replay::{Replayed, replay};
