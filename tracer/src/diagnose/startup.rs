//! [`Startup`]: a containerd that does not come to the end of its start, and the shim for which it waits.
//!
//! It asks the shims of the one before it, one bundle after the other, and listens on its sockets only when that is done.

use crate::{
    correlate::{
        Age, LastList, OpenMessage, ProcessSeen, Request, TracedProcess, TracedState, WaitsFor,
        thresholds::{STARTUP_NS, STILL_NS},
    },
    diagnose::Scene,
    input::{Component, ContainerFact, Layer, SocketFact},
    stuck::StuckKind,
};

/// A start that lasts too long.
#[derive(Debug)]
pub(super) struct Startup<'a> {
    pub(super) containerd: &'a ProcessSeen,
    /// Where it will listen, when that is known.
    pub(super) socket: Option<&'a str>,
    /// Since its start.
    pub(super) age: Age,
    /// Its goroutine that asks the shims; `None` when they were not read.
    pub(super) load: Option<&'a Request>,
    /// Older shims that do not read: requests wait in their sockets, or nothing in them runs.
    pub(super) deaf: Vec<&'a ProcessSeen>,
    pub(super) awaited: Awaited<'a>,
    /// That shim waits for itself, and has done so for a while.
    pub(super) is_locked_out: bool,
}

/// For whom it waits.
#[derive(Debug)]
pub(super) enum Awaited<'a> {
    /// This shim.
    Shim {
        shim: &'a ProcessSeen,
        /// The request that it does not answer, when that was seen.
        request: Option<&'a OpenMessage>,
    },
    /// One of several that do not read.
    OneOfDeaf,
    /// Nothing tells.
    Unknown,
}

impl<'a> Startup<'a> {
    /// `None` when every containerd of the node serves, or is young.
    pub(super) fn of(scene: &Scene<'a>) -> Option<Self> {
        let live = |target: &&TracedProcess| {
            target.fact.component == Component::Containerd && target.state == TracedState::Live
        };
        scene.snapshot.targets.iter().filter(live).find_map(|target| Self::of_target(target, scene))
    }

    fn of_target(target: &'a TracedProcess, scene: &Scene<'a>) -> Option<Self> {
        let (pid, census) = (target.fact.pid, &scene.snapshot.census);
        // One that is stopped itself is another cause.
        let runs = |seen: &&ProcessSeen| seen.fact.pid == pid && seen.still_since.is_none();
        let containerd = census.processes.iter().find(runs)?;
        let started = containerd.fact.started_ns?;
        let age = Age { ns: scene.snapshot.now.0.saturating_sub(started), at_least: false };
        // One that waits for a program it has started to clean up waits for no shim.
        let asks = |request: &&Request| {
            request.pid == pid && request.is_startup() && matches!(request.waits_for, WaitsFor::Shim { .. })
        };
        let load = census.requests.iter().find(asks);
        let is_read = census.goroutines.iter().any(|fact| fact.pid == pid);
        let socket = target.fact.socket.as_deref();
        if age.ns < STILL_NS || serves(containerd, socket, started, scene) || is_read && load.is_none() {
            return None;
        }
        let shims: Vec<&ProcessSeen> =
            census.processes.iter().filter(|seen| is_older_shim(seen, containerd)).collect();
        let deaf: Vec<&ProcessSeen> = shims.iter().filter(|shim| is_deaf(shim, pid)).copied().collect();
        let awaited = awaited(pid, &shims, &deaf, load, scene);
        let is_locked_out = matches!(awaited, Awaited::Shim { shim, .. } if waits_for_itself(shim, scene));
        let found = Self { containerd, socket, age, load, deaf, awaited, is_locked_out };
        found.is_held_up().then_some(found)
    }

    /// Is it more than a node with many shims, which are asked one after the other? One in which nothing runs answers nobody.
    fn is_held_up(&self) -> bool {
        let old = self.age.ns >= STARTUP_NS;
        let loads = self.load.is_some_and(|load| load.since.ns >= STARTUP_NS);
        let halted = |shim: &ProcessSeen| shim.still_since.is_some();
        match &self.awaited {
            Awaited::Shim { shim, .. } => {
                let late = old && (self.is_deaf(shim) || loads || self.is_unanswered());
                late || halted(shim) || self.is_locked_out
            }
            Awaited::OneOfDeaf => old || self.deaf.iter().all(|shim| halted(shim)),
            Awaited::Unknown => loads,
        }
    }

    /// Does this shim not read?
    pub(super) fn is_deaf(&self, shim: &ProcessSeen) -> bool {
        self.deaf.iter().any(|deaf| deaf.fact.pid == shim.fact.pid)
    }

    /// Was one request to the shim seen to have no answer for so long?
    pub(super) fn is_unanswered(&self) -> bool {
        matches!(self.awaited, Awaited::Shim { request: Some(open), .. } if open.age_ns >= STARTUP_NS)
    }
}

/// Does it answer, or has it done so since it started?
fn serves(containerd: &ProcessSeen, socket: Option<&str>, started: u64, scene: &Scene<'_>) -> bool {
    let (pid, snapshot) = (containerd.fact.pid, scene.snapshot);
    let name = |path: &str| path.rsplit('/').next().map(str::to_owned);
    let is_its = |found: &SocketFact| {
        found.listening && socket.is_none_or(|socket| found.path.as_deref().and_then(name) == name(socket))
    };
    let listed = matches!(snapshot.last_list, LastList::At(at) if at.0 > started);
    let handles =
        snapshot.open.iter().any(|call| call.span.layer() == Layer::Handler && call.span.id.tgid == pid);
    let serves = |request: &Request| request.pid == pid && request.method().is_some();
    listed
        || handles
        || snapshot.census.requests.iter().any(serves)
        || containerd.fact.sockets.iter().any(is_its)
}

/// For which of these shims containerd `pid` waits: the one whose bundle its goroutine has, else the one that was seen to be
/// asked, else the only one that does not read.
fn awaited<'a>(
    pid: u32,
    shims: &[&'a ProcessSeen],
    deaf: &[&'a ProcessSeen],
    load: Option<&Request>,
    scene: &Scene<'a>,
) -> Awaited<'a> {
    let asks = |open: &&OpenMessage| open.fact.asker == pid && open.should_end() && !open.fact.over;
    let asked: Vec<&OpenMessage> = scene.snapshot.messages.open.iter().filter(asks).collect();
    let request = |shim: &ProcessSeen| asked.iter().find(|open| open.fact.answerer == shim.fact.pid).copied();
    let bundle = load.filter(|load| load.target_known).and_then(|load| load.containers.first());
    let by_bundle = bundle.and_then(|of| shims.iter().find(|shim| has(shim, of)));
    let by_wire = || shims.iter().find(|shim| request(shim).is_some());
    match (by_bundle.or_else(by_wire), deaf) {
        (Some(shim), _) | (None, [shim]) => Awaited::Shim { shim, request: request(shim) },
        (None, []) => Awaited::Unknown,
        (None, _) => Awaited::OneOfDeaf,
    }
}

fn is_older_shim(seen: &ProcessSeen, containerd: &ProcessSeen) -> bool {
    let older = seen.fact.started_ns.zip(containerd.fact.started_ns).is_some_and(|(shim, its)| shim < its);
    seen.fact.component == Component::Shim && older
}

/// Is it the shim of this container? That of a pod has the pod's sandbox.
fn has(shim: &ProcessSeen, of: &ContainerFact) -> bool {
    let own = shim.fact.container.as_ref().map(|own| own.id.as_str());
    own.is_some() && (own == Some(of.id.as_str()) || own == of.sandbox.as_deref())
}

/// Was a goroutine of this shim found that keeps it from answering?
fn waits_for_itself(shim: &ProcessSeen, scene: &Scene<'_>) -> bool {
    scene.stuck().any(|stuck| {
        matches!(stuck.what, StuckKind::SilentShim { shim: pid, lock: Some(_), .. } if pid == shim.fact.pid)
    })
}

/// Does nothing in it run, or has it left unread what this process wrote? Who is behind a connection that it has not even
/// accepted is not known.
fn is_deaf(shim: &ProcessSeen, asker: u32) -> bool {
    let waits = |socket: &SocketFact| {
        let from = socket.listening || socket.peers.iter().any(|peer| peer.pid == asker);
        socket.unread > 0 && from
    };
    shim.still_since.is_some() || shim.fact.sockets.iter().any(waits)
}
