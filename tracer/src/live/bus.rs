//! Calls over D-Bus without an answer: how far each has come, and which of them nobody waits for any more.

use plegtrace_common::wire::bus::{BUS_JOB, BUS_UNSENT, BusKey, OpenBusCall};

use super::{
    Live,
    bus_waits::{BusWait, BusWaits},
};
use crate::{
    census::{self, BusConnection, Queues},
    decode::{BusKind, bus_names},
    input::{BusFact, BusPeerFact, Component, GoroutinesFact, OpenBusFact, SYSTEMD},
    kernel::OpenBusCalls,
};

/// Of younger ones queues are not read: most are answered before.
const QUEUES_FROM_NS: u64 = 1_000_000_000;
/// So long go-systemd's callers wait for a job: runc and the kubelet for 30 s (opencontainers/runc, cgroups/systemd/common.go,
/// `startUnit` and `stopUnit`), then they go on. crun waits for as long as it takes.
const JOB_WAIT_NS: u64 = 31_000_000_000;
/// Processes that calls wait for: more are not looked at.
const MAX_PEERS: usize = 16;

/// Calls over D-Bus without an answer: those of the kernel's map, those that goroutines wait for, and the queues of both.
#[derive(Debug, Default)]
pub(crate) struct OpenBus {
    /// Who has not read what, on buses.
    queues: Queues,
    waits: BusWaits,
}

impl OpenBus {
    /// The goroutines of a process were read. Of a daemon, which asks again and again, they tell only where new calls are seen.
    pub(crate) fn read_goroutines(&mut self, look: &GoroutinesFact, follows_wire: bool) {
        if follows_wire || look.component == Component::Runc {
            self.waits.read(look);
        }
    }

    /// What the map had at `at_ns`, in its order, and then what goroutines wait for besides; `None` when there is no such map and nobody
    /// waits.
    pub(crate) fn fact(&mut self, at_ns: u64, read: Option<&OpenBusCalls>) -> Option<BusFact> {
        let entries = read.map_or(&[][..], |read| &read.entries);
        // Who asks anew does not wait as before, or what it asks now waits for the same.
        let followed = |wait: &BusWait| entries.iter().any(|(_, call)| call.tgid == wait.pid);
        let told = self.waits.any();
        let waits = self.waits.still(|wait| followed(wait) || !census::exists(wait.pid));
        if read.is_none() && !told {
            return None;
        }
        let is_old = |call: &OpenBusCall| at_ns.saturating_sub(call.start_ns) >= QUEUES_FROM_NS;
        let any_old = entries.iter().any(|(_, call)| is_old(call));
        let asked = (any_old || !waits.is_empty()) && self.queues.read();
        let mut peers: Vec<BusPeerFact> = Vec::new();
        let of_map = |(key, call): &(_, _)| self.of_map(at_ns, key, call, asked && is_old(call), &mut peers);
        let mut open: Vec<OpenBusFact> = entries.iter().map(of_map).collect();
        for wait in waits.iter().filter(|_| asked) {
            let connects = wait.kind == BusKind::Connection;
            let Some(socket) = self.queues.socket_of(wait.pid, connects) else { continue };
            let connection = self.queues.connection(socket);
            self.look_at_peers(&connection, &mut peers);
            open.push(fact_before(wait, socket, &connection));
        }
        let readers = if asked { self.queues.readers() } else { Vec::new() };
        let complete = read.is_some_and(|read| read.complete);
        Some(BusFact { at_ns, open, readers, peers, complete })
    }

    /// One of the map; `asked`: with the queues of its connection.
    fn of_map(
        &mut self,
        at_ns: u64,
        key: &BusKey,
        call: &OpenBusCall,
        asked: bool,
        peers: &mut Vec<BusPeerFact>,
    ) -> OpenBusFact {
        let connection = if asked { self.queues.connection(call.socket) } else { BusConnection::default() };
        let mut fact = fact(key, call, &connection, census::exists(call.tgid));
        if asked {
            fact.comm = Queues::comm(call.tgid);
            self.look_at_peers(&connection, peers);
        }
        let is_given_up = || Queues::comm(call.tgid) != "crun";
        fact.over |= fact.job && at_ns.saturating_sub(call.start_ns) > JOB_WAIT_NS && is_given_up();
        fact
    }

    /// Each process is looked at once per reading.
    fn look_at_peers(&self, connection: &BusConnection, peers: &mut Vec<BusPeerFact>) {
        let known = |pid: u32| pid == 0 || peers.iter().any(|peer| peer.pid == pid);
        if peers.len() >= MAX_PEERS || known(connection.bus) && known(connection.owner) {
            return;
        }
        let found = self.queues.peers(connection);
        let new = found.into_iter().filter(|found| peers.iter().all(|peer| peer.pid != found.pid));
        let new: Vec<BusPeerFact> = new.collect();
        peers.extend(new);
    }
}

impl Live {
    /// The goroutines of a process were read.
    pub(crate) fn read_goroutines(&mut self, look: &GoroutinesFact) {
        self.bus.read_goroutines(look, self.follows_wire);
    }

    /// As [`OpenBus::fact`]. A call or job that is over is reported once, then forgotten.
    pub(super) fn open_bus_calls(&mut self, at_ns: u64, read: Option<&OpenBusCalls>) -> Option<BusFact> {
        let fact = self.bus.fact(at_ns, read)?;
        let entries = read.map_or(&[][..], |read| &read.entries);
        for ((key, _), _) in entries.iter().zip(&fact.open).filter(|(_, open)| open.over) {
            self.kernel.forget_bus_call(key);
        }
        Some(fact)
    }
}

fn fact(key: &BusKey, call: &OpenBusCall, connection: &BusConnection, exists: bool) -> OpenBusFact {
    let names = bus_names(&call.texts).unwrap_or_default();
    let names_systemd = names.destination == SYSTEMD;
    let owner = if names_systemd { connection.owner } else { 0 };
    OpenBusFact {
        socket: call.socket,
        serial: key.serial,
        before: false,
        job: call.flags & BUS_JOB != 0,
        start_ns: call.start_ns,
        asker: call.tgid,
        interface: names.interface,
        member: names.member,
        destination: names.destination,
        unsent: call.flags & BUS_UNSENT != 0,
        accepted: connection.accepted,
        unread_by_bus: connection.unread_by_bus,
        unread: connection.unread,
        bus: connection.bus,
        owner,
        no_owner: names_systemd && connection.no_owner,
        comm: String::new(),
        over: !exists || connection.gone,
    }
}

/// A call that a goroutine waits for, and no probe has seen begin.
fn fact_before(wait: &BusWait, socket: u64, connection: &BusConnection) -> OpenBusFact {
    let names = wait.names.clone();
    let names_systemd = names.destination == SYSTEMD;
    let owner = if names_systemd { connection.owner } else { 0 };
    OpenBusFact {
        socket,
        serial: if wait.kind == BusKind::Connection { 0 } else { u32::MAX },
        before: true,
        job: wait.kind == BusKind::Job,
        start_ns: wait.since_ns,
        asker: wait.pid,
        interface: names.interface,
        member: names.member,
        destination: names.destination,
        unsent: false,
        accepted: connection.accepted,
        unread_by_bus: connection.unread_by_bus,
        unread: connection.unread,
        bus: connection.bus,
        owner,
        no_owner: names_systemd && connection.no_owner,
        comm: Queues::comm(wait.pid),
        over: false,
    }
}

#[cfg(test)]
mod tests {
    use plegtrace_common::wire::bus::{TEXT, TEXTS};

    use super::*;

    /// A call is over with its process or its connection; what is known of the connection is reported.
    #[test]
    fn over_with_its_process_or_connection() {
        let key = BusKey { sock: 1, socket: 3, serial: 5, reserved: 0 };
        let mut texts = [0; TEXT * TEXTS];
        texts[TEXT..TEXT + 5].copy_from_slice(b"Hello");
        let call =
            OpenBusCall { start_ns: 9, socket: 3, tgid: 10, tid: 11, bytes: 0, flags: BUS_UNSENT, texts };
        let open = BusConnection { unread_by_bus: Some(7), bus: 20, ..BusConnection::default() };
        let told = fact(&key, &call, &open, true);
        assert_eq!((told.socket, told.serial, told.unsent, told.over), (3, 5, true, false));
        assert_eq!((told.member.as_str(), told.unread_by_bus, told.bus), ("Hello", Some(7), 20));
        assert!(fact(&key, &call, &open, false).over);
        let job = fact(&BusKey::job(10, 8), &OpenBusCall { flags: BUS_JOB, ..call }, &open, true);
        assert_eq!((job.socket, job.serial, job.job, job.unsent), (3, 8, true, false));
        assert!(fact(&key, &call, &BusConnection { gone: true, ..open }, true).over);
    }
}
