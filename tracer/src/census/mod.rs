//! What can be read from outside without an event: for now whether the goroutine of an open call still lives, and what
//! plegtrace itself uses.

mod liveness;
mod own;

pub use liveness::{Asked, ask_all};
pub use own::{exists, own_memory};
