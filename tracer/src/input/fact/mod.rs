//! [`Fact`]: what user space adds to the stream. Serialised as JSON, so that fields can be added without a new layout.
//!
//! All times are nanoseconds of CLOCK_MONOTONIC unless the name says otherwise. Texts come from the node and are
//! hostile: they are escaped where they are rendered.

mod bus;
mod cpu;
mod hook;
mod in_flight;
mod messages;
mod process;
mod target;

use serde::{Deserialize, Serialize};

pub use self::{
    bus::{BusFact, BusPeerFact, BusReaderFact, OpenBusFact, SYSTEMD, SystemdWork, THE_BUS},
    cpu::{CpuFact, DaemonCpu, QuotaFact, RunnerFact},
    hook::{Armed, HookCounters, HookFact, Layer},
    in_flight::{InFlight, Liveness, OpenCallFact, ParkerFact, SymbolFact, SymbolsFact},
    messages::{
        ClientFact, ErrorFact, ErrorsFact, LearntFact, MessagesFact, NamesFact, OpenMessageFact,
        OtherClientsFact,
    },
    process::{CommandFact, KnownFact, ProcessesFact, WatchedFact},
    target::{Component, ListeningFact, Presence, RefusedFact, TargetFact, TargetGone},
};
use super::{CensusFact, GoroutinesFact, ProcessFact};

/// One fact.
#[allow(clippy::large_enum_variant, reason = "facts are few, and events keep them boxed")]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "fact", rename_all = "snake_case")]
pub enum Fact {
    /// First record of every stream.
    Start(Start),
    /// A process found on the node.
    Target(TargetFact),
    /// Something of the node that is there although no process is.
    Presence(Presence),
    /// Where somebody listens as kubelets and runtimes do; each replaces the one before.
    Listening(ListeningFact),
    /// A hook that is armed; `index` is what kernel records call `hook`.
    Hook(HookFact),
    /// Something that is not seen, and why.
    Refused(RefusedFact),
    /// What was refused for now is seen: this refusal holds no longer.
    Admitted(RefusedFact),
    /// All probes that could be attached are.
    Armed(Armed),
    /// The calls open at one moment.
    InFlight(InFlight),
    /// The requests between runtime and shims without an answer at one moment.
    Messages(MessagesFact),
    /// The gRPC requests of the kubelet that have not ended at one moment.
    Requests(MessagesFact),
    /// What gRPC requests of the kubelet have called whose names were not known so far.
    Names(NamesFact),
    /// What the runtime said of calls that failed.
    Errors(ErrorsFact),
    /// Clients of the runtime that are not traced, and their gRPC requests that have not ended at one moment.
    OtherClients(OtherClientsFact),
    /// The requests to Docker's API without an answer at one moment; not on nodes without Docker.
    DockerRequests(MessagesFact),
    /// The calls over D-Bus without an answer at one moment.
    BusCalls(BusFact),
    /// Names for addresses in stacks of parks; each address is told once.
    Symbols(SymbolsFact),
    /// The watched processes at one moment.
    Processes(ProcessesFact),
    /// What a process was told to do; follows the record of its exec.
    Command(CommandFact),
    /// Counters of the kernel side since the start, one per hook.
    Counters {
        /// One entry per hook that fired.
        hooks: Vec<HookCounters>,
    },
    /// What was lost or given up since the start, by stage; zero counts are left out.
    Loss {
        /// One entry per reason.
        counts: Vec<LossCount>,
    },
    /// What the daemons of the node got of its processors.
    Cpu(CpuFact),
    /// What plegtrace itself costs so far.
    Cost(Cost),
    /// A watched target ended or was replaced.
    TargetGone(TargetGone),
    /// A process as the census found it.
    Process(ProcessFact),
    /// Stacks of a Go process.
    Goroutines(GoroutinesFact),
    /// A round of the census is complete.
    Census(CensusFact),
    /// Last record of a complete stream.
    Stop(Stop),
}

/// Who writes this stream, where, and how its clocks relate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// Version of plegtrace.
    pub tool_version: String,
    /// Host name.
    pub node: String,
    /// `uname -r`.
    pub kernel: String,
    /// CLOCK_REALTIME minus CLOCK_MONOTONIC.
    pub realtime_offset_ns: i64,
    /// CLOCK_BOOTTIME minus CLOCK_MONOTONIC.
    pub boottime_offset_ns: i64,
    /// Processors that are online; 0 when not known.
    #[serde(default)]
    pub cpus: u32,
}

/// One reason and how often.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LossCount {
    /// Where: "kernel", "decode", "correlate", …
    pub stage: String,
    /// Stable name of the reason.
    pub reason: String,
    /// What it means.
    pub sentence: String,
    /// How often since the start.
    pub count: u64,
    /// Something is missing from the report because of it.
    pub is_loss: bool,
}

/// What plegtrace costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// CPU time of plegtrace, the children of its census included, since it began to observe.
    pub cpu_ns: u64,
    /// Wall time of the same span.
    pub wall_ns: u64,
    /// Resident memory now, bytes.
    pub rss_bytes: u64,
    /// Highest resident memory so far, bytes.
    pub rss_peak_bytes: u64,
    /// Highest resident memory of a child of the census, bytes; it lives for less than a second.
    #[serde(default)]
    pub child_peak_bytes: u64,
    /// CPU time that the traced programs have spent in probes since then: hits times what a hit takes in a VM, which
    /// is more than on bare metal. `None`: nobody counted.
    #[serde(default)]
    pub probes_ns: Option<u64>,
    /// CPU time that system calls of all processes have spent in probes: calls times what one takes in a VM. `None`: no probe
    /// was on them.
    #[serde(default)]
    pub syscalls_ns: Option<u64>,
}

/// The stream ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// Why.
    pub why: StopWhy,
}

/// Why observing ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopWhy {
    /// The time asked for is over.
    Duration,
    /// The operator pressed Ctrl-C.
    Interrupt,
    /// All there was to see has been seen.
    Enough,
    /// Every target is gone.
    TargetsGone,
    /// It was recorded, and the recording is full or cannot be written.
    RecordingOver,
}
