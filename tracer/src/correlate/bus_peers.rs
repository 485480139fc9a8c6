//! [`BusPeer`]: what a process that calls over D-Bus wait for has been doing: a bus daemon, or systemd.

use std::collections::BTreeMap;

use super::thresholds::SECOND_NS;
use crate::{
    decode::MonoNs,
    input::{BusPeerFact, Component, SystemdWork, Weight},
};

/// What is seen at readings this far apart is a state, not a moment.
const LASTS_NS: u64 = 2 * SECOND_NS;

/// What gives systemd work at so many readings, and at half of them or more, is what keeps it busy.
const FEW: u32 = 3;

/// With what systemd is busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BusyWith {
    /// The mount table changes all the time, and it reads all of it.
    MountTable,
    /// It reads its unit files: a reload, or very many of them.
    Units,
}

/// A process that calls wait for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BusPeer {
    /// As it was read last.
    pub fact: BusPeerFact,
    /// From the first to the last of the readings in a row that found it in this state, and waiting in this function.
    pub still_ns: u64,
    /// CPU time that it has used in [`Self::over_ns`].
    pub ran_ns: u64,
    /// From the first to the last reading.
    pub over_ns: u64,
    /// What gave systemd work meanwhile, by looks.
    pub work: SystemdWork,
    /// The same by readings, each of several looks: at how many of them it was seen at all.
    pub readings: SystemdWork,
}

impl BusPeer {
    /// What it is to the node.
    #[must_use]
    pub fn component(&self) -> Component {
        if self.fact.is_init { Component::Systemd } else { Component::BusDaemon }
    }

    /// A signal or a debugger has stopped it.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        matches!(self.fact.state, 'T' | 't') && self.still_ns >= LASTS_NS
    }

    /// Its cgroup is frozen: by what the cgroup says, or by the function in which it waits. Of version 1 such a task is in D, of version 2 in S (kernel/cgroup/freezer.c,
    /// kernel/freezer.c); the function tells, which compilers may make a part of its caller.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        let freezes = self.fact.frozen
            || matches!(self.fact.wchan.as_str(), "do_freezer_trap" | "get_signal" | "__refrigerator");
        freezes && !matches!(self.fact.state, 'T' | 't' | 'R') && self.still_ns >= LASTS_NS
    }

    /// It hangs in a system call that cannot be interrupted.
    #[must_use]
    pub fn hangs_in_kernel(&self) -> bool {
        self.fact.state == 'D' && !self.is_frozen() && self.still_ns >= LASTS_NS
    }

    /// It has nothing to do: it waits for something to happen on its connections, in the function of the kernel for that
    /// (`ep_poll`, fs/eventpoll.c, which compilers may make a part of its caller).
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let fact = &self.fact;
        let waits = fact.wchan == "ep_poll" || fact.wchan.starts_with("do_epoll_");
        fact.state == 'S' && waits && !fact.frozen && self.still_ns >= LASTS_NS
    }

    /// It was watched for long enough to tell what it is doing.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.over_ns >= LASTS_NS
    }

    /// With what systemd is busy; `None` when that was not seen.
    #[must_use]
    pub fn busy_with(&self) -> Option<BusyWith> {
        let often = |readings: u32| readings >= FEW && readings >= self.readings.looks.div_ceil(2);
        let (units, table) = (often(self.readings.units), often(self.readings.mounts_changed));
        match (units, table) {
            // Nothing else is done during a reload.
            (true, true) if self.work.units < self.work.mounts_changed => Some(BusyWith::MountTable),
            (true, _) => Some(BusyWith::Units),
            (false, true) => Some(BusyWith::MountTable),
            (false, false) => None,
        }
    }

    /// Its share of one CPU in percent; `None` when it was not watched for long enough.
    #[must_use]
    pub fn cpu_percent(&self) -> Option<u64> {
        let share = u128::from(self.ran_ns) * 100 / u128::from(self.over_ns.max(1));
        self.is_known().then(|| u64::try_from(share).unwrap_or(u64::MAX))
    }
}

#[derive(Debug)]
struct Seen {
    fact: BusPeerFact,
    first: (MonoNs, u64),
    still_since: MonoNs,
    last: MonoNs,
    work: SystemdWork,
    readings: SystemdWork,
}

/// What is kept of them.
#[derive(Debug, Default)]
pub(super) struct BusPeers(BTreeMap<u32, Seen>);

impl BusPeers {
    /// What was read of them takes so much, bytes.
    pub(super) fn bytes(&self) -> usize {
        Weight::sum(self.0.values().map(|seen| &seen.fact))
    }

    /// They were looked at; others are forgotten.
    pub(super) fn reading(&mut self, at: MonoNs, peers: Vec<BusPeerFact>, most: usize) {
        self.0.retain(|pid, _| peers.iter().any(|peer| peer.pid == *pid));
        for fact in peers.into_iter().take(most) {
            let none = SystemdWork::default();
            let new = Seen {
                first: (at, fact.ran_ns),
                still_since: at,
                last: at,
                fact: fact.clone(),
                work: none,
                readings: none,
            };
            let seen = self.0.entry(fact.pid).or_insert(new);
            let key = |fact: &BusPeerFact| (fact.state, fact.frozen, fact.wchan.clone());
            if key(&fact) != key(&seen.fact) {
                seen.still_since = at;
            }
            // A number that is used again: another process.
            if fact.ran_ns < seen.first.1 {
                (seen.first, seen.work, seen.readings) = ((at, fact.ran_ns), none, none);
            }
            seen.work = seen.work.and(fact.work);
            seen.readings = seen.readings.and(fact.work.once());
            (seen.last, seen.fact) = (at, fact);
        }
    }

    /// What a stream that begins now must know.
    pub(super) fn retold(&self) -> Vec<BusPeerFact> {
        self.0.values().map(|seen| seen.fact.clone()).collect()
    }

    /// All of them, by pid.
    pub(super) fn view(&self) -> Vec<BusPeer> {
        let peer = |seen: &Seen| BusPeer {
            fact: seen.fact.clone(),
            still_ns: seen.last.since(seen.still_since),
            ran_ns: seen.fact.ran_ns.saturating_sub(seen.first.1),
            over_ns: seen.last.since(seen.first.0),
            work: seen.work,
            readings: seen.readings,
        };
        self.0.values().map(peer).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fact(state: char, wchan: &str, ran_ns: u64) -> BusPeerFact {
        BusPeerFact { pid: 1, state, wchan: wchan.to_owned(), ran_ns, ..BusPeerFact::default() }
    }

    fn after(readings: &[(u64, BusPeerFact)]) -> BusPeer {
        let mut peers = BusPeers::default();
        for (second, fact) in readings {
            peers.reading(MonoNs(second * SECOND_NS), vec![fact.clone()], 8);
        }
        peers.view().remove(0)
    }

    /// A state counts once two readings far enough apart found it.
    #[test]
    fn a_state_is_no_moment() {
        let stopped = |s| (s, fact('T', "do_signal_stop", 0));
        assert!(!after(&[stopped(1)]).is_stopped() && !after(&[stopped(1), stopped(2)]).is_stopped());
        assert!(after(&[stopped(1), stopped(2), stopped(3)]).is_stopped());
        let between = (2, fact('S', "ep_poll", 0));
        assert!(!after(&[stopped(1), between, stopped(3)]).is_stopped(), "it went on in between");
        for (state, wchan) in [('S', "do_freezer_trap"), ('S', "get_signal"), ('D', "__refrigerator")] {
            let peer = after(&[(1, fact(state, wchan, 0)), (3, fact(state, wchan, 0))]);
            assert!(peer.is_frozen() && !peer.hangs_in_kernel(), "{state} {wchan}");
        }
        // Some kernels do not say where a task waits.
        let frozen = |s| (s, BusPeerFact { frozen: true, ..fact('S', "", 0) });
        assert!(after(&[frozen(1), frozen(3)]).is_frozen());
        assert!(!after(&[(1, fact('S', "", 0)), frozen(3)]).is_frozen(), "since this moment only");
        let lock =
            after(&[(1, fact('D', "cgroup_kn_lock_live", 0)), (3, fact('D', "cgroup_kn_lock_live", 0))]);
        assert!(lock.hangs_in_kernel() && !lock.is_frozen() && !lock.is_stopped());
        for (wchan, is_idle) in [("ep_poll", true), ("do_epoll_wait", true), ("unix_stream_data_wait", false)]
        {
            let peer = after(&[(1, fact('S', wchan, 0)), (3, fact('S', wchan, 0))]);
            assert_eq!(peer.is_idle(), is_idle, "{wchan}");
        }
        assert!(!after(&[(1, fact('S', "ep_poll", 0))]).is_idle(), "for a moment only");
    }

    /// What is read at half of the readings, and at three: at one look of each is enough, at all looks of one is not.
    #[test]
    fn busy_with_what_is_read_often() {
        let after = |readings: &[[u32; 3]]| {
            let read =
                |[looks, mounts_changed, units]: [u32; 3]| SystemdWork { looks, mounts_changed, units };
            let fact = |of| BusPeerFact { work: read(of), ..fact('R', "", 0) };
            after(&(1..).zip(readings).map(|(second, &of)| (second, fact(of))).collect::<Vec<_>>())
                .busy_with()
        };
        let (table, units) = (Some(BusyWith::MountTable), Some(BusyWith::Units));
        assert_eq!(after(&[[40, 1, 0]; 3]), table);
        assert_eq!(after(&[[40, 0, 40]; 3]), units);
        assert_eq!(
            (after(&[[40, 9, 9]; 3]), after(&[[40, 9, 8]; 3])),
            (units, table),
            "in a reload its state is open all the time"
        );
        assert_eq!(after(&[[40, 1, 0]; 2]), None, "too few");
        let [seen, not] = [[40, 40, 0], [40, 0, 0]];
        assert_eq!(after(&[seen, not, seen, not, seen, not]), table);
        assert_eq!(after(&[seen, not, seen, not, seen, not, not]), None, "too seldom");
        assert_eq!(after(&[[0, 0, 0]; 9]), None, "it could not be looked at");
    }

    /// CPU time since the first reading; who is not waited for any more is forgotten.
    #[test]
    fn cpu_share() {
        let runs = |s: u64, ran| (s, fact('R', "", ran));
        let peer = after(&[runs(1, 500), runs(5, 3 * SECOND_NS + 500)]);
        assert_eq!((peer.ran_ns, peer.over_ns, peer.cpu_percent()), (3 * SECOND_NS, 4 * SECOND_NS, Some(75)));
        assert_eq!(after(&[runs(1, 0), runs(2, SECOND_NS)]).cpu_percent(), None, "too short to tell");
        assert_eq!(after(&[runs(1, 900), runs(4, 100)]).ran_ns, 0, "another process");
        let mut peers = BusPeers::default();
        peers.reading(MonoNs(1), vec![fact('R', "", 0)], 8);
        assert_eq!(peers.retold().len(), 1);
        peers.reading(MonoNs(2), Vec::new(), 8);
        assert!(peers.view().is_empty());
    }
}
