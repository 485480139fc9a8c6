//! Verdicts about D-Bus: nodes in PID namespaces of their own, whose first process plays systemd on the node's bus, and the
//! real runc that waits for it.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::Ordering;

use anyhow::{Context as _, Result};
use plegtrace_lab::cri::Call;
use plegtrace_lab::{CgroupDriver, Containerd, Knobs, fault, host, process};
use plegtrace_tests::program::Running;
use serde_json::Value;

use super::kit::{self, Bus, LIMIT, Systemd, deaf_systemd, runc};

/// Where the node of [`plays_systemd`] is, and how its systemd behaves.
const PLAYED: &str = "PLEGTRACE_LAB_SYSTEMD";
/// How long plegtrace observes: runc has to start, and its call to grow old.
const SECONDS: &str = "20";

/// A node: a PID namespace with a bus, and a first process that plays systemd there.
struct Played {
    dir: PathBuf,
    unshare: Child,
    systemd: u32,
    daemon: u32,
}

impl Played {
    /// `behaves`: "willing" (answers, see [`kit::mute`]), "silent" (reads calls, answers none), "busy" (the same, and uses a processor), "deaf" (reads nothing) or
    /// "endless" (answers, and no job is ever done).
    fn start(containerd: &Containerd, name: &str, behaves: &str) -> Result<Played> {
        let dir = containerd.scratch().path().join(name);
        fs::create_dir_all(&dir)?;
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child"]).arg(std::env::current_exe()?);
        command.args(["bus::verdicts::plays_systemd", "--exact", "--ignored", "--nocapture"]);
        command.env(PLAYED, format!("{behaves}:{}", dir.display()));
        let unshare = containerd.scratch().spawn(&mut command, &dir.join("systemd.log"))?;
        process::wait_for("a systemd on its bus", LIMIT, || Ok(dir.join("ready").exists().then_some(())))
            .with_context(|| fs::read_to_string(dir.join("systemd.log")).unwrap_or_default())?;
        let child = |of: u32, name: &str| {
            let is_it =
                |pid: &u32| process::parent(*pid) == Some(of) && process::name(*pid).starts_with(name);
            process::all().into_iter().find(is_it)
        };
        let systemd = child(unshare.id(), "").context("no systemd")?;
        let daemon = child(systemd, "dbus-daemon").context("no bus daemon")?;
        Ok(Played { dir, unshare, systemd, daemon })
    }
}

impl Drop for Played {
    fn drop(&mut self) {
        let _ = self.unshare.kill();
        let _ = self.unshare.wait();
    }
}

/// The first process of a node's PID namespace: no test by itself.
#[test]
#[ignore = "played for other tests, in a PID namespace of its own"]
fn plays_systemd() {
    let Some(played) = std::env::var_os(PLAYED) else { return };
    let played = played.into_string().unwrap();
    let (behaves, dir) = played.split_once(':').unwrap();
    let bus = Bus::start_here(Path::new(dir)).unwrap();
    let ready = || fs::write(Path::new(dir).join("ready"), "").unwrap();
    if behaves == "deaf" {
        let stream = deaf_systemd(&bus).unwrap();
        ready();
        assert!(stream.as_raw_fd() > 0);
        loop {
            std::thread::park();
        }
    }
    let systemd = Systemd::start(&bus).unwrap();
    match behaves {
        "willing" => {}
        "endless" => systemd.endless.store(true, Ordering::Relaxed),
        _ => systemd.silent.store(true, Ordering::Relaxed),
    }
    ready();
    loop {
        if behaves != "busy" {
            std::thread::park();
        }
    }
}

/// A systemd that reads and says nothing, one that does not read, one that is stopped, one that is busy, and a
/// bus that is stopped: each has its verdict, with the process that is to blame, in text and JSON, and the exit code says so.
#[test]
fn stalls_have_a_verdict() {
    host::require_root().unwrap();
    host::ensure(&["dbus"]).unwrap();
    let containerd = Containerd::start(&Knobs { pods: 0, ..Knobs::default() }).unwrap();
    let node = |name: &str, behaves: &str| Played::start(&containerd, name, behaves).unwrap();
    let silent = node("silent", "silent");
    let deaf = node("deaf", "deaf");
    let busy = node("busy", "busy");
    let halted = node("halted", "silent");
    let busless = node("busless", "silent");
    let observe = |format: &str| {
        let arguments = ["-o", format, "-d", SECONDS, "--sources", "census,processes,wire"];
        let mut running = Running::start(&arguments).unwrap();
        running.wait_until_armed(LIMIT).unwrap();
        running
    };
    let running = ["json", "text"].map(observe);
    let stopped = [halted.systemd, busless.daemon].map(|pid| fault::stop_process(pid).unwrap());
    let nodes = [&silent, &deaf, &busy, &halted, &busless];
    let mut waiting: Vec<Child> = nodes
        .iter()
        .enumerate()
        .map(|(n, node)| runc(&containerd, &kit::address(&node.dir), &format!("waits{n}")).unwrap())
        .collect();
    let [json, text] = running.map(|running| running.finish(LIMIT * 2).unwrap());
    drop(stopped);
    for child in &mut waiting {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    println!("{}", text.stdout);
    assert_eq!((json.status.code(), text.status.code()), (Some(1), Some(1)), "{}", json.stderr);
    let report: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(report["diagnosis"]["verdict"], "stall");
    let findings = report["diagnosis"]["findings"].as_array().unwrap();
    let found: BTreeMap<u64, (&str, &str)> = findings
        .iter()
        .filter_map(|it| {
            Some((it["culprit"]["pid"].as_u64()?, (it["id"].as_str()?, it["confidence"].as_str()?)))
        })
        .collect();
    let wanted = BTreeMap::from([
        (u64::from(silent.systemd), ("D3", "high")),
        (u64::from(deaf.systemd), ("D3", "high")),
        // With what it is busy is not seen.
        (u64::from(busy.systemd), ("D2", "medium")),
        (u64::from(halted.systemd), ("D13", "high")),
        (u64::from(busless.daemon), ("D14", "high")),
    ]);
    assert_eq!(found, wanted, "{}\n{}", text.stdout, report["bus"]);
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
    for id in ["D2", "D3", "D13", "D14"] {
        assert!(text.stdout.contains(id), "{}", text.stdout);
    }
}

/// A systemd that answers with a job and does not end it: D4. Without uprobes it is not seen where runc waits.
#[test]
fn a_job_that_is_not_done_has_a_verdict() {
    host::require_root().unwrap();
    host::ensure(&["dbus"]).unwrap();
    let containerd = Containerd::start(&Knobs { pods: 0, ..Knobs::default() }).unwrap();
    let node = Played::start(&containerd, "endless", "endless").unwrap();
    let mut running =
        Running::start(&["-o", "json", "-d", "15", "--sources", "census,processes,wire"]).unwrap();
    running.wait_until_armed(LIMIT).unwrap();
    let mut waiting = runc(&containerd, &kit::address(&node.dir), "waits").unwrap();
    let output = running.finish(LIMIT * 2).unwrap();
    waiting.kill().unwrap();
    waiting.wait().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", output.stderr);
    let report: Value = serde_json::from_str(&output.stdout).unwrap();
    let findings = report["diagnosis"]["findings"].as_array().unwrap();
    let [finding] = findings.as_slice() else { panic!("{}\n{}", report["diagnosis"], report["bus"]) };
    assert_eq!((&finding["id"], &finding["confidence"]), (&"D4".into(), &"medium".into()), "{finding:#}");
    assert_eq!(finding["culprit"]["pid"], node.systemd);
    let headline = finding["headline"].as_str().unwrap();
    assert!(headline.contains("has answered Manager/StartTransientUnit with a job"), "{headline}");
    assert!(headline.contains(&waiting.id().to_string()), "{headline}");
    let jobs = report["bus"]["methods"].as_array().unwrap().iter().filter(|row| row["job"] == true);
    assert_eq!(jobs.map(|row| row["open"].as_u64()).collect::<Vec<_>>(), [Some(1)], "{}", report["bus"]);
}

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
    let node = Played::start(&elsewhere, "willing", "willing").unwrap();
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
    // As the advice says.
    process::signal(runc, libc::SIGKILL).unwrap();
    assert!(update.wait(LIMIT).unwrap().is_err());
    list.wait(LIMIT).unwrap().unwrap();

    assert_eq!(output.status.code(), Some(1), "{}", output.stderr);
    let report: Value = serde_json::from_str(&output.stdout).unwrap();
    let findings = report["diagnosis"]["findings"].as_array().unwrap();
    let [finding] = findings.as_slice() else { panic!("{:#}\n{}", report["diagnosis"], report["bus"]) };
    assert_eq!((&finding["id"], &finding["confidence"]), (&"R1".into(), &"high".into()), "{finding:#}");
    assert_eq!(finding["culprit"]["pid"], node.systemd, "{finding:#}");
    assert_eq!(finding["culprit"]["container"]["id"].as_str(), Some(pod.container.as_str()), "{finding:#}");
    let headline = finding["headline"].as_str().unwrap();
    let chain = [
        "every ListContainers waits behind one UpdateContainerResources",
        "runc update",
        "SetUnitProperties",
    ];
    for link in chain.map(str::to_owned).into_iter().chain([runc, node.systemd].map(|pid| pid.to_string())) {
        assert!(headline.contains(&link), "no {link} in {headline}");
    }
    println!("{headline}");
}
