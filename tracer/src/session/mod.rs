//! Wires the stages: the only module that knows all of them, and the only one (with `main`) that knows the time.

pub mod clock;
mod live;
mod progress;
mod stop;

pub use live::Live;
