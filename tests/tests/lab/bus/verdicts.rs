//! Verdicts about D-Bus besides those in [`super::stalls`]: the real runc that waits for a job, is refused, or holds a lock meanwhile.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use plegtrace_lab::cri::{Call, Pod};
use plegtrace_lab::{CgroupDriver, Containerd, Knobs, fault, host, process};
use plegtrace_tests::program::{Ended, Running};
use serde_json::Value;

use super::kit::{self, Bus, LIMIT, deaf_systemd, runc};
use super::played::{Daemon, Played};

/// Nobody has systemd's name, and nobody can be started for it (D8); root has no connection left (D5). Both are notices: each runc
/// fails, and none hangs.
#[test]
fn errors_of_the_bus_are_noticed() {
    host::require_root().unwrap();
    host::ensure(&["dbus"]).unwrap();
    let containerd = Containerd::start(&Knobs { pods: 0, ..Knobs::default() }).unwrap();
    let without = Bus::start(&containerd, "without").unwrap();
    without.starts_nobody().unwrap();
    let full = Bus::start(&containerd, "full").unwrap();
    let held: Vec<_> = (0..kit::MOST_CONNECTIONS).map(|_| full.connect().unwrap()).collect();
    let arguments = ["-o", "json", "-d", "10", "--sources", "census,processes,wire"];
    let mut running = Running::start(&arguments).unwrap();
    running.wait_until_armed(LIMIT).unwrap();
    for (name, bus) in [("without", &without), ("full", &full)] {
        let mut child = runc(&containerd, &bus.address(), name).unwrap();
        let status = process::wait(&mut child, LIMIT).unwrap();
        assert!(!status.success(), "{name}: {}", kit::said(&containerd, name));
    }
    let output = running.finish(LIMIT * 2).unwrap();
    drop(held);
    let report: Value = serde_json::from_str(&output.stdout).unwrap();
    let findings = report["diagnosis"]["findings"].as_array().unwrap();
    let found: BTreeMap<&str, &str> =
        findings.iter().filter_map(|it| Some((it["id"].as_str()?, it["headline"].as_str()?))).collect();
    let of = |id: &str| found.get(id).copied().unwrap_or_default();
    let said = ["without", "full"].map(|name| kit::said(&containerd, name));
    assert_eq!(found.len(), 2, "{found:?}\n{said:?}\n{}", report["bus"]);
    assert!(of("D8").ends_with("TimedOut"), "{found:?}");
    assert!(of("D5").ends_with("LimitsExceeded"), "{found:?}");
    assert!(findings.iter().all(|it| it["severity"] == "notice"), "{findings:?}");
}

/// The bus has no room for more calls to a systemd that does not read (D6): a notice, for each runc fails, and none hangs.
#[test]
fn a_full_queue_of_the_bus_is_noticed() {
    host::require_root().unwrap();
    host::ensure(&["dbus"]).unwrap();
    let containerd = Containerd::start(&Knobs { pods: 0, ..Knobs::default() }).unwrap();
    let bus = Bus::start_narrow(&containerd, "narrow").unwrap();
    let deaf = deaf_systemd(&bus).unwrap();
    bus.fill_queue_of_systemd().unwrap();
    let mut running =
        Running::start(&["-o", "json", "-d", "6", "--sources", "census,processes,wire"]).unwrap();
    running.wait_until_armed(LIMIT).unwrap();
    let mut child = runc(&containerd, &bus.address(), "narrow").unwrap();
    let status = process::wait(&mut child, LIMIT).unwrap();
    let said = kit::said(&containerd, "narrow");
    assert!(!status.success() && said.contains("full message queue"), "{said}");
    let output = running.finish(LIMIT * 2).unwrap();
    drop(deaf);
    let report: Value = serde_json::from_str(&output.stdout).unwrap();
    let findings = report["diagnosis"]["findings"].as_array().unwrap();
    let [finding] = findings.as_slice() else { panic!("{}\n{}", report["diagnosis"], report["bus"]) };
    assert_eq!((&finding["id"], &finding["severity"]), (&"D6".into(), &"notice".into()), "{finding:#}");
    assert!(finding["headline"].as_str().unwrap().ends_with("LimitsExceeded"), "{finding:#}");
}

/// A bus that accepts no more connections, for its queue of them is full (D7), and one that has ended (D15): notices, for runc fails,
/// and does not hang.
#[test]
fn refused_connections_are_noticed() {
    host::require_root().unwrap();
    host::ensure(&["dbus"]).unwrap();
    let containerd = Containerd::start(&Knobs { pods: 0, ..Knobs::default() }).unwrap();
    let crowded = Bus::start(&containerd, "crowded").unwrap();
    let mut ended = Bus::start(&containerd, "ended").unwrap();
    ended.daemon.kill().unwrap();
    ended.daemon.wait().unwrap();
    let stopped = fault::stop_process(crowded.daemon.id()).unwrap();
    let waiting = crowded.fill_backlog().unwrap();
    let mut running =
        Running::start(&["-o", "json", "-d", "8", "--sources", "census,processes,wire"]).unwrap();
    running.wait_until_armed(LIMIT).unwrap();
    for (bus, name, why) in
        [(&crowded, "crowded", "resource temporarily unavailable"), (&ended, "ended", "connection refused")]
    {
        let mut child = runc(&containerd, &bus.address(), name).unwrap();
        let status = process::wait(&mut child, LIMIT).unwrap();
        println!("{}", kit::said(&containerd, name));
        assert!(!status.success(), "{why}");
    }
    let output = running.finish(LIMIT * 2).unwrap();
    drop((stopped, waiting));
    let report: Value = serde_json::from_str(&output.stdout).unwrap();
    let findings = report["diagnosis"]["findings"].as_array().unwrap();
    let found: BTreeMap<&str, &str> =
        findings.iter().filter_map(|it| Some((it["id"].as_str()?, it["headline"].as_str()?))).collect();
    println!("{found:#?}\n{:#}", report["bus"]["methods"]);
    assert_eq!(found.keys().copied().collect::<Vec<_>>(), ["D15", "D7"], "{found:?}\n{}", report["bus"]);
    assert!(found["D7"].contains("EAGAIN") && found["D15"].contains("ECONNREFUSED"), "{found:?}");
    assert!(findings.iter().all(|it| it["severity"] == "notice"), "{findings:?}");
}

/// Where runc looks whether systemd runs here.
struct Runs(Option<PathBuf>);

impl Runs {
    fn here() -> Runs {
        let dir = PathBuf::from("/run/systemd/system");
        let made = !dir.exists();
        fs::create_dir_all(&dir).unwrap();
        Runs(made.then_some(dir))
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        if let Some(dir) = &self.0 {
            let _ = fs::remove_dir(dir);
        }
    }
}

/// A real containerd whose runc waits for systemd while it changes the limits of a container: the lists wait for the lock of that
/// container, and all of it is one finding, from the lists down to systemd.
#[test]
fn lists_that_wait_for_systemd_are_one_story() {
    host::require_root().unwrap();
    host::ensure(&["dbus"]).unwrap();
    let elsewhere = Containerd::start(&Knobs { pods: 0, ..Knobs::default() }).unwrap();
    let node = Played::start(&elsewhere, Daemon::Dbus, "willing", "willing").unwrap();
    let _runs = Runs::here();
    let bus = Some(kit::address(&node.dir));
    let knobs = Knobs { pods: 0, cgroup_driver: CgroupDriver::Systemd, bus, ..Knobs::default() };
    let containerd = Containerd::start(&knobs).unwrap();
    let pod = containerd.run_pod("p0").unwrap();
    fs::write(kit::mute(&node.dir), "").unwrap();
    let runtime = containerd.pid().to_string();
    let mut running = Running::start(&["-o", "json", "-d", "12", "--runtime-pid", &runtime]).unwrap();
    running.wait_until_armed(LIMIT).unwrap();
    let container = pod.container.clone();
    let mut update = Call::start(containerd.client(), "UpdateContainerResources", move |client| {
        client.update_container_resources(&container, 512, LIMIT * 2)
    })
    .unwrap();
    let runc = process::wait_for("its runc update", LIMIT, || {
        let is_it = |pid: &u32| {
            let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.contains("\0update\0") && line.contains(&pod.container)
        };
        Ok(process::all().into_iter().find(is_it))
    })
    .unwrap();
    let mut list = Call::start(containerd.client(), "ListContainers", |client| {
        client.list_containers(LIMIT * 2).map(drop)
    })
    .unwrap();
    let output = running.finish(LIMIT * 2).unwrap();
    // One that comes now sees nobody call any more.
    let late = Running::start(&["-o", "json", "-d", "12", "--runtime-pid", &runtime]).unwrap();
    let late = late.finish(LIMIT * 2).unwrap();
    // As the advice says.
    process::signal(runc, libc::SIGKILL).unwrap();
    assert!(update.wait(LIMIT).unwrap().is_err());
    list.wait(LIMIT).unwrap().unwrap();

    for output in [output, late] {
        is_one_story(&output, &node, runc, &pod);
    }
}

/// R1, from the lists down to systemd.
fn is_one_story(output: &Ended, node: &Played, runc: u32, pod: &Pod) {
    assert_eq!(output.status.code(), Some(1), "{}", output.stderr);
    let report: Value = serde_json::from_str(&output.stdout).unwrap();
    let findings = report["diagnosis"]["findings"].as_array().unwrap();
    let [finding] = findings.as_slice() else { panic!("{:#}\n{}", report["diagnosis"], report["bus"]) };
    assert_eq!((&finding["id"], &finding["confidence"]), (&"R1".into(), &"high".into()), "{finding:#}");
    assert_eq!(finding["culprit"]["pid"], node.systemd, "{finding:#}");
    assert_eq!(finding["culprit"]["container"]["id"].as_str(), Some(pod.container.as_str()), "{finding:#}");
    let headline = finding["headline"].as_str().unwrap();
    let chain = ["holds up every list of containers", "runc update", "SetUnitProperties"];
    for link in chain.map(str::to_owned).into_iter().chain([runc, node.systemd].map(|pid| pid.to_string())) {
        assert!(headline.contains(&link), "no {link} in {headline}");
    }
    println!("{headline}");
}
