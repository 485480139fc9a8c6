//! [`Reason`]: something that is held up; [`Doubt`]: why nothing can be said.

use std::cmp::Reverse;

use super::unnamed::Sign;
use crate::{
    correlate::{Age, ProcessKind},
    input::Component,
    span::SpanId,
    stuck::{REACH_RELIST, Stuck},
};

/// Something that is held up.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// A component that belongs to the node does not run.
    Down {
        /// Which.
        component: Component,
        /// How it ended, or what is left of it, in words and paths.
        evidence: String,
    },
    /// Something does not move, and others wait for it.
    Stuck(Box<Stuck>),
    /// A relist does not end.
    RelistOpen {
        /// Age of the relist.
        age_ns: u64,
        /// The innermost open call inside it, if one is.
        waiting_in: Option<String>,
        /// It is of one pod. No other list comes meanwhile.
        of_pod: bool,
    },
    /// The kubelet has not got a whole list for long.
    ListStale {
        /// Age of the last one.
        age: Age,
        /// The youngest relist that ended has failed.
        failing: bool,
    },
    /// Handlers the kubelet no longer waits for still run.
    Abandoned {
        /// Their operation.
        operation: String,
        /// Component they run in.
        component: Component,
        /// How many.
        count: u64,
        /// Age of the oldest.
        oldest_ns: u64,
    },
    /// Calls are open for long.
    CallsOpen {
        /// Their operation.
        operation: String,
        /// Component they run in.
        component: Component,
        /// How many are over the limit.
        count: u64,
        /// Age of the oldest.
        oldest_ns: u64,
        /// The oldest.
        oldest: SpanId,
    },
    /// Requests on the sockets of the runtime have had no answer for long, and no probe in a program shows them.
    RequestsOpen {
        /// Their method.
        method: String,
        /// How many are over the limit.
        count: u64,
        /// Age of the oldest.
        oldest_ns: u64,
        /// Process that sent the oldest.
        asker: Peer,
        /// Process that is to answer it; `None` when it is not known.
        answerer: Option<Peer>,
    },
    /// Processes that should have ended run on.
    ProcessesOpen {
        /// What they do.
        kind: ProcessKind,
        /// How many are over the limit.
        count: u64,
        /// Age of the oldest.
        oldest_ns: u64,
        /// The oldest.
        pid: u32,
        /// Container the oldest works for.
        container: Option<String>,
    },
}

/// A process at one end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Process.
    pub pid: u32,
    /// What it is to the node, when that is known.
    pub component: Option<Component>,
}

impl Reason {
    /// Weightier reasons sort first: what explains the others, then what is older.
    pub(super) fn weight(&self) -> (u8, Reverse<u64>) {
        match self {
            Self::Down { .. } => (0, Reverse(0)),
            // What holds up the relist explains it.
            Self::Stuck(stuck) if stuck.reach() == REACH_RELIST => (1, Reverse(stuck.since.ns)),
            Self::RelistOpen { age_ns, .. } => (2, Reverse(*age_ns)),
            Self::ListStale { age, .. } => (3, Reverse(age.ns)),
            Self::Stuck(stuck) => (4, Reverse(stuck.since.ns)),
            Self::Abandoned { oldest_ns, .. } => (5, Reverse(*oldest_ns)),
            Self::CallsOpen { oldest_ns, .. } => (6, Reverse(*oldest_ns)),
            Self::RequestsOpen { oldest_ns, .. } => (6, Reverse(*oldest_ns)),
            Self::ProcessesOpen { oldest_ns, .. } => (7, Reverse(*oldest_ns)),
        }
    }

    /// Stable name for JSON.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Down { .. } => "down",
            Self::Stuck(_) => "stuck",
            Self::RelistOpen { .. } => "relist_open",
            Self::ListStale { .. } => "list_stale",
            Self::Abandoned { .. } => "abandoned_handlers",
            Self::CallsOpen { .. } => "calls_open",
            Self::RequestsOpen { .. } => "requests_open",
            Self::ProcessesOpen { .. } => "processes_open",
        }
    }
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// No kubelet runs here and none belongs here, as far as can be seen.
    NoKubelet,
    /// Something shows that a kubelet runs, and no process is known to be it.
    KubeletUnknown {
        /// What.
        sign: Sign,
    },
    /// Something shows that a runtime runs, and no process is known to be it.
    RuntimeUnknown {
        /// What.
        sign: Sign,
    },
    /// Relists are not traced.
    RelistUntraced,
    /// Relists are traced, and none was seen.
    NoRelist {
        /// For how long.
        window_ns: u64,
        /// How often one is due.
        period_ns: u64,
    },
    /// It follows events, and whether it lists seldom because of that was not seen.
    PaceUnknown {
        /// For how long no list has succeeded, as far as was seen.
        silent_ns: u64,
    },
    /// A program has none of the functions by which these calls would be seen.
    NewerThanKnown {
        /// Which.
        component: Component,
        /// Which calls.
        calls: String,
    },
    /// No CRI call is traced, neither in the kubelet nor in the runtime nor between them.
    CallsUntraced,
    /// Relists were seen, but not whether their lists succeeded.
    ListUnknown,
    /// The probes were not on.
    NotArmed,
    /// Open calls could not be read, or not all.
    OpenUnread,
    /// Nobody looked at processes and goroutines: what was stuck before the probes is not known.
    NoCensus,
    /// No look at the processes was finished.
    CensusCut,
    /// The goroutines of a runtime or kubelet were asked for, and never read, or not all of them.
    GoroutinesUnread {
        /// Whose.
        component: Component,
        /// Why.
        why: String,
    },
    /// A loop of the kubelet does not go on, and not for so long yet that it is certain to hang.
    LoopWaits {
        /// Which, and for what it waits: `the sync loop of kubelet 812 … waits for …`. Raw.
        what: String,
        /// For how long at least, ns.
        ns: u64,
    },
    /// For so long nothing on the machine ran, until a moment ago: what was open may only not have gone on yet.
    Paused {
        /// Nanoseconds.
        ns: u64,
    },
    /// Records were lost.
    Lost {
        /// How many, over all reasons.
        count: u64,
        /// What the most frequent reason means.
        sentence: String,
    },
}

impl Doubt {
    /// Stable name for JSON.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::NoKubelet => "no_kubelet",
            Self::KubeletUnknown { .. } => "kubelet_unknown",
            Self::RuntimeUnknown { .. } => "runtime_unknown",
            Self::RelistUntraced => "relist_untraced",
            Self::NoRelist { .. } => "no_relist",
            Self::PaceUnknown { .. } => "pace_unknown",
            Self::NewerThanKnown { .. } => "newer_than_known",
            Self::CallsUntraced => "calls_untraced",
            Self::ListUnknown => "list_unknown",
            Self::NotArmed => "not_armed",
            Self::OpenUnread => "open_unread",
            Self::NoCensus => "no_census",
            Self::CensusCut => "census_cut",
            Self::GoroutinesUnread { .. } => "goroutines_unread",
            Self::LoopWaits { .. } => "loop_waits",
            Self::Paused { .. } => "paused",
            Self::Lost { .. } => "lost",
        }
    }
}
