//! [`CensusState`]: what the census said last, and since when it says the same. One look cannot tell a stuck request
//! from one that is merely in flight; two looks give a lower bound of its age.

mod blocked;
mod disk;
mod downloads;
mod frames;
mod jams;
mod loops;
mod nri;
mod requests;
mod startup;
mod subject;
mod unkillable;
mod unreported;
mod untraced;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::limits::Limits;
use crate::{
    decode::MonoNs,
    input::{
        CensusFact, Command, Component, Fact, GoroutinesFact, KubeletConnections, ParkedThreads, ProcessFact,
        VersionFact, Weight,
    },
};
pub use disk::{DeviceUse, DiskWaits};
pub use downloads::{PullWait, PullWaitsFor, Quiet};
pub use jams::Jam;
pub use loops::{Again, BusyLoop, KubeletLoops, LoopKind, LoopWait, PluginKind};
pub use nri::NriWait;
pub use requests::{Held, Request, WaitsFor};
pub use subject::Known;
pub use unkillable::UnkillableSeen;
pub use unreported::Unreported;

/// Goroutines that may be unread in a process that counts as read: those that run all the time, and one in so many.
const RESTLESS: u32 = 8;
const ONE_IN: u32 = 100;
/// Programs of which the version is kept; a node has a dozen that are asked.
const MAX_PROGRAMS: usize = 64;
/// Requests that are shown, the longest of those that stacks show. Each has the names of its containers.
const MAX_REQUESTS: usize = 4096;

/// A process as it was found last.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessSeen {
    /// What was found.
    pub fact: ProcessFact,
    /// Since when every look found it standing still: all threads stopped, its cgroup frozen, or dead and not reaped.
    pub still_since: Option<MonoNs>,
    /// Of a shim: since when every look found it running, and no runc below it.
    pub idle_since: Option<MonoNs>,
    /// Its threads that wait in the kernel for a server, an agent or the end of an unmount, or for the kernel itself.
    pub blocked: Vec<BlockedThread>,
    /// A thread of it is in state D, wherever, and so it was at the look before, if there was one: a busy process is so for a moment.
    pub stays_in_kernel: bool,
}

impl ProcessSeen {
    /// What one look shows. What two show is found when the round is over.
    #[must_use]
    pub fn new(fact: ProcessFact, still_since: Option<MonoNs>) -> Self {
        Self { fact, still_since, idle_since: None, blocked: Vec::new(), stays_in_kernel: false }
    }

    /// Its threads that wait for a file system which another program or machine serves.
    pub fn waits_for_server(&self) -> impl Iterator<Item = (BlockedThread, &ParkedThreads)> {
        self.waits().filter(|(_, park)| park.waits_for_server().is_some())
    }

    /// Its threads that unmount an overlay, which writes a whole file system to the disk first.
    pub fn flushes_overlays(&self) -> impl Iterator<Item = (BlockedThread, &ParkedThreads)> {
        self.waits().filter(|(_, park)| park.flushes_overlay())
    }

    /// Its threads that unmount a file system, whatever that waits for.
    pub fn unmounts(&self) -> impl Iterator<Item = (BlockedThread, &ParkedThreads)> {
        self.waits().filter(|(_, park)| park.unmounts())
    }

    /// Its threads that wait in the kernel, wherever.
    pub fn waits(&self) -> impl Iterator<Item = (BlockedThread, &ParkedThreads)> {
        let park = |tid| self.fact.parked.iter().find(|park| park.tid == tid);
        self.blocked.iter().filter_map(move |thread| Some((*thread, park(thread.tid)?)))
    }
}

/// A thread that waits in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockedThread {
    /// Thread.
    pub tid: u32,
    /// Since when every look found it in the same call: the end of the first.
    pub since: MonoNs,
}

/// A goroutine of a kubelet in a call to the file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileCall {
    /// Process.
    pub pid: u32,
    /// Goroutine.
    pub goid: u64,
    /// Full Go names, innermost first.
    pub frames: Vec<String>,
    /// The look before found it at the same place.
    pub stays: bool,
}

/// The census at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Census {
    /// The last complete round; `None` when there was none.
    pub round: Option<CensusFact>,
    /// Rounds so far.
    pub rounds: u64,
    /// Of these, how many told all of all processes.
    pub whole_rounds: u64,
    /// What versions the programs of the node say they have.
    pub versions: Vec<VersionFact>,
    /// Processes of the last round, by pid.
    pub processes: Vec<ProcessSeen>,
    /// Those that a person started: runc, and tools for containers.
    pub by_hand: Vec<ProcessSeen>,
    /// Goroutines of Go programs as they were read last, by pid.
    pub goroutines: Vec<GoroutinesFact>,
    /// Processes whose goroutines were read at least once, as good as all of them.
    pub read: BTreeSet<u32>,
    /// Processes of whose goroutines only a part was ever read: how many were not at the last look, and how many there were.
    pub partly: BTreeMap<u32, (u32, u32)>,
    /// Kubelets that had a stream of events open when their goroutines were read last.
    pub streams: BTreeSet<u32>,
    /// Requests that their stacks show to be in flight, the longest first.
    pub requests: Vec<Request>,
    /// Goroutines of kubelets that are in calls to the file system.
    pub file_calls: Vec<FileCall>,
    /// The loops of kubelets.
    pub loops: Vec<KubeletLoops>,
    /// Goroutines of runtimes that wait for one of NRI's locks and have another.
    pub nri: Vec<NriWait>,
    /// Containers that have ended and run nevertheless, if one asks the runtime, and commands that have ended and are not
    /// deleted, by id.
    pub unreported: Vec<Unreported>,
    /// Processes of containers that SIGKILL does not end, by pid.
    pub unkillable: Vec<UnkillableSeen>,
    /// Connections between a runtime and a shim that neither reads.
    pub jams: Vec<Jam>,
    /// The TCP connections that runtimes have opened, when the last round asked for them.
    pub downloads: Vec<Quiet>,
    /// The same of kubelets.
    pub kubelet_connections: Vec<KubeletConnections>,
    /// How often the threads of a runtime were found waiting for the disk lately, and what the disk did for whom; by process.
    pub disk: BTreeMap<u32, DiskWaits>,
    /// Requests that were too many to be among `requests`.
    pub unshown: u64,
}

/// A goroutine that the last look found inside a request.
#[derive(Debug)]
struct Inside {
    operation: String,
    /// When it was first seen in this one.
    since: MonoNs,
    /// Where it waits for what takes no time, and since when each look found it there.
    held: Option<(Vec<String>, MonoNs)>,
}

/// The census so far.
#[derive(Debug, Default)]
pub(super) struct CensusState {
    round: Option<CensusFact>,
    rounds: u64,
    whole_rounds: u64,
    /// Goroutines of these were read.
    read: BTreeSet<u32>,
    partly: BTreeMap<u32, (u32, u32)>,
    streams: BTreeSet<u32>,
    versions: BTreeMap<String, VersionFact>,
    processes: BTreeMap<u32, ProcessSeen>,
    /// Of the round that is not complete yet.
    coming: BTreeMap<u32, ProcessSeen>,
    goroutines: BTreeMap<u32, GoroutinesFact>,
    /// When kubelets last got their lists, by their own clocks.
    last_lists: BTreeMap<u32, MonoNs>,
    /// When a goroutine was first seen inside a request, by process.
    inside: HashMap<u32, HashMap<u64, Inside>>,
    /// Calls to the file system, by process.
    file_calls: BTreeMap<u32, Vec<FileCall>>,
    /// Loops of kubelets, by process.
    loops: BTreeMap<u32, KubeletLoops>,
    /// Waits for NRI's locks, by process.
    nri: BTreeMap<u32, Vec<NriWait>>,
    /// By container and command.
    unreported: BTreeMap<(String, Option<String>), Unreported>,
    unkillable: unkillable::All,
    jams: Vec<Jam>,
    downloads: Vec<Quiet>,
    kubelet_connections: Vec<KubeletConnections>,
    disk: disk::Looks,
    pub(super) dropped: u64,
}

impl CensusState {
    pub(super) fn process(&mut self, fact: ProcessFact, limits: &Limits) {
        if self.coming.len() >= limits.census && !self.coming.contains_key(&fact.pid) {
            self.dropped += 1;
            return;
        }
        self.disk.look(&fact);
        let before = self.processes.get(&fact.pid).filter(|seen| seen.fact.is_same_process(&fact));
        let still_since = stands_still(&fact)
            .then(|| before.and_then(|seen| seen.still_since).unwrap_or(MonoNs(fact.at_ns)));
        self.coming.insert(fact.pid, ProcessSeen::new(fact, still_since));
    }

    pub(super) fn goroutines(&mut self, fact: GoroutinesFact, limits: &Limits) {
        if self.goroutines.len() >= limits.census && !self.goroutines.contains_key(&fact.pid) {
            self.dropped += 1;
            return;
        }
        let before = self.inside.remove(&fact.pid).unwrap_or_default();
        let mut inside = HashMap::new();
        // It was there at some moment of the look, at the latest when that ended.
        let (_, looked) = look(&fact);
        for seen in requests::goroutines(&fact) {
            let alike = before.get(&seen.goid).filter(|before| before.operation == seen.operation);
            let since = alike.filter(|_| seen.alone).map_or(looked, |before| before.since);
            let stays = |(frames, since): &(Vec<String>, MonoNs)| {
                (seen.alone && Some(frames) == seen.held.as_ref()).then_some(*since)
            };
            let held_since = alike.and_then(|before| stays(before.held.as_ref()?)).unwrap_or(looked);
            let held = seen.held.map(|frames| (frames, held_since));
            inside.insert(seen.goid, Inside { operation: seen.operation, since, held });
        }
        self.inside.insert(fact.pid, inside);
        let before = self.file_calls.remove(&fact.pid).unwrap_or_default();
        self.file_calls.insert(fact.pid, blocked::file_calls(&fact, &before));
        let before = self.loops.remove(&fact.pid);
        let loops = loops::look(&fact, before, look(&fact), is_read(&fact));
        self.loops.extend(loops.map(|loops| (fact.pid, loops)));
        let before = self.nri.remove(&fact.pid).unwrap_or_default();
        self.nri.insert(fact.pid, nri::waits(&fact, &before, look(&fact)));
        if is_read(&fact) {
            self.read.insert(fact.pid);
            self.partly.remove(&fact.pid);
        } else if !self.read.contains(&fact.pid) {
            self.partly.insert(fact.pid, (fact.unread, fact.total));
        }
        if requests::streams_events(&fact) {
            self.streams.insert(fact.pid);
        } else if is_read(&fact) {
            self.streams.remove(&fact.pid);
        }
        if let Some(list) = fact.last_list_ns.map(MonoNs) {
            let known = self.last_lists.entry(fact.pid).or_insert(list);
            *known = list.max(*known);
        }
        self.goroutines.insert(fact.pid, fact);
    }

    /// When a kubelet that runs last got its list, by its own clock.
    pub(super) fn last_list(&self, lives: impl Fn(u32) -> bool) -> Option<MonoNs> {
        self.last_lists.iter().filter(|(pid, _)| lives(**pid)).map(|(_, list)| *list).max()
    }

    /// A process ended: what a look before that found of it is over. What is not reaped, the next look finds.
    pub(super) fn ended(&mut self, pid: u32, at: MonoNs) {
        if self.processes.get(&pid).is_some_and(|seen| seen.fact.at_ns <= at.0) {
            self.processes.remove(&pid);
        }
        self.unkillable.retain(|found, seen| *found != pid || seen.fact.at_ns > at.0);
    }

    /// A round is over: what it did not tell is no longer there, unless it was cut. Then it stands as it was found
    /// before, with the time of that look. `ended` tells when a process ended, if its exit was seen.
    pub(super) fn round(&mut self, round: CensusFact, ended: &dyn Fn(u32) -> Option<MonoNs>) {
        // The same round, told twice: taken for another one, it would have found nothing.
        if self.coming.is_empty() && self.round.as_ref() == Some(&round) {
            return;
        }
        let mut coming = std::mem::take(&mut self.coming);
        // An end may be told before the look that it followed.
        coming.retain(|pid, seen| ended(*pid).is_none_or(|end| end.0 < seen.fact.at_ns));
        let before = std::mem::replace(&mut self.processes, coming);
        self.idle(&before, &round);
        self.jams = jams::find(&self.processes, std::mem::take(&mut self.jams), &round);
        for seen in self.processes.values_mut() {
            let before = before.get(&seen.fact.pid);
            seen.blocked = blocked::threads(&seen.fact, before, MonoNs(round.ended_ns));
            seen.stays_in_kernel = blocked::stays_in_kernel(&seen.fact, before);
        }
        if round.cut {
            self.keep(before);
        } else {
            self.whole_rounds += 1;
        }
        // Goroutines that this round did not read may have gone on since.
        let alive = &self.processes;
        self.last_lists.retain(|pid, _| alive.contains_key(pid));
        self.goroutines.retain(|pid, fact| alive.contains_key(pid) && fact.at_ns >= round.began_ns);
        let read = &self.goroutines;
        self.inside.retain(|pid, _| read.contains_key(pid));
        self.file_calls.retain(|pid, _| read.contains_key(pid));
        self.nri.retain(|pid, _| read.contains_key(pid));
        self.downloads = downloads::find(&round, read, &self.downloads);
        self.kubelet_connections.clone_from(&round.kubelet_connections);
        self.loops.retain(|pid, _| alive.contains_key(pid));
        self.loops
            .iter_mut()
            .filter(|(pid, _)| !read.contains_key(pid))
            .for_each(|(_, loops)| (loops.busy, loops.between) = (Vec::new(), Vec::new()));
        self.unreported(&round, ended);
        self.unkillable(&round);
        self.rounds += 1;
        for fact in &round.versions {
            if self.versions.len() < MAX_PROGRAMS || self.versions.contains_key(&fact.program) {
                self.versions.insert(fact.program.clone(), fact.clone());
            } else {
                self.dropped += 1;
            }
        }
        self.round = Some(round);
    }

    /// Which shims have nothing to do. A round that was cut may have missed what they run.
    fn idle(&mut self, before: &BTreeMap<u32, ProcessSeen>, round: &CensusFact) {
        // One that has ended works no more, also when the shim does not notice.
        let is_runc = |fact: &ProcessFact| fact.component == Component::Runc || is_like_runc(fact);
        let works = |seen: &&ProcessSeen| is_runc(&seen.fact) && seen.fact.state != 'Z';
        let runc = self.processes.values().filter(works);
        let busy: BTreeSet<u32> = runc.map(|seen| seen.fact.parent).collect();
        for (pid, seen) in &mut self.processes {
            let rests = seen.still_since.is_none() && !busy.contains(pid) && !round.cut;
            let before = before.get(pid).filter(|before| before.fact.is_same_process(&seen.fact));
            let since = before.and_then(|before| before.idle_since).unwrap_or(MonoNs(round.ended_ns));
            seen.idle_since = (rests && seen.fact.component == Component::Shim).then_some(since);
        }
    }

    /// Keeps what an earlier round told to the end and this one did not; but of who had ended no age can grow unseen,
    /// because everybody who ends is unreaped for a moment.
    fn keep(&mut self, before: BTreeMap<u32, ProcessSeen>) {
        for (pid, old) in before.into_iter().filter(|(_, old)| old.fact.state != 'Z') {
            let fresh = self.processes.get(&pid);
            let told = |new: &ProcessSeen| !new.fact.parked.is_empty() || old.fact.parked.is_empty();
            if fresh.is_none_or(|new| new.fact.is_same_process(&old.fact) && !told(new)) {
                self.processes.insert(pid, old);
            }
        }
    }

    /// What the facts that are kept take, bytes.
    pub(super) fn bytes(&self) -> usize {
        let facts = |seen: &BTreeMap<u32, ProcessSeen>| Weight::sum(seen.values().map(|seen| &seen.fact));
        let read = Weight::sum(&self.round)
            + Weight::sum(self.versions.values())
            + Weight::sum(self.goroutines.values());
        let frames = self.file_calls.values().flatten().map(|call| Weight::sum(&call.frames)).sum::<usize>();
        let busy = self.loops.values().flat_map(|loops| &loops.busy);
        let frames = frames + busy.map(|busy| Weight::sum(&busy.frames)).sum::<usize>();
        let inside = self.inside.values().flat_map(HashMap::values);
        let inside = inside.map(|inside| size_of::<Inside>() + inside.operation.len()).sum::<usize>();
        let ends = |one: &Unreported| Weight::sum(&one.said) + Weight::of(&one.init).bytes;
        let unreported = self.unreported.values().map(ends).sum::<usize>();
        let unkillable = unkillable::bytes(&self.unkillable);
        facts(&self.processes) + facts(&self.coming) + read + frames + inside + unreported + unkillable
    }

    /// Tells the last round again, and what has come of the next one. It stands for the rounds before it, so it was not cut
    /// if one of them was whole: what that told and this one did not is told with it.
    pub(super) fn retell(&self, tell: &mut dyn FnMut(MonoNs, Fact)) {
        let tell_all = |seen: &BTreeMap<u32, ProcessSeen>, tell: &mut dyn FnMut(MonoNs, Fact)| {
            for fact in seen.values().map(|seen| &seen.fact) {
                tell(MonoNs(fact.at_ns), Fact::Process(fact.clone()));
            }
        };
        if let Some(round) = &self.round {
            tell_all(&self.processes, tell);
            for fact in self.goroutines.values() {
                tell(MonoNs(fact.at_ns), Fact::Goroutines(fact.clone()));
            }
            let versions = self.versions.values().cloned().collect();
            let cut = round.cut && self.whole_rounds == 0;
            let round = CensusFact { versions, cut, ..round.clone() };
            tell(MonoNs(round.ended_ns), Fact::Census(round));
        }
        tell_all(&self.coming, tell);
    }

    /// Goroutines of runtimes that were inside a request when they were read last: process, goroutine, and CRI method.
    pub(super) fn inside(&self) -> impl Iterator<Item = ((u32, u64), &str)> {
        self.inside.iter().flat_map(|(pid, all)| {
            all.iter().map(|(goid, inside)| ((*pid, *goid), inside.operation.as_str()))
        })
    }

    /// As it is known now. `traced` tells the start of a traced call on a goroutine, which is better than a lower bound;
    /// `no_relist` from when to when no relist of this process began or ended.
    pub(super) fn view(
        &self,
        traced: &dyn Fn(u32, u64) -> Option<MonoNs>,
        no_relist: &dyn Fn(u32) -> Option<(MonoNs, MonoNs)>,
        now: MonoNs,
    ) -> Census {
        let known = Known::collect(self.round.as_ref(), self.processes.values());
        let mut requests = Vec::new();
        for fact in self.goroutines.values() {
            let inside = |goid| self.inside.get(&fact.pid)?.get(&goid);
            let seen = |goid| inside(goid).map(|inside| inside.since);
            let held = |goid| inside(goid)?.held.as_ref().map(|(_, since)| *since);
            let untouched = |goid| {
                let (from, until) = no_relist(fact.pid).filter(|_| fact.component == Component::Kubelet)?;
                // A relist that this look found is older than that, and did not end: when in a look it was found is not known, so all
                // of the look lies in between. One that an earlier look found may have ended since, and the next one have begun.
                let (began, ended) = look(fact);
                let found = inside(goid).is_some() && from <= began && ended <= until;
                found.then(|| until.min(now).since(from))
            };
            let begins = requests::Begins { seen: &seen, held: &held, traced, untouched: &untouched, now };
            requests.extend(requests::requests_in(fact, &begins, &known));
        }
        requests
            .sort_by_key(|request| (std::cmp::Reverse(request.since.ns), request.pid, request.goids.clone()));
        let unshown = requests.len().saturating_sub(MAX_REQUESTS);
        requests.truncate(MAX_REQUESTS);
        let (by_hand, processes) =
            self.processes.values().cloned().partition(|seen| seen.fact.by_hand.is_some());
        Census {
            round: self.round.clone(),
            rounds: self.rounds,
            whole_rounds: self.whole_rounds,
            read: self.read.clone(),
            partly: self.partly.clone(),
            streams: self.streams.clone(),
            versions: self.versions.values().cloned().collect(),
            processes,
            by_hand,
            goroutines: self.goroutines.values().cloned().collect(),
            requests,
            file_calls: self.file_calls.values().flatten().cloned().collect(),
            loops: self.loops.values().cloned().collect(),
            nri: self.nri.values().flatten().cloned().collect(),
            unreported: self.unreported.values().cloned().collect(),
            unkillable: self.unkillable.values().cloned().collect(),
            jams: self.jams.clone(),
            downloads: self.downloads.clone(),
            kubelet_connections: self.kubelet_connections.clone(),
            disk: self.disk.waits(now),
            unshown: unshown as u64,
        }
    }
}

/// When a look at goroutines began and ended.
fn look(fact: &GoroutinesFact) -> (MonoNs, MonoNs) {
    (MonoNs(fact.at_ns), MonoNs(fact.at_ns.saturating_add(fact.took_ns)))
}

/// Were its goroutines read, but for some that ran all the time? A request can be among those that were not, or in a group
/// that was left out.
fn is_read(fact: &GoroutinesFact) -> bool {
    let few = (fact.total / ONE_IN).max(RESTLESS);
    fact.unread <= few && fact.groups_left_out == 0
}

/// A command of a runtime that is neither runc nor crun.
fn is_like_runc(fact: &ProcessFact) -> bool {
    matches!(fact.command, Some(Command::Oci { .. }))
}

/// Nothing in it can move: stopped, frozen, or dead and not reaped.
fn stands_still(fact: &ProcessFact) -> bool {
    let stopped = fact.threads > 0 && fact.stopped == fact.threads;
    let frozen = fact.freezer.as_ref().is_some_and(|freezer| freezer.state == "FROZEN");
    stopped || frozen || fact.state == 'Z'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shim(pid: u32, at_ns: u64, stopped: u32) -> ProcessFact {
        ProcessFact {
            at_ns,
            pid,
            parent: 1,
            started_ns: Some(7),
            component: Component::Shim,
            comm: "containerd-shim".to_owned(),
            command: None,
            state: 'S',
            threads: 2,
            stopped,
            freezer: None,
            parked: Vec::new(),
            sockets: Vec::new(),
            pipes: Vec::new(),
            container: None,
            by_hand: None,
            detached: false,
            cpu_group: None,
            task_limit: None,
            disk: None,
        }
    }

    fn round(state: &mut CensusState, processes: &[ProcessFact], cut: bool) {
        processes.iter().for_each(|fact| state.process(fact.clone(), &Limits::default()));
        // Each is later than the one before.
        let moment = state.rounds + 1;
        let round = CensusFact { cut, began_ns: moment, ended_ns: moment, ..CensusFact::default() };
        state.round(round, &|_| None);
    }

    fn found(state: &CensusState) -> Vec<(u32, u64, Option<MonoNs>)> {
        let of = |seen: &ProcessSeen| (seen.fact.pid, seen.fact.at_ns, seen.still_since);
        state.processes.values().map(of).collect()
    }

    /// A stopped shim that a cut round does not reach is there all the same, as of the time it was seen; one that a
    /// whole round does not find is gone.
    #[test]
    fn a_cut_round_takes_nothing_away() {
        let mut state = CensusState::default();
        round(&mut state, &[shim(5, 100, 2), shim(6, 100, 0)], false);
        round(&mut state, &[shim(6, 200, 0)], true);
        assert_eq!(found(&state), [(5, 100, Some(MonoNs(100))), (6, 200, None)]);
        round(&mut state, &[], true);
        assert_eq!(found(&state), [(5, 100, Some(MonoNs(100))), (6, 200, None)]);
        round(&mut state, &[shim(5, 400, 2)], false);
        assert_eq!(found(&state), [(5, 400, Some(MonoNs(100)))]);
        assert_eq!((state.rounds, state.whole_rounds), (4, 2));
        let ended = ProcessFact { state: 'Z', ..shim(7, 500, 0) };
        round(&mut state, std::slice::from_ref(&ended), false);
        round(&mut state, &[], true);
        assert!(found(&state).is_empty(), "whoever has ended is gone in a moment");
    }
}
