//! Calls of the real runc over a real D-Bus, read from its sockets: exact by the word of the bus's own monitor, and whoever
//! does not answer is named.

mod jobs;
mod kit;
mod numbers;
mod played;
mod silence;
mod stalls;
mod verdicts;

use std::collections::BTreeMap;
use std::os::fd::AsRawFd as _;
use std::sync::atomic::Ordering;

pub(super) use jobs::each_job_is_done_once;
use kit::{Bus, LIMIT, Monitor, Systemd, deaf_systemd, runc, said};
use plegtrace::correlate::{BusWait, OpenBusCall, Snapshot};
use plegtrace::decode::BusKind;
use plegtrace::input::BusReaderFact;
use plegtrace_lab::{Containerd, Knobs, fault, host, process};
use plegtrace_tests::recordings::text_of;
use plegtrace_tests::watching::Watching;

fn start() -> Containerd {
    host::require_root().unwrap();
    Containerd::start(&Knobs { pods: 0, ..Knobs::default() }).unwrap()
}

fn watch() -> Watching {
    host::ensure(&["dbus"]).unwrap();
    // No process is named, so every runc of the node is followed, also those that we start ourselves.
    let watching = Watching::start(&["-d", "600", "--sources", "wire"]).unwrap();
    watching.wait_until_armed().unwrap();
    watching
}

fn assert_nothing_is_lost(snapshot: &Snapshot) {
    let lost: Vec<_> = snapshot.real_losses().collect();
    assert!(lost.is_empty(), "{lost:?}");
    assert!(snapshot.refused.iter().all(|refused| refused.source != "wire"), "{:?}", snapshot.refused);
}

#[test]
fn calls_of_runc_are_exact() {
    calls_are_exact(&start());
}

/// Every call of runc is counted once, by the name that it has.
pub(super) fn calls_are_exact(containerd: &Containerd) {
    const RUNS: u64 = 3;
    let watching = watch();
    let bus = Bus::start(containerd, "exact").unwrap();
    let systemd = Systemd::start(&bus).unwrap();
    let monitor = Monitor::start(containerd, &bus).unwrap();
    for n in 0..RUNS {
        let name = format!("r{n}");
        let mut child = runc(containerd, &bus.address(), &name).unwrap();
        let status = process::wait(&mut child, LIMIT).unwrap();
        assert!(status.success(), "{status}: {}", said(containerd, &name));
    }
    let count = |calls: &BTreeMap<(String, String), u64>, name: &str| {
        calls.iter().filter(|((_, member), _)| member == name).map(|(_, count)| count).sum::<u64>()
    };
    let monitored = process::wait_for("all calls at the monitor", LIMIT, || {
        let calls = monitor.calls(&systemd.name())?;
        Ok((count(&calls, "StopUnit") >= RUNS || count(&calls, "Hello") >= 4 * RUNS).then_some(calls))
    })
    .unwrap();
    let (snapshot, seen) = watching.interrupt().unwrap();
    assert_nothing_is_lost(&snapshot);
    assert_eq!(seen.undecoded, 0);
    let rows = snapshot.bus.rows.iter().filter(|row| row.kind == BusKind::Call);
    let ours: BTreeMap<(String, String), u64> = rows
        .map(|row| {
            let count = row.latency.count() + row.unanswered + row.open;
            ((row.names.interface.clone(), row.names.member.clone()), count)
        })
        .collect();
    assert_eq!(ours, monitored, "ours, and those of the monitor");
    assert_eq!(count(&ours, "StartTransientUnit"), RUNS, "{ours:?}");
    // Of each job it is heard that it is done.
    let jobs = snapshot.bus.rows.iter().filter(|row| row.kind == BusKind::Job);
    let jobs: BTreeMap<&str, u64> =
        jobs.map(|row| (row.names.member.as_str(), row.latency.count())).collect();
    let begun = ["StartTransientUnit", "StopUnit"].map(|name| (name, count(&ours, name)));
    assert_eq!(jobs, BTreeMap::from(begun), "{:?}", snapshot.bus.rows);
    assert!(snapshot.bus.open.is_empty(), "{:?}", snapshot.bus.open);
    let connections = snapshot.bus.rows.iter().find(|row| row.kind == BusKind::Connection).unwrap();
    assert_eq!(connections.latency.count(), count(&ours, "Hello"), "each connection says Hello");
    assert!(seen.bus_calls.iter().all(|call| call.end >= call.id.start));
    let page = text_of(&snapshot, true).unwrap();
    assert!(page.contains("D-Bus calls") && page.contains("Manager/StartTransientUnit"), "{page}");
}

/// Waits until a call has no answer for a second and its queues say why.
fn stuck(watching: &Watching, asker: u32, serial: impl Fn(u32) -> bool) -> OpenBusCall {
    process::wait_for("a call without an answer", LIMIT, || {
        let reading = watching.seen().open_bus.clone();
        let mut open = reading.open.iter().filter(|open| open.asker == asker && serial(open.serial));
        let call = open
            .next()
            .cloned()
            .map(|fact| OpenBusCall { age_ns: reading.at_ns.saturating_sub(fact.start_ns), fact });
        Ok(call.filter(|call| call.waits_for() != BusWait::Unknown))
    })
    .unwrap()
}

#[test]
fn who_does_not_answer_is_named() {
    the_silent_are_named(&start());
}

/// Who does not answer is named: systemd that reads and says nothing, systemd that does not read, and a bus that is
/// stopped.
pub(super) fn the_silent_are_named(containerd: &Containerd) {
    let watching = watch();
    let bus = Bus::start(containerd, "bus").unwrap();
    let systemd = Systemd::start(&bus).unwrap();
    systemd.silent.store(true, Ordering::Relaxed);
    let mut child = runc(containerd, &bus.address(), "silent").unwrap();
    let call = stuck(&watching, child.id(), |serial| serial != 0);
    assert_eq!((call.fact.member.as_str(), call.waits_for()), ("StartTransientUnit", BusWait::Answer));
    assert_eq!(call.fact.destination, "org.freedesktop.systemd1");
    assert_eq!(call.fact.bus, bus.daemon.id());
    child.kill().unwrap();
    child.wait().unwrap();
    drop(systemd);

    let deaf = Bus::start(containerd, "deaf").unwrap();
    let stream = deaf_systemd(&deaf).unwrap();
    let mut child = runc(containerd, &deaf.address(), "deaf").unwrap();
    let call = stuck(&watching, child.id(), |serial| serial != 0);
    assert_eq!(call.waits_for(), BusWait::Answer, "{call:?}");
    let link = std::fs::read_link(format!("/proc/self/fd/{}", stream.as_raw_fd())).unwrap();
    // Descriptors of all processes are looked at now and then only.
    let ours = process::wait_for("the process that does not read", LIMIT, || {
        let readers = watching.seen().open_bus.readers.clone();
        let is_ours = |it: &BusReaderFact| link.to_string_lossy() == format!("socket:[{}]", it.socket);
        Ok(readers.into_iter().find(|it| is_ours(it) && it.pid != 0))
    })
    .unwrap();
    assert!(ours.pid == std::process::id() && ours.unread > 0, "{ours:?}");
    child.kill().unwrap();
    child.wait().unwrap();

    let stopped = fault::stop_process(bus.daemon.id()).unwrap();
    let mut child = runc(containerd, &bus.address(), "stopped").unwrap();
    let call = stuck(&watching, child.id(), |serial| serial == 0);
    assert!(matches!(call.waits_for(), BusWait::Accept | BusWait::Bus(_)), "{call:?}");
    assert_eq!(call.fact.bus, bus.daemon.id(), "{call:?}");
    drop(stopped);
    process::wait_for("an answer of the bus", LIMIT, || {
        let seen = watching.seen();
        let answered = seen.bus_calls.iter().find(|it| it.id.start.0 == call.fact.start_ns);
        Ok(answered.map(|it| assert!(it.end.since(it.id.start) > 1_000_000_000)))
    })
    .unwrap();
    child.kill().unwrap();
    child.wait().unwrap();

    process::wait_for("calls that ended with their runc", LIMIT, || {
        Ok(watching.seen().open_bus.open.iter().all(|open| open.over).then_some(()))
    })
    .unwrap();
    let (snapshot, _) = watching.interrupt().unwrap();
    assert_nothing_is_lost(&snapshot);
    let unanswered: u64 = snapshot.bus.rows.iter().map(|row| row.unanswered).sum();
    assert!(unanswered >= 2, "{:?}", snapshot.bus.rows);
}
