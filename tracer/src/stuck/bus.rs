//! Calls over D-Bus without an answer: who is waited for does not move, and the callers wait.
//!
//! A call has come as far as the queues of its connection say ([`BusWait`]). What the bus has read it may not have passed
//! on, so a bus that is stopped, or on a CPU all the time, is waited for before systemd is.

use std::collections::HashSet;

use super::{
    Stuck, StuckKind, Waiter, chain,
    work::{self, ancestors, waiter},
};
use crate::{
    correlate::{
        Age, Bus, BusPeer, BusWait, Known, OpenBusCall, OpenProcess, ProcessKind, ProcessSeen, Snapshot,
        thresholds::BUS_NS,
    },
    decode::{BusKind, MonoNs},
    input::{Command, Component, ContainerFact, SYSTEMD, THE_BUS},
};

/// Callers of one stall whose requests are looked for.
const MAX_CALLERS: usize = 64;
/// On a CPU for this share of the time, in percent, it is busy.
const BUSY: u64 = 50;

/// Who does not answer calls over D-Bus, and the oldest of the calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusStall {
    /// Who is waited for.
    pub party: BusParty,
    /// Its process; 0 when not known.
    pub pid: u32,
    /// What that is doing.
    pub peer: Option<BusPeer>,
    /// What the bus daemon is doing, when another one is waited for.
    pub daemon: Option<BusPeer>,
    /// The oldest call; the oldest job when no call waits.
    pub call: OpenBusCall,
    /// How many calls wait for the same.
    pub calls: u32,
}

/// Whom a call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BusParty {
    /// The bus daemon.
    Daemon,
    /// Process 1 of the node.
    Systemd,
    /// Somebody else on the bus.
    Other,
}

impl BusStall {
    /// What it is to the node.
    #[must_use]
    pub fn component(&self) -> Component {
        match self.party {
            BusParty::Daemon => Component::BusDaemon,
            BusParty::Systemd => Component::Systemd,
            BusParty::Other => Component::Helper,
        }
    }

    /// It is systemd, and is no client of the bus.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        self.party == BusParty::Systemd && self.call.fact.no_owner && !self.call.fact.job
    }

    /// A signal, a debugger or its cgroup keeps it from running.
    #[must_use]
    pub fn is_halted(&self) -> bool {
        self.peer.as_ref().is_some_and(is_halted)
    }

    /// It hangs in a system call that cannot be interrupted.
    #[must_use]
    pub fn hangs_in_kernel(&self) -> bool {
        self.peer.as_ref().is_some_and(BusPeer::hangs_in_kernel)
    }

    /// Its share of one CPU in percent, when it is busy.
    #[must_use]
    pub fn busy(&self) -> Option<u64> {
        self.peer.as_ref().and_then(busy)
    }
}

fn is_halted(peer: &BusPeer) -> bool {
    peer.is_stopped() || peer.is_frozen()
}

fn busy(peer: &BusPeer) -> Option<u64> {
    peer.cpu_percent().filter(|percent| *percent >= BUSY)
}

/// Whom this call waits for, and its process; `None` when that is its caller.
fn waits_for(call: &OpenBusCall, bus: &Bus) -> Option<(BusParty, u32)> {
    let fact = &call.fact;
    let daemon = bus.peer(fact.bus);
    // At its private socket systemd answers itself.
    let is_private = daemon.is_some_and(|daemon| daemon.fact.is_init);
    let server = if is_private { BusParty::Systemd } else { BusParty::Daemon };
    match call.waits_for() {
        BusWait::Caller(_) => return None,
        BusWait::Accept | BusWait::Room | BusWait::Bus(_) => return Some((server, fact.bus)),
        BusWait::Answer | BusWait::Job | BusWait::Unknown => {}
    }
    let stands_still = daemon.is_some_and(|daemon| is_halted(daemon) || daemon.hangs_in_kernel());
    // The signal that a job is done is there; its reader does not run.
    if fact.job && bus.readers.iter().any(|reader| reader.pid == fact.asker && reader.unread > 0) {
        return None;
    }
    if stands_still {
        return Some((server, fact.bus));
    }
    if call.kind() == BusKind::Connection || fact.destination == THE_BUS {
        // It answers what it has read before it waits for more, so the answer was missed. To activate a service takes longer.
        let answered = daemon.is_some_and(BusPeer::is_idle);
        return (!answered).then_some((server, fact.bus));
    }
    if fact.destination != SYSTEMD {
        return Some((BusParty::Other, 0));
    }
    let owner = bus.peer(fact.owner);
    let idle = owner.is_some_and(|owner| owner.fact.unread == Some(0) && busy(owner).is_none());
    if idle && daemon.is_some_and(|daemon| busy(daemon).is_some()) {
        return Some((server, fact.bus));
    }
    Some((BusParty::Systemd, fact.owner))
}

fn late(snapshot: &Snapshot) -> impl Iterator<Item = (&OpenBusCall, BusParty, u32)> {
    let bus = &snapshot.bus;
    let open = bus.open.iter().filter(|call| call.age_ns > BUS_NS);
    open.filter_map(move |call| waits_for(call, bus).map(|(party, pid)| (call, party, pid)))
}

/// Processes whose calls have no answer for long: they wait for no process below them.
pub(super) fn callers(snapshot: &Snapshot) -> HashSet<u32> {
    late(snapshot).map(|(call, ..)| call.fact.asker).collect()
}

/// Everybody who does not answer, each with those who wait.
pub(super) fn find(known: &Known, snapshot: &Snapshot) -> Vec<Stuck> {
    let mut found: Vec<(BusStall, Vec<&OpenBusCall>)> = Vec::new();
    for (call, party, pid) in late(snapshot) {
        // Whose process is not known is told by where it is called.
        let place = |call: &OpenBusCall| (call.fact.bus, call.fact.destination.clone());
        let same = |stall: &BusStall| {
            (stall.party, stall.pid) == (party, pid) && (pid != 0 || place(&stall.call) == place(call))
        };
        if let Some((stall, calls)) = found.iter_mut().find(|(stall, _)| same(stall)) {
            stall.calls += 1;
            // Who answers no call ends no job.
            if stall.call.fact.job && !call.fact.job {
                stall.call = call.clone();
            }
            calls.push(call);
            continue;
        }
        let peer = |pid: u32| snapshot.bus.peer(pid).cloned();
        let daemon = peer(call.fact.bus).filter(|daemon| daemon.fact.pid != pid);
        let stall = BusStall { party, pid, peer: peer(pid), daemon, call: call.clone(), calls: 1 };
        found.push((stall, vec![call]));
    }
    found.into_iter().map(|(stall, calls)| stuck(stall, &calls, known, snapshot)).collect()
}

fn stuck(stall: BusStall, calls: &[&OpenBusCall], known: &Known, snapshot: &Snapshot) -> Stuck {
    let mut of_all = Stuck {
        since: Age { ns: stall.call.age_ns, at_least: stall.call.fact.before },
        what: StuckKind::Bus(Box::new(stall)),
        container: None,
        parks: Vec::new(),
        frames: Vec::new(),
        phases: Vec::new(),
        sockets: Vec::new(),
        waiters: Vec::new(),
    };
    let mut seen = HashSet::new();
    let callers = calls.iter().filter(|call| seen.insert(call.fact.asker)).take(MAX_CALLERS);
    for (place, call) in callers.enumerate() {
        let (container, processes) = caller(call, known, snapshot);
        let one = Stuck { container, waiters: processes, ..of_all.clone() };
        let behind = chain::waiters(&one, known, snapshot);
        if place == 0 {
            of_all.container = one.container;
        }
        for waiter in one.waiters.into_iter().chain(behind) {
            if !of_all.waiters.iter().any(|other| is_same(other, &waiter)) {
                of_all.waiters.push(waiter);
            }
        }
    }
    // The relist comes last, as always.
    of_all.waiters.sort_by_key(|waiter| match waiter {
        Waiter::Process { .. } => 0,
        Waiter::Requests(_) => 1,
        Waiter::Relist { .. } => 2,
    });
    of_all
}

fn is_same(one: &Waiter, other: &Waiter) -> bool {
    match (one, other) {
        (Waiter::Process { pid, .. }, Waiter::Process { pid: other, .. }) => pid == other,
        (Waiter::Requests(one), Waiter::Requests(other)) => one.is(other),
        (Waiter::Relist { .. }, Waiter::Relist { .. }) => true,
        _ => false,
    }
}

/// Who calls: container and pod that it works for, and itself with the processes that wait for it.
fn caller(call: &OpenBusCall, known: &Known, snapshot: &Snapshot) -> (Option<ContainerFact>, Vec<Waiter>) {
    // A runc that a person typed waits as any other.
    let all = || snapshot.census.processes.iter().chain(&snapshot.census.by_hand);
    let is_caller = |seen: &&ProcessSeen| {
        let fact = &seen.fact;
        fact.pid == call.fact.asker && fact.started_ns.is_none_or(|start| start <= call.fact.start_ns)
    };
    let Some(seen) = all().find(is_caller) else { return unseen(call, known, snapshot) };
    let ancestors = ancestors(seen.fact.parent, snapshot);
    let container = work::container(seen, &ancestors);
    let container = container.map(|found| known.get(&found.id).cloned().unwrap_or(found));
    // `runc init` waits for its runc.
    let children = all().filter(|other| other.fact.parent == seen.fact.pid);
    let chain = [seen].into_iter().chain(children).chain(ancestors);
    (container, chain.map(|seen| waiter(seen, snapshot)).collect())
}

/// A caller that no census has seen: its birth may have been, or it is a daemon; else only its name is known.
fn unseen(call: &OpenBusCall, known: &Known, snapshot: &Snapshot) -> (Option<ContainerFact>, Vec<Waiter>) {
    let (pid, start) = (call.fact.asker, MonoNs(call.fact.start_ns));
    let of = |component, command, comm, phases| Waiter::Process { component, command, comm, pid, phases };
    let is_caller =
        |process: &&OpenProcess| process.pid == pid && process.start.is_none_or(|begun| begun <= start);
    if let Some(process) = snapshot.processes.open.iter().find(is_caller)
        && let ProcessKind::Runc { by, sub } = &process.kind
    {
        let container = process.container.as_ref().map(|id| {
            let fresh = || ContainerFact {
                id: id.clone(),
                source: "command line".to_owned(),
                ..ContainerFact::default()
            };
            known.get(id).cloned().unwrap_or_else(fresh)
        });
        let command = Command::Runc { sub: sub.clone(), container: process.container.clone(), bundle: None };
        let mut waiters =
            vec![of(Component::Runc, Some(command), by.name().to_owned(), process.phases.clone())];
        waiters.extend(inits_of(pid, snapshot));
        return (container, waiters);
    }
    if let Some(target) = snapshot.targets.iter().find(|target| target.fact.pid == pid) {
        return (None, vec![of(target.fact.component, None, call.fact.comm.clone(), Vec::new())]);
    }
    let program = match call.fact.comm.as_str() {
        "" => "process".to_owned(),
        comm => comm.to_owned(),
    };
    (None, vec![of(Component::Helper, Some(Command::Other { program }), call.fact.comm.clone(), Vec::new())])
}

/// Every `runc init` that such a caller has started, which waits for it.
fn inits_of(parent: u32, snapshot: &Snapshot) -> impl Iterator<Item = Waiter> {
    let is_child = move |process: &&OpenProcess| {
        matches!(process.kind, ProcessKind::RuncInit { .. })
            && process.parents.iter().any(|(pid, _)| *pid == parent)
    };
    snapshot.processes.open.iter().filter(is_child).map(|process| Waiter::Process {
        component: Component::Runc,
        command: Some(Command::Runc {
            sub: "init".to_owned(),
            container: process.container.clone(),
            bundle: None,
        }),
        comm: process.comm.clone(),
        pid: process.pid,
        phases: Vec::new(),
    })
}
