//! What can be read from outside without an event: whether the goroutine of an open call still lives, the stacks of all
//! goroutines of a process ([`goroutines`]), and what plegtrace itself uses.

pub mod goroutines;
mod liveness;
mod memory;
mod own;

pub use liveness::{Asked, ask_all};
pub use memory::{Memory, MemoryError, Piece, ProcessMemory};
pub use own::own_memory;
