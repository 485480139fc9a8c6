//! Calls over D-Bus in words.

use super::{
    cut,
    human::{count, duration},
};
use crate::{
    correlate::{Bus, BusPeer, BusWait, OpenBusCall},
    decode::{BusKind, BusNames},
    input::{Component, OpenBusFact, SYSTEMD, SystemdWork},
    stuck::{BusParty, BusStall},
};

/// Longest name of a process: the kernel's have 15 bytes.
const COMM: usize = 16;
/// Longest name on the bus in a sentence.
const NAME: usize = 60;

/// `Manager/StartTransientUnit`.
#[must_use]
pub fn bus_method(names: &BusNames, kind: BusKind) -> String {
    let interface = names.interface.rsplit('.').next().unwrap_or_default();
    match (kind, interface, names.member.as_str()) {
        (BusKind::Connection, ..) => "connect (AUTH)".to_owned(),
        (BusKind::Refused, ..) => "connect".to_owned(),
        (BusKind::Job, _, "") => "job".to_owned(),
        (BusKind::Job, _, member) => format!("job of {member}"),
        (_, _, "") => "name not read".to_owned(),
        (_, "", member) => member.to_owned(),
        (_, interface, member) => format!("{interface}/{member}"),
    }
}

/// The names of an open call.
#[must_use]
pub fn bus_names(open: &OpenBusFact) -> BusNames {
    BusNames {
        interface: open.interface.clone(),
        member: open.member.clone(),
        destination: open.destination.clone(),
    }
}

/// `runc 4711`.
#[must_use]
pub fn bus_caller(fact: &OpenBusFact) -> String {
    let name = if fact.comm.is_empty() { "process".to_owned() } else { cut(&fact.comm, COMM) };
    format!("{name} {}", fact.asker)
}

/// What a call asks for, inside of a sentence.
fn call(call: &OpenBusCall) -> String {
    if call.kind() == BusKind::Connection {
        return "a new connection".to_owned();
    }
    let method = cut(&bus_method(&bus_names(&call.fact), BusKind::Call), NAME);
    if call.fact.member.is_empty() { "a call".to_owned() } else { method }
}

/// `dbus-daemon (pid 812)`.
fn process(pid: u32, peer: Option<&BusPeer>, otherwise: &str) -> String {
    let name = match peer {
        Some(peer) if peer.component() == Component::Systemd => "systemd".to_owned(),
        Some(peer) if !peer.fact.comm.is_empty() => cut(&peer.fact.comm, COMM),
        _ => otherwise.to_owned(),
    };
    if pid == 0 { name } else { format!("{name} (pid {pid})") }
}

/// What keeps a process from working: `is stopped by a signal`.
fn trouble(peer: &BusPeer) -> Option<String> {
    let wchan = cut(&peer.fact.wchan, COMM * 2);
    Some(match peer.cpu_percent() {
        _ if peer.is_stopped() => "is stopped by a signal or a debugger".to_owned(),
        _ if peer.is_frozen() => "is in a frozen cgroup".to_owned(),
        _ if peer.hangs_in_kernel() && wchan.is_empty() => "hangs in the kernel (state D)".to_owned(),
        _ if peer.hangs_in_kernel() => format!("hangs in the kernel (state D, in {wchan})"),
        Some(percent @ 50..) => format!("is on a CPU {} % of the time", percent.min(100)),
        _ => return None,
    })
}

/// Who does not do what: `systemd (pid 1) has read everything from the bus, and has not answered Manager/StopUnit`.
#[must_use]
pub fn bus_stall(stall: &BusStall) -> String {
    format!("{} {}", party_with_pid(stall), bus_fault(stall))
}

fn party_with_pid(stall: &BusStall) -> String {
    match stall.party {
        BusParty::Daemon => process(stall.pid, stall.peer.as_ref(), "the bus daemon"),
        BusParty::Systemd if stall.is_absent() => "systemd".to_owned(),
        BusParty::Systemd if stall.pid == 0 => format!("{SYSTEMD} (process not known)"),
        BusParty::Systemd => process(stall.pid, stall.peer.as_ref(), "systemd"),
        BusParty::Other => destination(&stall.call.fact),
    }
}

/// Who does not do it, without its process: `systemd`.
#[must_use]
pub fn bus_party(stall: &BusStall) -> String {
    match stall.party {
        BusParty::Daemon => process(0, stall.peer.as_ref(), "the bus daemon"),
        BusParty::Systemd => "systemd".to_owned(),
        BusParty::Other => destination(&stall.call.fact),
    }
}

/// What is not done, and why: `is in a frozen cgroup: it has not answered Manager/StopUnit`.
#[must_use]
pub fn bus_fault(stall: &BusStall) -> String {
    let what = call(&stall.call);
    let unread = stall.peer.as_ref().and_then(|peer| peer.fact.unread);
    let does_not = match (stall.call.waits_for(), stall.party, unread) {
        _ if stall.is_absent() => format!("is not on the bus, and nobody has answered {what}"),
        (BusWait::Accept, ..) => "has not accepted a new connection".to_owned(),
        (BusWait::Room, ..) => format!("does not read: the socket is full, and {what} cannot be sent"),
        (BusWait::Bus(bytes), ..) => {
            format!("has not read {what} ({} bytes wait in the socket)", count(bytes.into()))
        }
        (BusWait::Job, BusParty::Daemon, _) => {
            format!("has not delivered that the job of {what} is done")
        }
        (BusWait::Job, ..) => format!("has answered {what} with a job, and has not reported it done"),
        (BusWait::Answer, BusParty::Daemon, _) if stall.call.kind() == BusKind::Call => {
            format!("has read {what}, and no answer has come")
        }
        (_, BusParty::Systemd, Some(bytes)) if bytes > 0 => {
            format!("has not read {} bytes from the bus, and {what} has no answer", count(bytes.into()))
        }
        (_, BusParty::Systemd, Some(_)) => {
            format!("has read everything from the bus, and has not answered {what}")
        }
        _ => format!("has not answered {what}"),
    };
    match stall.peer.as_ref().and_then(trouble) {
        Some(trouble) => format!("{trouble}: it {does_not}"),
        None => does_not,
    }
}

/// What a process that is waited for is doing: `systemd (pid 1): state S in ep_poll, 0 % of a CPU over 25.0 s`.
#[must_use]
pub fn bus_peer(peer: &BusPeer) -> String {
    let fact = &peer.fact;
    let wchan = cut(&fact.wchan, COMM * 2);
    let place = if wchan.is_empty() { String::new() } else { format!(" in {wchan}") };
    let state = cut(&fact.state.to_string(), 1);
    let mut text = format!("{}: state {state}{place}", process(fact.pid, Some(peer), "process"));
    if let Some(percent) = peer.cpu_percent() {
        text.push_str(&format!(", {percent} % of a CPU over {}", duration(peer.over_ns)));
    }
    if let Some(unread) = fact.unread {
        text.push_str(&format!(", {} bytes from the bus not read", count(unread.into())));
    }
    text
}

/// What gives systemd work: `in 31 of 84 samples the mount table had changed again, in 2 systemd (pid 1) was reading its units`.
#[must_use]
pub fn systemd_work(peer: &BusPeer) -> Option<String> {
    let SystemdWork { looks, mounts_changed, units } = peer.work;
    let [looks, mounts_changed, units] = [looks, mounts_changed, units].map(|number| count(number.into()));
    let name = process(peer.fact.pid, Some(peer), "systemd");
    (peer.work.looks > 0).then(|| {
        format!(
            "in {mounts_changed} of {looks} samples the mount table had changed again, in {units} {name} was reading its units"
        )
    })
}

/// Who does not do what, as far as the queues of the connection say.
#[must_use]
pub fn bus_waits_for(call: &OpenBusCall, bus: &Bus) -> String {
    let fact = &call.fact;
    let process = process(fact.bus, bus.peer(fact.bus), "the bus");
    match call.waits_for() {
        BusWait::Accept => format!("{process} has not accepted the connection"),
        BusWait::Room => format!("{process} does not read: the socket is full, the call is not sent"),
        BusWait::Bus(unread) => format!("{process} has not read {} bytes", count(unread.into())),
        BusWait::Caller(unread) => {
            format!("{} itself: it has not read {} bytes", bus_caller(fact), count(unread.into()))
        }
        BusWait::Job => "systemd, which has not reported the job done".to_owned(),
        BusWait::Answer if call.kind() == BusKind::Connection => {
            format!("{process} has read it, and has not answered")
        }
        BusWait::Answer => owner(fact, bus),
        BusWait::Unknown => destination(fact),
    }
}

/// The bus has read the call: who is to answer, or clients that do not read, one of which may be who is to.
fn owner(fact: &OpenBusFact, bus: &Bus) -> String {
    if let Some(peer) = bus.peer(fact.owner) {
        let name = process(fact.owner, Some(peer), "systemd");
        return match peer.fact.unread {
            Some(unread) if unread > 0 => {
                format!("{name} has not read {} bytes from the bus", count(unread.into()))
            }
            _ => format!("{name} has read it, and has not answered"),
        };
    }
    if fact.no_owner {
        return format!("{}, which is not on the bus; the bus has read it", destination(fact));
    }
    let name = destination(fact);
    let late: Vec<String> = bus
        .readers
        .iter()
        .filter(|reader| reader.pid != 0 && reader.pid != fact.asker)
        .map(|reader| format!("pid {} has not read {} bytes", reader.pid, count(reader.unread.into())))
        .collect();
    if late.is_empty() {
        return format!("{name}, to which the bus has to pass it; the bus has read it");
    }
    format!("{name}; of the clients of the bus, {}", late.join(", "))
}

fn destination(fact: &OpenBusFact) -> String {
    if fact.destination.is_empty() { "who is to answer".to_owned() } else { cut(&fact.destination, NAME) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::{BusPeerFact, BusReaderFact};

    fn call(accepted: bool, unsent: bool, unread_by_bus: u32, unread: u32) -> OpenBusCall {
        let fact = OpenBusFact {
            serial: 3,
            asker: 10,
            comm: "runc".to_owned(),
            destination: "org.freedesktop.systemd1".to_owned(),
            accepted: Some(accepted),
            unsent,
            unread_by_bus: Some(unread_by_bus),
            unread: Some(unread),
            bus: 20,
            ..OpenBusFact::default()
        };
        OpenBusCall { fact, age_ns: 1 }
    }

    fn peer(state: char, wchan: &str, unread: Option<u32>) -> BusPeer {
        let (comm, wchan) = ("systemd".to_owned(), wchan.to_owned());
        let fact =
            BusPeerFact { pid: 1, is_init: true, comm, state, wchan, unread, ..BusPeerFact::default() };
        BusPeer { fact, still_ns: 4_000_000_000, over_ns: 4_000_000_000, ..BusPeer::default() }
    }

    /// Who does not answer, what keeps it from that, and what it is doing.
    #[test]
    fn stalls() {
        let stall = |party, pid, peer: Option<BusPeer>, call: OpenBusCall| {
            bus_stall(&BusStall { party, pid, peer, daemon: None, call, calls: 1 })
        };
        let of = |peer| stall(BusParty::Systemd, 1, Some(peer), call(true, false, 0, 0));
        let silent = "systemd (pid 1) has read everything from the bus, and has not answered a call";
        assert_eq!(of(peer('S', "ep_poll", Some(0))), silent);
        let frozen = "systemd (pid 1) is in a frozen cgroup: it has not read 99 bytes from the bus, and a call has no \
            answer";
        assert_eq!(of(peer('S', "do_freezer_trap", Some(99))), frozen);
        assert!(
            of(peer('D', "mutex", Some(0)))
                .starts_with("systemd (pid 1) hangs in the kernel (state D, in mutex)")
        );
        let busy = BusPeer { ran_ns: 3_900_000_000, ..peer('R', "", Some(0)) };
        assert!(of(busy.clone()).starts_with("systemd (pid 1) is on a CPU 97 % of the time: it has read"));
        assert_eq!(
            bus_peer(&busy),
            "systemd (pid 1): state R, 97 % of a CPU over 4.0 s, 0 bytes from the bus not read"
        );
        let unknown = stall(BusParty::Systemd, 0, None, call(true, false, 0, 0));
        assert_eq!(unknown, "org.freedesktop.systemd1 (process not known) has not answered a call");
        let daemon = |call| stall(BusParty::Daemon, 20, None, call);
        assert_eq!(
            daemon(call(true, false, 96, 0)),
            "the bus daemon (pid 20) has not read a call (96 bytes wait in the socket)"
        );
        let mut job = call(true, false, 0, 0);
        (job.fact.job, job.fact.member) = (true, "StopUnit".to_owned());
        let not_done = stall(BusParty::Systemd, 1, Some(peer('S', "ep_poll", Some(0))), job.clone());
        assert_eq!(
            not_done,
            "systemd (pid 1) has answered StopUnit with a job, and has not reported it done"
        );
        assert!(daemon(job).ends_with("has not delivered that the job of StopUnit is done"));
        assert!(daemon(call(false, false, 0, 0)).ends_with("has not accepted a new connection"));
        assert!(daemon(call(true, true, 9, 0)).ends_with("the socket is full, and a call cannot be sent"));
    }

    /// The process that does not do its part is named, and only when it is known.
    #[test]
    fn who_does_not_answer() {
        let mut bus = Bus::default();
        let say = |call: &OpenBusCall, bus: &Bus| bus_waits_for(call, bus);
        assert_eq!(say(&call(false, false, 0, 0), &bus), "the bus (pid 20) has not accepted the connection");
        assert!(
            say(&call(true, true, 5, 0), &bus)
                .ends_with("does not read: the socket is full, the call is not sent")
        );
        assert_eq!(say(&call(true, false, 5, 0), &bus), "the bus (pid 20) has not read 5 bytes");
        assert_eq!(say(&call(true, false, 0, 7), &bus), "runc 10 itself: it has not read 7 bytes");
        let answer = call(true, false, 0, 0);
        assert_eq!(
            say(&answer, &bus),
            "org.freedesktop.systemd1, to which the bus has to pass it; the bus has read it"
        );
        let readers = [(10, 9), (0, 8), (30, 7)];
        bus.readers = readers.map(|(pid, unread)| BusReaderFact { socket: 1, pid, unread }).to_vec();
        let reader = "org.freedesktop.systemd1; of the clients of the bus, pid 30 has not read 7 bytes";
        assert_eq!(say(&answer, &bus), reader);
        let mut asked = answer;
        asked.fact.owner = 1;
        bus.peers = vec![peer('S', "ep_poll", Some(0))];
        assert_eq!(say(&asked, &bus), "systemd (pid 1) has read it, and has not answered");
        bus.peers = vec![peer('R', "", Some(4608))];
        assert_eq!(say(&asked, &bus), "systemd (pid 1) has not read 4,608 bytes from the bus");
    }

    /// A method by the last part of its interface.
    #[test]
    fn methods() {
        let names = |interface: &str, member: &str| BusNames {
            interface: interface.to_owned(),
            member: member.to_owned(),
            destination: String::new(),
        };
        assert_eq!(
            bus_method(&names("org.freedesktop.systemd1.Manager", "StopUnit"), BusKind::Call),
            "Manager/StopUnit"
        );
        let job = bus_method(&names("org.freedesktop.systemd1.Manager", "StopUnit"), BusKind::Job);
        assert_eq!(
            (job.as_str(), bus_method(&names("", ""), BusKind::Job).as_str()),
            ("job of StopUnit", "job")
        );
        assert_eq!(bus_method(&names("", "Hello"), BusKind::Call), "Hello");
        assert_eq!(bus_method(&names("", ""), BusKind::Call), "name not read");
        assert_eq!(bus_method(&names("", ""), BusKind::Connection), "connect (AUTH)");
    }
}
