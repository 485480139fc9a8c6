//! Calls over D-Bus without an answer: how far each has come, and which of them nobody waits for any more.

use plegtrace_common::wire::bus::{BUS_JOB, BUS_UNSENT, BusKey, OpenBusCall};

use super::Live;
use crate::{
    census::{self, BusConnection, Queues},
    decode::bus_names,
    input::{BusFact, BusPeerFact, OpenBusFact, SYSTEMD},
    kernel::OpenBusCalls,
};

/// Of younger ones queues are not read: most are answered before.
const QUEUES_FROM_NS: u64 = 1_000_000_000;
/// So long go-systemd's callers wait for a job: runc and the kubelet for 30 s (opencontainers/runc, cgroups/systemd/common.go,
/// `startUnit` and `stopUnit`), then they go on. crun waits for as long as it takes.
const JOB_WAIT_NS: u64 = 31_000_000_000;
/// Processes that calls wait for: more are not looked at.
const MAX_PEERS: usize = 16;

impl Live {
    /// What the map had at `at_ns`. A call or job that is over is reported once, then forgotten.
    pub(super) fn open_bus_calls(&mut self, at_ns: u64, read: &OpenBusCalls) -> BusFact {
        let is_old = |call: &OpenBusCall| at_ns.saturating_sub(call.start_ns) >= QUEUES_FROM_NS;
        let asked = read.entries.iter().any(|(_, call)| is_old(call)) && self.queues.read();
        let mut open = Vec::with_capacity(read.entries.len());
        let mut peers: Vec<BusPeerFact> = Vec::new();
        for (key, call) in &read.entries {
            let connection = if asked && is_old(call) {
                self.queues.connection(call.socket)
            } else {
                BusConnection::default()
            };
            let mut fact = fact(key, call, &connection, census::exists(call.tgid));
            if asked && is_old(call) {
                fact.comm = Queues::comm(call.tgid);
                self.look_at_peers(&connection, &mut peers);
            }
            let is_given_up = || Queues::comm(call.tgid) != "crun";
            fact.over |= fact.job && at_ns.saturating_sub(call.start_ns) > JOB_WAIT_NS && is_given_up();
            if fact.over {
                self.kernel.forget_bus_call(key);
            }
            open.push(fact);
        }
        let readers = if asked { self.queues.readers() } else { Vec::new() };
        BusFact { at_ns, open, readers, peers, complete: read.complete }
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

fn fact(key: &BusKey, call: &OpenBusCall, connection: &BusConnection, exists: bool) -> OpenBusFact {
    let names = bus_names(&call.texts).unwrap_or_default();
    let owner = if names.destination == SYSTEMD { connection.owner } else { 0 };
    OpenBusFact {
        socket: call.socket,
        serial: key.serial,
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
        comm: String::new(),
        over: !exists || connection.gone,
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
