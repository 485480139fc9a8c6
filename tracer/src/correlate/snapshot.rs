//! [`Snapshot`]: everything known about the node at one moment, ready to be judged and rendered: facts, no judgement.
//!
//! Lists are in a fixed order (relists by start, open calls oldest first, rows by key), so equal streams give equal
//! snapshots. Texts are still raw here.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    Processes, RequestTree, RpcRow,
    age::Age,
    bus::Bus,
    caller::Caller,
    census::Census,
    cpu::Cpu,
    join::Joins,
    messages::Messages,
    other_clients::OtherClient,
    outcomes::{CallError, Streak},
    pauses::Pause,
    recent::Recent,
    thresholds::{ABANDONED_AFTER_NS, LOSS_COUNTS_NS},
    time::{RequestTime, TimeTable},
    traced::TracedProcess,
};
use crate::{
    cri::Method,
    decode::MonoNs,
    input::{
        Armed, Cost, HookCounters, HookFact, ListeningFact, LossCount, Presence, RefusedFact, Start, Stop,
    },
    span::{Span, Tree},
};

/// The node at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The moment.
    pub now: MonoNs,
    /// Who observes, where, and how its clocks relate.
    pub start: Start,
    /// What has been observed.
    pub window: Window,
    /// In which part of it relists are seen: a kubelet whose file answers late is probed late.
    pub relist_window: Window,
    /// Processes found, live ones and those that are gone, by pid.
    pub targets: Vec<TracedProcess>,
    /// Traces of components.
    pub presences: Vec<Presence>,
    /// Where somebody listens as kubelets and runtimes do.
    pub listening: Option<ListeningFact>,
    /// How the probes are attached.
    pub armed: Option<Armed>,
    /// Every hook, by index.
    pub hooks: Vec<HookState>,
    /// What is not seen.
    pub refused: Vec<RefusedFact>,
    /// Relists, open ones too, by start.
    pub relists: Vec<Relist>,
    /// CRI requests that are no part of a relist: open ones, oldest first, then the longest of those that have ended,
    /// longest first; a bounded number.
    pub requests: Vec<RequestTree>,
    /// Where the time of all relists of the window went, forgotten ones too.
    pub relist_time: TimeTable,
    /// Where the time of the slowest of [`Self::requests`] went; `None` when there is none.
    pub request_time: Option<RequestTime>,
    /// When the kubelet last got a whole list.
    pub last_list: LastList,
    /// Open calls, oldest first.
    pub open: Vec<OpenCall>,
    /// When the open calls were read; `None` when never.
    pub open_read_at: Option<MonoNs>,
    /// They could all be read.
    pub open_complete: bool,
    /// Entries that looked open and are not.
    pub closed_unseen: ClosedUnseen,
    /// What the census found.
    pub census: Census,
    /// The tables.
    pub rows: Vec<RpcRow>,
    /// Methods whose last calls have failed, in the order of the API.
    pub failing: Vec<Streak>,
    /// The last error of each method, as the runtime wrote it to the kubelet.
    pub errors: BTreeMap<Method, CallError>,
    /// Short-lived processes: open ones, and figures of those that ended.
    pub processes: Processes,
    /// Requests between runtime and shims.
    pub messages: Messages,
    /// When shims last started a program, by process.
    pub shims_worked: BTreeMap<u32, MonoNs>,
    /// gRPC requests of the kubelet, as its connection to the runtime shows them.
    pub grpc: Messages,
    /// Requests to Docker's API, of dockershim or cri-dockerd; they have no service.
    pub docker: Messages,
    /// Clients of the runtime that are not traced, by name, and their gRPC requests.
    pub other_clients: Vec<OtherClient>,
    /// Calls over D-Bus.
    pub bus: Bus,
    /// How client and server side were brought together.
    pub joins: Joins,
    /// What was lost or given up, at every stage.
    pub losses: Vec<LossCount>,
    /// When each of `losses` last grew.
    pub lost_at: Vec<MonoNs>,
    /// What has been read.
    pub tally: Tally,
    /// What calls and programs took lately.
    pub recent: Vec<Recent>,
    /// What the daemons of the node got of its processors lately.
    pub cpu: Cpu,
    /// When nothing on the machine ran although its clock went on, oldest first; a bounded number.
    pub pauses: Vec<Pause>,
    /// What plegtrace costs.
    pub cost: Option<Cost>,
    /// Why observing ended; `None` while it goes on.
    pub stop: Option<Stop>,
}

impl Snapshot {
    /// Wall time of a moment, nanoseconds since 1970.
    #[must_use]
    pub fn wall_ns(&self, at: MonoNs) -> i64 {
        i64::try_from(at.0).unwrap_or(i64::MAX).saturating_add(self.start.realtime_offset_ns)
    }

    /// How long nothing ran between two moments: what was open then is younger by that, nanoseconds.
    #[must_use]
    pub fn paused_ns(&self, from: MonoNs, to: MonoNs) -> u64 {
        self.pauses.iter().map(|pause| pause.within(from, to)).fold(0, u64::saturating_add)
    }

    /// The version of a program: what it says itself, else what its file says. Hostile text.
    #[must_use]
    pub fn version_of<'a>(&'a self, target: &'a TracedProcess) -> Option<&'a str> {
        let own = target.fact.component.name();
        let told = self.census.versions.iter().find(|fact| fact.program == own);
        told.map(|fact| fact.version.as_str()).or(target.fact.version.as_deref())
    }

    /// Losses that leave the report incomplete.
    pub fn real_losses(&self) -> impl Iterator<Item = &LossCount> {
        self.losses.iter().filter(|loss| loss.is_loss && loss.count > 0)
    }

    /// Those of them that happened lately: only they make what is said of now uncertain.
    pub fn fresh_losses(&self) -> impl Iterator<Item = &LossCount> {
        let all = self.losses.iter().zip(&self.lost_at);
        let fresh = all.filter(|(_, at)| self.now.since(**at) <= LOSS_COUNTS_NS).map(|(loss, _)| loss);
        fresh.filter(|loss| loss.is_loss && loss.count > 0)
    }
}

/// What has been observed, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// When the probes were on; `None` when they never were.
    pub from: Option<MonoNs>,
    /// The moment of the snapshot.
    pub to: MonoNs,
}

impl Window {
    /// Its length.
    #[must_use]
    pub fn ns(&self) -> u64 {
        self.from.map_or(0, |from| self.to.since(from))
    }
}

/// A hook and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookState {
    /// The hook.
    pub hook: Arc<HookFact>,
    /// The kernel's counters of it.
    pub counters: Option<HookCounters>,
    /// Records of calls that started at it.
    pub records: u64,
    /// Its probes are on now, in a program that runs.
    pub on: bool,
}

impl HookState {
    /// It has shown that it works.
    #[must_use]
    pub fn fired(&self) -> bool {
        self.records > 0 || self.counters.as_ref().is_some_and(|counters| counters.hits > 0)
    }
}

/// One relist, finished or open.
#[derive(Clone, Debug, PartialEq)]
pub struct Relist {
    /// Its calls, with the handlers that answered them.
    pub tree: Tree,
    /// From the start of the relist before it to its own.
    pub interval_ns: Option<u64>,
    /// Length of the list phase, up to now while it is open; `None` when it was not seen.
    pub list_ns: Option<u64>,
    /// Length of the status phase: the sum over its pods.
    pub status_ns: u64,
    /// Pods whose status was asked for.
    pub status_pods: u64,
    /// Client calls, not counting the inner layer.
    pub calls: u64,
    /// Of these, with an error.
    pub failed_calls: u64,
    /// Did the kubelet get its list?
    pub list: ListOutcome,
}

impl Relist {
    /// The relist itself.
    #[must_use]
    pub fn root(&self) -> &Span {
        &self.tree.root
    }
}

/// Did a relist get a whole list?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListOutcome {
    /// Yes: the kubelet moves its health timestamp to the start of this relist.
    Ok,
    /// No.
    Failed,
    /// Not yet.
    Pending,
    /// Not seen.
    Unknown,
}

/// When the kubelet last got a whole list: the start of that relist, as the kubelet itself reckons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastList {
    /// The last one seen.
    At(MonoNs),
    /// None since this moment; the last one is older.
    NotSince(MonoNs),
    /// Relists are not seen.
    Untraced,
}

impl LastList {
    /// How old it is.
    #[must_use]
    pub fn age(&self, now: MonoNs) -> Option<Age> {
        match self {
            Self::At(at) => Some(Age { ns: now.since(*at), at_least: false }),
            Self::NotSince(at) => Some(Age { ns: now.since(*at), at_least: true }),
            Self::Untraced => None,
        }
    }
}

/// A call that has not ended.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenCall {
    /// The call, without children.
    pub span: Span,
    /// Its age.
    pub age_ns: u64,
    /// Who waits for it.
    pub caller: Caller,
    /// The handler has handed over its reply.
    pub replied: bool,
}

impl OpenCall {
    /// Is this a handler the kubelet gave up, that has had the time to notice?
    #[must_use]
    pub fn is_abandoned(&self, now: MonoNs) -> bool {
        let gone = matches!(self.caller, Caller::Gone(at) if now.since(at) >= ABANDONED_AFTER_NS);
        gone && !self.replied && !self.span.is_long_lived()
    }
}

/// Entries of the kernel's map that are no open calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClosedUnseen {
    /// Their goroutine is gone: the end was not seen.
    pub ended_unseen: u64,
    /// Something later on their goroutine proves that they are over.
    pub unwound: u64,
    /// Their process ended, since the start.
    pub process_exited: u64,
}

/// What has been read from the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Everything.
    pub events: u64,
    /// Finished calls; each is in one row, or covered, or counted in another field here or in the losses.
    pub calls: u64,
    /// Bare client calls inside counted ones: no rows of their own.
    pub covered: u64,
    /// Records of hooks that only mark.
    pub marks: u64,
    /// Calls whose end was not seen.
    pub unwound: u64,
    /// Calls in rows of processes that have long been gone.
    pub forgotten: u64,
    /// Calls whose start fired twice.
    pub restarted: u64,
    /// Births, changes and ends of processes.
    pub processes: u64,
    /// Facts.
    pub facts: u64,
    /// Long parks of goroutines.
    pub parks: u64,
}
