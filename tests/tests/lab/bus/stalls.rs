//! Verdicts about calls that nobody answers, of plegtrace that was there before, and that comes when all runc wait.

use std::collections::BTreeMap;
use std::process::Child;

use plegtrace_lab::{Containerd, Knobs, fault, host};
use plegtrace_tests::program::Running;
use serde_json::Value;

use super::kit::{self, LIMIT, runc};
use super::played::{Daemon, Played};

/// How long plegtrace observes: runc has to start, and its call to grow old.
const SECONDS: &str = "20";
/// One that comes when all wait already.
const LATE_SECONDS: &str = "12";

/// What is found, and how sure that is, by the process that is to blame.
fn by_culprit(report: &Value) -> BTreeMap<u64, (&str, &str)> {
    let findings = report["diagnosis"]["findings"].as_array().unwrap();
    let one = |it: &'_ Value| it["culprit"]["pid"].as_u64();
    findings
        .iter()
        .filter_map(|it| Some((one(it)?, (it["id"].as_str()?, it["confidence"].as_str()?))))
        .collect()
}

/// A systemd that reads and says nothing, one that does not read, one that is stopped, one that is busy, and a
/// bus that is stopped: each has its verdict, with the process that is to blame, in text and JSON, and the exit code says so; whether
/// plegtrace was there before, or comes when all runc wait.
#[test]
fn stalls_have_a_verdict() {
    host::ensure(&["dbus"]).unwrap();
    have_a_verdict(Daemon::Dbus, "dbus-daemon");
}

/// The same with a dbus-broker. Its launcher, which holds the socket at which it listens, too, is not blamed.
#[test]
fn stalls_on_a_broker_have_a_verdict() {
    host::ensure(&["dbus", "dbus-broker"]).unwrap();
    have_a_verdict(Daemon::Broker, "dbus-broker");
}

fn have_a_verdict(daemon: Daemon, name_of_daemon: &str) {
    host::require_root().unwrap();
    let containerd = Containerd::start(&Knobs { pods: 0, ..Knobs::default() }).unwrap();
    let node = |name: &str, behaves: &str| Played::start(&containerd, daemon, name, behaves).unwrap();
    let silent = node("silent", "silent");
    let deaf = node("deaf", "deaf");
    let busy = node("busy", "busy");
    let halted = node("halted", "silent");
    let busless = node("busless", "silent");
    let observe = |format: &str, seconds: &str| {
        let arguments = ["-v", "-o", format, "-d", seconds, "--sources", "census,processes,wire"];
        let mut running = Running::start(&arguments).unwrap();
        running.wait_until_armed(LIMIT).unwrap();
        running
    };
    let running = ["json", "text"].map(|format| observe(format, SECONDS));
    let stopped = [halted.systemd, busless.daemon].map(|pid| fault::stop_process(pid).unwrap());
    let nodes = [&silent, &deaf, &busy, &halted, &busless];
    let mut waiting: Vec<Child> = nodes
        .iter()
        .enumerate()
        .map(|(n, node)| runc(&containerd, &kit::address(&node.dir), &format!("waits{n}")).unwrap())
        .collect();
    let [json, text] = running.map(|running| running.finish(LIMIT * 2).unwrap());
    // Nobody calls any more: those who come now find only who waits, one of them without a program in the kernel.
    let looks = Running::start(&["-o", "json", "--sources", "census"]).unwrap();
    let late = ["json", "text"].map(|format| observe(format, LATE_SECONDS));
    let late = late.map(|running| running.finish(LIMIT * 2).unwrap());
    let looked = looks.finish(LIMIT * 2).unwrap();
    drop(stopped);
    for child in &mut waiting {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    println!("{}\n{}", text.stdout, late[1].stdout);
    assert_eq!((json.status.code(), text.status.code()), (Some(1), Some(1)), "{}", json.stderr);
    let report: Value = serde_json::from_str(&json.stdout).unwrap();
    let of_late: Value = serde_json::from_str(&late[0].stdout).unwrap();
    assert_eq!(report["diagnosis"]["verdict"], "stall");
    let findings = report["diagnosis"]["findings"].as_array().unwrap();
    let found = by_culprit(&report);
    let wanted = BTreeMap::from([
        (u64::from(silent.systemd), ("D3", "high")),
        (u64::from(deaf.systemd), ("D3", "high")),
        // With what it is busy is not seen.
        (u64::from(busy.systemd), ("D2", "medium")),
        (u64::from(halted.systemd), ("D13", "high")),
        (u64::from(busless.daemon), ("D14", "high")),
    ]);
    assert_eq!(found, wanted, "{}\n{}", text.stdout, report["bus"]);
    for finding in of_late["diagnosis"]["findings"].as_array().unwrap() {
        assert!(finding["headline"].as_str().unwrap().contains("runc run of waits"), "{finding:#}");
    }
    let of_looked: Value = serde_json::from_str(&looked.stdout).unwrap();
    assert_eq!(by_culprit(&of_looked), wanted, "{:#}\n{}", of_looked["diagnosis"], of_looked["bus"]);
    assert_eq!(by_culprit(&of_late), wanted, "{}\n{}", late[1].stdout, of_late["bus"]);
    for (finding, headline) in findings.iter().map(|it| (it, it["headline"].as_str().unwrap())) {
        let caller = waiting.iter().any(|child| headline.contains(&child.id().to_string()));
        assert!(caller, "no runc is named: {finding}");
    }
    let headline = |pid: u32| {
        let of = findings.iter().find(|it| it["culprit"]["pid"] == u64::from(pid)).unwrap();
        of["headline"].as_str().unwrap()
    };
    assert!(headline(silent.systemd).contains("has read everything from the bus"));
    assert!(headline(deaf.systemd).contains("bytes from the bus"), "{}", headline(deaf.systemd));
    let name = format!("{name_of_daemon} (pid {}) is stopped", busless.daemon);
    assert!(headline(busless.daemon).starts_with(&name), "{}", headline(busless.daemon));
    for id in ["D2", "D3", "D13", "D14"] {
        assert!(text.stdout.contains(id), "{}", text.stdout);
    }
}
