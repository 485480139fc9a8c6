//! The one input stream: kernel records and facts of user space, each in the same envelope.
//!
//! Everything later stages know arrives here, so that a recording of this stream gives the same report again.

mod envelope;
mod fact;

pub use envelope::{Frame, FrameError, frame_fact, next_frame};
pub use fact::{
    Armed, Component, Cost, Fact, HookCounters, HookFact, InFlight, Layer, Liveness, LossCount, OpenCallFact,
    Presence, RefusedFact, Start, Stop, StopWhy, TargetFact, TargetGone,
};
