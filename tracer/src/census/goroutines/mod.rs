//! The stacks of all goroutines of a running Go program, read from outside: no signal, no stop, no ptrace.
//!
//! ```text
//! program   decodes the executable: where runtime.allgs may be, where the words for wait reasons are
//! loaded    where the process has the executable
//! allgs     the one candidate that is a list of goroutines
//! cycles    when collections ended → since when a goroutine is parked at least
//! header    runtime.g: state, id, stack, where it goes on
//! unwind    stack memory → functions, by the tables the runtime itself unwinds by
//! about     the stack of a CRI handler → ids of containers on it
//! fingerprint  the stack of a goroutine of a kubelet → has it gone on since the look before?
//! collect   all goroutines in batches; what changed while it was read is read again
//! receivers the stacks of a kubelet → who may be its `*GenericPLEG`
//! relist_time  of these the one → when its last list succeeded, by its own clock
//! group     goroutines that are alike → one entry
//! ```
//!
//! The process runs meanwhile. A goroutine counts only if its header was the same before and after its stack was read;
//! one that keeps changing is counted as unread. Everything in the other process is hostile: every length is bounded,
//! every step of a walk must go up the stack and land in the program's code.

mod about;
mod allgs;
mod code;
mod collect;
mod cycles;
mod error;
mod fingerprint;
mod group;
mod header;
mod loaded;
mod program;
mod reader;
mod reasons;
mod receivers;
mod relist_time;
mod unwind;

pub use code::{Code, Kind, Place};
pub use collect::Limits;
pub use cycles::Cycles;
pub use error::GoroutineError;
pub use program::Program;
pub use reader::{Picture, Places, Reader, TakeError, take};
pub use unwind::{MAX_FRAMES, Return};
