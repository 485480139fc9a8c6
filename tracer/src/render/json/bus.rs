//! Calls over D-Bus.

use serde::Serialize;

use super::{calls::trimmed, doc::At, facts::component};
use crate::{
    correlate::{BusPeer, BusRow, BusWait, OpenBusCall, Snapshot},
    decode::{BusKind, MonoNs},
    input::SystemdWork,
    stuck::{BusParty, BusStall},
};

#[derive(Debug, Serialize)]
pub(super) struct BusDoc<'a> {
    read_at: At,
    complete: bool,
    methods: Vec<MethodDoc<'a>>,
    open: Vec<OpenDoc<'a>>,
    readers: Vec<ReaderDoc>,
    peers: Vec<PeerDoc<'a>>,
    systemd_serials: Option<SerialsDoc>,
}

#[derive(Debug, Serialize)]
struct SerialsDoc {
    last: u32,
    left: u32,
    last_for_s: Option<u64>,
}

#[derive(Debug, Serialize)]
struct MethodDoc<'a> {
    interface: &'a str,
    member: &'a str,
    destination: &'a str,
    connection: bool,
    refused: bool,
    job: bool,
    count: u64,
    errors: u64,
    last_error: Option<&'a str>,
    unanswered: u64,
    open: u64,
    sum_ns: u64,
    max_ns: u64,
    p50_ns: Option<u64>,
    p99_ns: Option<u64>,
    log2_ns: &'a [u64],
}

#[derive(Debug, Serialize)]
struct OpenDoc<'a> {
    interface: &'a str,
    member: &'a str,
    destination: &'a str,
    start_at: At,
    age_ns: u64,
    at_least: bool,
    pid: u32,
    comm: &'a str,
    bus_pid: Option<u32>,
    owner_pid: Option<u32>,
    no_owner: bool,
    socket: u64,
    serial: u32,
    job: bool,
    waits_for: &'static str,
    unread_by_bus: Option<u32>,
    unread: Option<u32>,
}

#[derive(Debug, Serialize)]
struct PeerDoc<'a> {
    component: &'static str,
    pid: u32,
    comm: &'a str,
    state: char,
    wchan: &'a str,
    still_ns: u64,
    ran_ns: u64,
    over_ns: u64,
    unread: Option<u32>,
    work: Option<WorkDoc>,
}

#[derive(Debug, Serialize)]
struct WorkDoc {
    looks: u32,
    mounts_changed: u32,
    units: u32,
}

#[derive(Debug, Serialize)]
struct ReaderDoc {
    pid: Option<u32>,
    socket: u64,
    unread: u32,
}

impl<'a> BusDoc<'a> {
    /// `None` when they are not followed.
    pub(super) fn new(snapshot: &'a Snapshot) -> Option<Self> {
        let bus = &snapshot.bus;
        let reader = |pid: u32| (pid != 0).then_some(pid);
        Some(Self {
            read_at: At::new(snapshot, bus.read_at?),
            complete: bus.complete,
            methods: bus.rows.iter().map(MethodDoc::new).collect(),
            open: bus.open.iter().map(|open| OpenDoc::new(open, snapshot)).collect(),
            readers: bus
                .readers
                .iter()
                .map(|it| ReaderDoc { pid: reader(it.pid), socket: it.socket, unread: it.unread })
                .collect(),
            peers: bus.peers.iter().map(PeerDoc::new).collect(),
            systemd_serials: bus.systemd_serials.map(|seen| SerialsDoc {
                last: seen.last.0,
                left: seen.left(),
                last_for_s: seen.last_for_s(),
            }),
        })
    }
}

impl<'a> PeerDoc<'a> {
    fn new(peer: &'a BusPeer) -> Self {
        let fact = &peer.fact;
        Self {
            component: component(peer.component()),
            pid: fact.pid,
            comm: &fact.comm,
            state: fact.state,
            wchan: &fact.wchan,
            still_ns: peer.still_ns,
            ran_ns: peer.ran_ns,
            over_ns: peer.over_ns,
            unread: fact.unread,
            work: WorkDoc::new(peer.work),
        }
    }
}

impl WorkDoc {
    fn new(work: SystemdWork) -> Option<Self> {
        let SystemdWork { looks, mounts_changed, units } = work;
        (looks > 0).then_some(Self { looks, mounts_changed, units })
    }
}

impl<'a> MethodDoc<'a> {
    fn new(row: &'a BusRow) -> Self {
        let latency = &row.latency;
        Self {
            interface: &row.names.interface,
            member: &row.names.member,
            destination: &row.names.destination,
            connection: row.kind == BusKind::Connection,
            refused: row.kind == BusKind::Refused,
            job: row.kind == BusKind::Job,
            count: latency.count(),
            errors: row.errors,
            last_error: row.last_error.as_deref(),
            unanswered: row.unanswered,
            open: row.open,
            sum_ns: latency.sum_ns(),
            max_ns: latency.max_ns(),
            p50_ns: latency.quantile_ns(0.5),
            p99_ns: latency.quantile_ns(0.99),
            log2_ns: trimmed(latency.buckets()),
        }
    }
}

impl<'a> OpenDoc<'a> {
    fn new(open: &'a OpenBusCall, snapshot: &Snapshot) -> Self {
        let fact = &open.fact;
        Self {
            interface: &fact.interface,
            member: &fact.member,
            destination: &fact.destination,
            start_at: At::new(snapshot, MonoNs(fact.start_ns)),
            age_ns: open.age_ns,
            at_least: fact.before,
            pid: fact.asker,
            comm: &fact.comm,
            owner_pid: (fact.owner != 0).then_some(fact.owner),
            no_owner: fact.no_owner,
            bus_pid: (fact.bus != 0).then_some(fact.bus),
            socket: fact.socket,
            serial: fact.serial,
            job: fact.job,
            waits_for: waits_for(open.waits_for()),
            unread_by_bus: fact.unread_by_bus,
            unread: fact.unread,
        }
    }
}

/// The oldest of the calls over D-Bus that wait for the same.
#[derive(Debug, Serialize)]
pub(super) struct BusStallDoc<'a> {
    party: &'static str,
    process: Option<u32>,
    calls: u32,
    caller: u32,
    interface: &'a str,
    member: &'a str,
    destination: &'a str,
    waits_for: &'static str,
}

impl<'a> BusStallDoc<'a> {
    pub(super) fn new(stall: &'a BusStall) -> Self {
        let fact = &stall.call.fact;
        Self {
            party: match stall.party {
                BusParty::Daemon => "bus",
                BusParty::Systemd => "systemd",
                BusParty::Other => "other",
            },
            process: (stall.pid != 0).then_some(stall.pid),
            calls: stall.calls,
            caller: fact.asker,
            interface: &fact.interface,
            member: &fact.member,
            destination: &fact.destination,
            waits_for: waits_for(stall.call.waits_for()),
        }
    }
}

fn waits_for(whom: BusWait) -> &'static str {
    match whom {
        BusWait::Accept => "accept",
        BusWait::Room => "room",
        BusWait::Bus(_) => "bus",
        BusWait::Caller(_) => "caller",
        BusWait::Answer => "answer",
        BusWait::Job => "job",
        BusWait::Unknown => "unknown",
    }
}
