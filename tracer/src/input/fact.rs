//! [`Fact`]: what user space adds to the stream. Serialised as JSON, so that fields can be added without a new layout.
//!
//! All times are nanoseconds of CLOCK_MONOTONIC unless the name says otherwise. Texts come from the node and are
//! hostile: they are escaped where they are rendered.

use plegtrace_common::role::Role;
use serde::{Deserialize, Serialize};

use super::{CensusFact, Command, GoroutinesFact, ProcessFact};

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
    /// A hook that is armed; `index` is what kernel records call `hook`.
    Hook(HookFact),
    /// Something that is not seen, and why.
    Refused(RefusedFact),
    /// All probes that could be attached are.
    Armed(Armed),
    /// The calls open at one moment.
    InFlight(InFlight),
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

/// A process found on the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetFact {
    /// What it is.
    pub component: Component,
    /// Process id in plegtrace's pid namespace.
    pub pid: u32,
    /// Start of the process; `None` when not known.
    pub started_ns: Option<u64>,
    /// Path of the executable as the process sees it.
    pub exe: String,
    /// Version of the program when it could be read ("1.6.20").
    pub version: Option<String>,
    /// Go version ("go1.19.8") when it is a Go program.
    pub go_version: Option<String>,
    /// CRI or Docker socket it serves or uses.
    pub socket: Option<String>,
    /// No test has proved plegtrace on this kind of target yet.
    pub unproved: bool,
}

/// A trace of a component without a process: a unit, a socket, a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Presence {
    /// Whose.
    pub component: Component,
    /// Path.
    pub path: String,
}

/// A component of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the names are the programs' own")]
pub enum Component {
    Kubelet,
    Containerd,
    Crio,
    Dockerd,
    CriDockerd,
    Shim,
    Conmon,
    Runc,
    Helper,
}

impl Component {
    /// The component a kernel role stands for.
    #[must_use]
    pub fn of_role(role: Role) -> Option<Self> {
        Some(match role {
            // What runs in a container is no part of the node.
            Role::None | Role::Workload => return None,
            Role::Kubelet => Self::Kubelet,
            Role::Containerd => Self::Containerd,
            Role::Crio => Self::Crio,
            Role::Dockerd => Self::Dockerd,
            Role::CriDockerd => Self::CriDockerd,
            Role::Shim => Self::Shim,
            Role::Conmon => Self::Conmon,
            Role::Runc => Self::Runc,
            Role::Helper => Self::Helper,
        })
    }

    /// The role the kernel side keeps for it.
    #[must_use]
    pub fn role(self) -> Role {
        match self {
            Self::Kubelet => Role::Kubelet,
            Self::Containerd => Role::Containerd,
            Self::Crio => Role::Crio,
            Self::Dockerd => Role::Dockerd,
            Self::CriDockerd => Role::CriDockerd,
            Self::Shim => Role::Shim,
            Self::Conmon => Role::Conmon,
            Self::Runc => Role::Runc,
            Self::Helper => Role::Helper,
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.role().name()
    }
}

/// Where in the chain a hooked function stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// `(*GenericPLEG).Relist`: the root of a tree.
    Relist,
    /// `GetPods`: the list phase of a relist (other kubelet loops call it too).
    ListPhase,
    /// `updateCache` of one pod: the status phase of a relist.
    StatusPhase,
    /// `instrumentedRuntimeService` and `instrumentedImageManagerService`: what the kubelet's metrics count.
    KubeletCall,
    /// `remoteRuntimeService` and `remoteImageService`: the bare client, inside a counted call or alone.
    KubeletClient,
    /// Handler of a CRI method in the runtime.
    Handler,
    /// A part of a runc command in which it can hang.
    RuncPhase,
    /// A site that only ends or marks calls of other hooks.
    Mark,
    /// A process that runs for a request; no hook stands for it.
    Process,
}

/// A hook that is armed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookFact {
    /// Number used by kernel records and counters.
    pub index: u32,
    /// Where it stands in the chain.
    pub layer: Layer,
    /// Component of the binary.
    pub component: Component,
    /// Executable it is in.
    pub exe: String,
    /// CRI method ("ListContainers") or function name for other layers.
    pub operation: String,
    /// "runtime.v1.RuntimeService" for handlers; the end of the Go package, with the type of a method, for others.
    pub service: String,
    /// Full Go symbol.
    pub symbol: String,
    /// The call is a server stream or long poll: never stuck by age alone.
    pub long_lived: bool,
    /// Number of probe sites.
    pub sites: u32,
}

/// Something that is not seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedFact {
    /// Source that refuses: "uprobes", "process", …
    pub source: String,
    /// Component concerned, when it is one.
    pub component: Option<Component>,
    /// Function, file or feature.
    pub what: String,
    /// Why, in words.
    pub why: String,
    /// The report is weaker for it (as opposed to: this version of the target has no such function).
    pub matters: bool,
}

/// The probes are on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Armed {
    /// How sites are attached: "uprobe_multi", "perf events with cookies", "perf events by address".
    pub mode: String,
    /// Number of sites.
    pub sites: u32,
    /// Time from the first to the last attach.
    pub took_ns: u64,
}

/// The calls open at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InFlight {
    /// When the map was read (before the ring buffer was drained).
    pub at_ns: u64,
    /// The calls.
    pub calls: Vec<OpenCallFact>,
    /// The map could be read to its end.
    pub complete: bool,
    /// Goroutines in calls, and how long they have been parked; empty when parks are not followed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parkers: Vec<ParkerFact>,
}

/// A goroutine inside a call, as the kernel keeps it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParkerFact {
    /// Process.
    pub tgid: u32,
    /// Goroutine id.
    pub goid: u64,
    /// Sum of its parks that are over.
    pub parked_ns: u64,
    /// The part of `parked_ns` in parks without records of their own.
    pub short_ns: u64,
    /// Number of its parks that are over.
    pub parks: u32,
    /// Since when it is parked; 0 while it is not.
    pub since_ns: u64,
    /// Index of the hook on `runtime.gopark`; tells the executable.
    pub hook: u32,
    /// The runtime's number of the wait reason.
    pub reason: u32,
    /// Return addresses relative to the start of the code, innermost first; empty while it is not parked.
    pub stack: Vec<u64>,
}

/// Names for addresses of one executable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SymbolsFact {
    /// Index of the hook on `runtime.gopark`; tells the executable.
    pub hook: u32,
    /// What the addresses are in.
    pub names: Vec<SymbolFact>,
}

/// The function of one return address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SymbolFact {
    /// The address relative to the start of the code.
    pub offset: u64,
    /// Full Go name; empty when no function is there.
    pub name: String,
}

/// The watched processes at one moment: those in flight.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessesFact {
    /// When the map was read (before the ring buffer was drained).
    pub at_ns: u64,
    /// The processes.
    pub processes: Vec<WatchedFact>,
    /// The map could be read to its end.
    pub complete: bool,
}

/// One watched process, as the kernel keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchedFact {
    /// Process.
    pub pid: u32,
    /// Number of its [`Role`].
    pub role: u32,
    /// Number of the role of who started it; 0 when that was not watched.
    pub parent_role: u32,
    /// When the program it runs began; 0 when it was there before the probes.
    pub since_ns: u64,
    /// Its parent when that program began; 0 when not known.
    pub parent: u32,
    /// `PROCESS_*` bits.
    pub flags: u32,
}

/// What a process was told to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandFact {
    /// Process.
    pub pid: u32,
    /// When the program began; with the pid it tells which.
    pub since_ns: u64,
    /// The command line could not be read: the command says less than it could.
    pub unread: bool,
    /// Only what is on the allow-list.
    pub command: Command,
}

/// One open call, as the kernel keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenCallFact {
    /// Process.
    pub tgid: u32,
    /// Goroutine id.
    pub goid: u64,
    /// Index of the hook.
    pub hook: u32,
    /// Start.
    pub start_ns: u64,
    /// When the reply was handed to the transport; 0 if not yet.
    pub mark_ns: u64,
    /// Bytes of goroutine stack in use at the start.
    pub depth: u32,
    /// `CALL_*` bits.
    pub flags: u32,
    /// Is its goroutine still there?
    pub liveness: Liveness,
    /// With `CALL_PARKS`: [`ParkerFact::parked_ns`] when it began; how long it was parked once it has replied.
    #[serde(default)]
    pub parked_ns: u64,
    /// The same of [`ParkerFact::short_ns`].
    #[serde(default)]
    pub short_ns: u64,
    /// The same of [`ParkerFact::parks`].
    #[serde(default)]
    pub parks: u32,
}

/// Is the goroutine of an open call still there?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Liveness {
    /// The `runtime.g` was read: same goroutine, not dead.
    Alive,
    /// The `runtime.g` is dead or another goroutine now: the call is over, its end was not seen.
    Over,
    /// Could not be asked.
    Unknown,
}

/// Counters of one hook, summed over the CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookCounters {
    /// Index of the hook.
    pub hook: u32,
    /// Hits in watched processes; of hooks on parks, in all processes of the executable.
    pub hits: u64,
    /// Calls that ended.
    pub calls: u64,
    /// Of these, with an error.
    pub failed: u64,
    /// Ends without an open call.
    pub unmatched: u64,
    /// Sum of durations.
    pub sum_ns: u64,
    /// Longest.
    pub max_ns: u64,
    /// Buckets of powers of two of nanoseconds; trailing zeros are left out.
    pub buckets: Vec<u64>,
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
}

/// A target ended or was replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetGone {
    /// What it was.
    pub component: Component,
    /// Its process id.
    pub pid: u32,
    /// In words: "ended"; how, the kernel's record of its exit tells, where there is one.
    pub how: String,
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
