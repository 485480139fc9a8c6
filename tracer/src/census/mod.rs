//! What can be read from outside without an event: what was already stuck when we came ([`Census`]), the stacks of all
//! goroutines of a process ([`goroutines`]), whether the goroutine of an open call still lives, whether
//! attaching would wait for a stuck process ([`Mappers`]), and what plegtrace itself uses.
//!
//! The census runs on the sickest node there is. Command lines, environments, mappings, stacks and memory of a process
//! can make their reader wait for as long as the process is stuck, and a container can arrange that on purpose. So
//! they are read by a child process ([`serve`]) that says what it asks of whom before it asks; its parent
//! ([`fn@round`]) kills it when it is late, writes down who did not answer, and starts another one for the rest. One that
//! has answered waits for the next order, with what it has read of programs.

mod child;
mod clock;
mod cpu;
pub mod goroutines;
mod halts;
mod instance;
mod mappers;
mod memory;
mod own;
mod parent;
mod protocol;
mod runners;
mod seccomp;
pub mod text;

pub use child::{BusConnection, Queues, serve};
pub use cpu::CpuReader;
pub use halts::HaltWatch;
pub use mappers::{Hazard, Holder, Inside, Mappers};
pub use memory::{Memory, MemoryError, Piece, ProcessMemory};
pub use own::{exists, own_memory, unix_sockets_of};
pub use parent::{
    CHILD_COMMAND, Census, HANGS, Limits, Request, Usage, ask_all, command_lines, end_idle, is_our_child,
    round, search_path, this_program, usage,
};
pub use protocol::{Asked, GOROUTINES, RUNTIME, Runtime};
