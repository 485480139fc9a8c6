//! Calls over D-Bus in words.

use crate::{
    correlate::{Bus, BusWait, OpenBusCall},
    decode::BusNames,
    input::OpenBusFact,
};

/// `Manager/StartTransientUnit`.
#[must_use]
pub fn bus_method(names: &BusNames, is_connection: bool) -> String {
    let interface = names.interface.rsplit('.').next().unwrap_or_default();
    match (is_connection, interface, names.member.as_str()) {
        (true, ..) => "connect (AUTH)".to_owned(),
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

/// Who does not do what, as far as the queues of the connection say.
#[must_use]
pub fn bus_waits_for(call: &OpenBusCall, bus: &Bus) -> String {
    let fact = &call.fact;
    let process = match fact.bus {
        0 => "the bus".to_owned(),
        pid => format!("the bus (pid {pid})"),
    };
    match call.waits_for() {
        BusWait::Accept => format!("{process} has not accepted the connection"),
        BusWait::Room => format!("{process}: the socket is full, the call is not sent"),
        BusWait::Bus(unread) => format!("{process} has not read {unread} bytes"),
        BusWait::Caller(unread) => format!("its caller, which has not read {unread} bytes"),
        BusWait::Answer if call.is_connection() => format!("{process} has read, and says nothing"),
        BusWait::Answer => owner(fact, bus),
        BusWait::Unknown => destination(fact).to_owned(),
    }
}

/// The bus has read the call; clients that do not read may be who it is for.
fn owner(fact: &OpenBusFact, bus: &Bus) -> String {
    let name = destination(fact);
    let late: Vec<String> = bus
        .readers
        .iter()
        .filter(|reader| reader.pid != 0 && reader.pid != fact.asker)
        .map(|reader| format!("pid {} has not read {} bytes", reader.pid, reader.unread))
        .collect();
    if late.is_empty() {
        return format!("{name}: the bus has read the call");
    }
    format!("{name}: {}", late.join(", "))
}

fn destination(fact: &OpenBusFact) -> &str {
    if fact.destination.is_empty() { "who is to answer" } else { &fact.destination }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::BusReaderFact;

    fn call(accepted: bool, unsent: bool, unread_by_bus: u32, unread: u32) -> OpenBusCall {
        let fact = OpenBusFact {
            serial: 3,
            asker: 10,
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

    /// The process that does not do its part is named, and only when it is known.
    #[test]
    fn who_does_not_answer() {
        let mut bus = Bus::default();
        let say = |call: &OpenBusCall, bus: &Bus| bus_waits_for(call, bus);
        assert_eq!(say(&call(false, false, 0, 0), &bus), "the bus (pid 20) has not accepted the connection");
        assert!(say(&call(true, true, 5, 0), &bus).ends_with("the socket is full, the call is not sent"));
        assert_eq!(say(&call(true, false, 5, 0), &bus), "the bus (pid 20) has not read 5 bytes");
        assert_eq!(say(&call(true, false, 0, 7), &bus), "its caller, which has not read 7 bytes");
        let answer = call(true, false, 0, 0);
        assert_eq!(say(&answer, &bus), "org.freedesktop.systemd1: the bus has read the call");
        let readers = [(10, 9), (0, 8), (30, 7)];
        bus.readers = readers.map(|(pid, unread)| BusReaderFact { socket: 1, pid, unread }).to_vec();
        assert_eq!(say(&answer, &bus), "org.freedesktop.systemd1: pid 30 has not read 7 bytes");
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
            bus_method(&names("org.freedesktop.systemd1.Manager", "StopUnit"), false),
            "Manager/StopUnit"
        );
        assert_eq!(bus_method(&names("", "Hello"), false), "Hello");
        assert_eq!(bus_method(&names("", ""), false), "name not read");
        assert_eq!(bus_method(&names("", ""), true), "connect (AUTH)");
    }
}
