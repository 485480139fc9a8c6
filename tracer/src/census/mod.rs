//! What can be read from outside without an event: what was already stuck when we came ([`Census`]), the stacks of all
//! goroutines of a process ([`goroutines`]), whether the goroutine of an open call still lives, and what plegtrace
//! itself uses.
//!
//! The census runs on the sickest node there is. Command lines, environments, mappings, stacks and memory of a process
//! can make their reader wait for as long as the process is stuck, and a container can arrange that on purpose. So
//! they are read by a child process ([`serve`]) that says what it asks of whom before it asks; its parent
//! ([`fn@round`]) kills it when it is late, writes down who did not answer, and starts another one for the rest.

mod child;
mod clock;
mod conversation;
pub mod goroutines;
mod liveness;
mod memory;
mod merge;
mod own;
mod protocol;
mod request;
mod round;
pub mod text;
mod worker;

pub use child::serve;
pub use liveness::{Asked, ask_all};
pub use memory::{Memory, MemoryError, Piece, ProcessMemory};
pub use own::{exists, own_memory};
pub use protocol::{RUNTIME, Runtime};
pub use request::{Limits, Request};
pub use round::{Census, command_lines, round, search_path};
pub use worker::{CHILD_COMMAND, this_program};
