//! [`Scene`]: a snapshot with the questions that rules ask of it.

use crate::{
    correlate::{
        Held, OpenCall, ProcessKind, ProcessRow, Relist, Request, Snapshot, TracedState, WaitsFor,
        thresholds::RELIST_OPEN_NS,
    },
    cri::Method,
    diagnose::{Reason, Slow},
    input::{Answerers, Component, Layer, ParkedThreads, Scarce},
    stuck::{Stuck, StuckKind, Waiter, is_late},
};

/// What rules look at.
#[derive(Clone, Copy, Debug)]
pub struct Scene<'a> {
    /// The node at one moment.
    pub snapshot: &'a Snapshot,
    /// What does not move on it.
    pub(super) stuck: &'a [Stuck],
    /// What is held up.
    pub(super) reasons: &'a [Reason],
    /// What takes too long.
    pub(super) slow: &'a [Slow],
}

impl<'a> Scene<'a> {
    /// Things that do not move.
    pub fn stuck(self) -> impl Iterator<Item = &'a Stuck> {
        self.stuck.iter()
    }

    /// The oldest relist that has not ended.
    #[must_use]
    pub fn open_relist(self) -> Option<&'a Relist> {
        self.snapshot.relists.iter().find(|relist| relist.root().is_open())
    }

    /// Is a process of this component alive?
    #[must_use]
    pub fn is_live(self, component: Component) -> bool {
        let mut targets = self.snapshot.targets.iter();
        targets.any(|target| target.fact.component == component && target.state == TracedState::Live)
    }

    /// Why the node is held up.
    pub fn reasons(self) -> impl Iterator<Item = &'a Reason> {
        self.reasons.iter()
    }

    /// What takes too long.
    pub fn slow(self) -> impl Iterator<Item = &'a Slow> {
        self.slow.iter()
    }

    /// Relists come to their end, with a list.
    #[must_use]
    pub fn relists_end(self) -> bool {
        let snapshot = self.snapshot;
        let late = |relist: &Relist| {
            relist.root().is_open() && relist.root().duration_ns(snapshot.now) > RELIST_OPEN_NS
        };
        let stale = self.reasons().any(|reason| matches!(reason, Reason::ListStale { .. }));
        !snapshot.relists.is_empty() && !stale && !snapshot.relists.iter().any(late)
    }

    /// Open calls of this method, oldest first: handlers that have not answered, and calls of the kubelet.
    pub fn open(self, method: Method) -> impl Iterator<Item = &'a OpenCall> {
        self.snapshot.open.iter().filter(move |call| {
            let counts = matches!(call.span.layer(), Layer::Handler | Layer::KubeletCall);
            counts && !call.replied && call.span.method() == Some(method)
        })
    }

    /// Is this handler one that waits for an exit that the runtime never learns of?
    #[must_use]
    pub fn waits_for_exit(self, call: &OpenCall) -> bool {
        let of = |waiter: &Waiter| match waiter {
            Waiter::Requests(request) => {
                request.pid == call.span.id.tgid && request.goids.contains(&call.span.id.goid)
            }
            Waiter::Process { .. } | Waiter::Relist { .. } => false,
        };
        let lost = |stuck: &&Stuck| matches!(stuck.what, StuckKind::Unreported { .. });
        self.stuck().filter(lost).flat_map(|stuck| &stuck.waiters).any(of)
    }

    /// Does this handler wait for a lock of its runtime, or for a plugin that the runtime asks? Then no process of a pod is to blame.
    #[must_use]
    pub fn waits_for_lock(self, call: &OpenCall) -> bool {
        let id = call.span.id;
        let serves = |request: &&Request| request.pid == id.tgid && request.goids.contains(&id.goid);
        let mut serving = self.snapshot.census.requests.iter().filter(serves);
        serving.any(|request| matches!(request.waits_for, WaitsFor::Lock(_) | WaitsFor::NriPlugin))
    }

    /// The longest-open calls change: nothing that answers calls is open for longer than its operation takes.
    #[must_use]
    pub fn oldest_changes(self) -> bool {
        let old = |call: &OpenCall| {
            let counts = matches!(call.span.layer(), Layer::Handler | Layer::KubeletCall);
            let late = is_late(call.span.operation(), call.age_ns, Some(call.caller), self.snapshot);
            counts && !call.replied && late && !call.span.is_long_lived()
        };
        !self.snapshot.open.iter().any(old) && self.stuck.is_empty()
    }

    /// How long ago a process was looked at, in ns, when later looks were cut before they came to it.
    #[must_use]
    pub fn not_reached_since(self, pid: u32) -> Option<u64> {
        let census = &self.snapshot.census;
        let round = census.round.as_ref().filter(|round| round.cut)?;
        let seen = census.processes.iter().find(|seen| seen.fact.pid == pid)?;
        let ago = self.snapshot.now.0.saturating_sub(seen.fact.at_ns);
        (seen.fact.at_ns < round.began_ns).then_some(ago)
    }

    /// Programs that answer for the kernel, when the last look found something waiting for one.
    #[must_use]
    pub fn answerers(self) -> Option<&'a Answerers> {
        self.snapshot.census.round.as_ref()?.answerers.as_ref()
    }

    /// What the node has little or nothing left of, when the last look found such a thing.
    #[must_use]
    pub fn scarce(self) -> Option<&'a Scarce> {
        self.snapshot.census.round.as_ref()?.scarce.as_ref()
    }

    /// Figures of this command of runc or crun, of those that have ended. A node with both has two: those of which there were more.
    #[must_use]
    pub fn ended(self, command: &str) -> Option<&'a ProcessRow> {
        let is_it = |row: &&ProcessRow| matches!(&row.kind, ProcessKind::Runc { sub, .. } if sub == command);
        self.snapshot.processes.rows.iter().filter(is_it).max_by_key(|row| row.latency.count())
    }

    /// Requests that the goroutines of a component show, the longest first.
    pub fn requests(self, component: Component) -> impl Iterator<Item = &'a Request> {
        self.snapshot.census.requests.iter().filter(move |request| request.component == component)
    }
}

/// Where the threads of a stuck thing wait; of a request, those of the runtime, when it is in a system call itself.
pub(super) fn parks_of<'a>(stuck: &'a Stuck, scene: &Scene<'a>) -> Option<&'a [ParkedThreads]> {
    match &stuck.what {
        StuckKind::Process { .. } => Some(&stuck.parks),
        StuckKind::Request(request) => {
            let calls = request.frames.iter().take(3).any(|frame| frame.contains("yscall"));
            let mut processes = scene.snapshot.census.processes.iter();
            let server = processes.find(|seen| calls && seen.fact.pid == request.pid)?;
            Some(&server.fact.parked)
        }
        _ => None,
    }
}

/// The first of these parks that is as wanted.
pub(super) fn parked_in(
    parks: &[ParkedThreads],
    wanted: impl Fn(&ParkedThreads) -> bool,
) -> Option<&ParkedThreads> {
    parks.iter().find(|park| wanted(park))
}

/// The request that waits for a stuck thing while it holds a lock that others of the waiters want.
pub(super) fn hostage(stuck: &Stuck, held: Held) -> Option<(&Request, &Request)> {
    let requests = || {
        stuck.waiters.iter().filter_map(|waiter| match waiter {
            Waiter::Requests(request) => Some(request),
            Waiter::Process { .. } | Waiter::Relist { .. } => None,
        })
    };
    let holder = requests().find(|request| request.holds.contains(&held))?;
    let waiter = requests().find(|request| request.waits_for == WaitsFor::Lock(held))?;
    Some((holder, waiter))
}
