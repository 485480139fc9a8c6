//! The kernel side as seen from user space: the only module that uses aya and `bpf(2)`.
//!
//! It loads the programs, executes a [`Plan`](crate::plan::Plan), reads maps and drains the ring buffer. It decodes
//! nothing and decides nothing. Dropping [`Kernel`] detaches everything; nothing is ever pinned.

mod at_once;
mod atomics;
mod attach;
mod code;
mod counters;
mod debug_log;
mod error;
mod features;
mod functions;
mod inflight;
mod load;
mod missed;
mod multi;
mod object;
mod preemption;
mod preempts;
mod ring;
mod shed;
mod statistics;
mod sys;
mod verifier;
mod wire;
mod wire_probes;

pub use error::KernelError;
pub use features::probe_features;
pub use inflight::{
    Entries, OpenBusCalls, OpenCalls, OpenDockerRequests, OpenMessages, OpenRequests, Parkers, Processes,
};
pub use load::{Kernel, LoadOptions};
pub use object::is_stub;
pub use preemption::can_switch_preemption_off;
pub use ring::{Records, Ring};
pub use statistics::{VERIFIED_PROGRAMS, verified_instructions};
pub use verifier::summary;
pub use wire_probes::WireProbes;

pub use crate::preflight::AttachMode;
