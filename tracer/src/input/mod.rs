//! The one input stream: kernel records and facts of user space, each in the same envelope.
//!
//! Everything later stages know arrives here, so that a recording of this stream gives the same report again.

mod census;
mod command;
mod envelope;
mod exec;
mod fact;

pub use census::{
    CensusFact, Command, ContainerFact, FdFact, FdTarget, Freezer, GoroutineGroup, GoroutinesFact, Holder,
    Park, PipeFact, ProcessFact, SocketFact, SyscallFact, Unanswered,
};
pub use envelope::{Frame, FrameError, frame_fact, next_frame};
pub use exec::admit;
pub use fact::{
    Armed, CommandFact, Component, Cost, Fact, HookCounters, HookFact, InFlight, Layer, Liveness, LossCount,
    OpenCallFact, ParkerFact, Presence, ProcessesFact, RefusedFact, Start, Stop, StopWhy, SymbolFact,
    SymbolsFact, TargetFact, TargetGone, WatchedFact,
};
