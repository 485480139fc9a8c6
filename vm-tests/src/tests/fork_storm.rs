//! A shell starts one short program after the other on the only processor that containerd and its shim may use, and has a larger share of
//! it: runc is slow, and plegtrace says that containerd waits for a processor, and who starts all these programs. Shares are kept on an
//! emulated processor, too; moments of a clock are not. What a share is worth to programs that live for milliseconds differs between
//! schedulers: the storm grows until runc is slow.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use plegtrace::cli::Settings;
use plegtrace::clock;
use plegtrace::correlate::thresholds::RUNC_SLOW_NS;
use plegtrace::correlate::{Recent, RecentKind, Snapshot};
use plegtrace::diagnose::{Confidence, Verdict, diagnose};

use crate::container::{Container, PROGRAM, Rootfs, ctr};
use crate::cri::Client;
use crate::machine::Containerd;
use crate::observation::{ENDLESS, Observation, Seen};
use crate::stall;
use crate::undo::Undo;
use crate::wait::{self, BUDGET};

/// The name under which the shell runs.
const STORM: &str = "/var/tmp/forkstorm";
const SCRIPT: &str = "while :; do /bin/true; done";
/// Its unit: a sibling of containerd's, so that their weights decide (systemd.resource-control(5), "CPUWeight"). Nice values do not, from
/// one cgroup to the other.
const UNIT: &str = "plegtrace-storm.service";
/// Containerd's share, and more.
const WEIGHTS: [u32; 5] = [100, 200, 400, 800, 1600];
/// The processor that is fought over, and those that everybody may use.
const FOUGHT_OVER: &str = "1";
const ALL: &str = "0-1";
/// Between two lists: what asks without a pause takes from the commands what the storm leaves them.
const PAUSE: Duration = Duration::from_secs(1);
/// A look is due by then if there is a stall.
const LOOK: Duration = Duration::from_secs(10);
/// Commands that run in a container meanwhile, one after the other: enough to call them slow, and all within the minute that counts.
/// At the same time each would take as long as all of them, and on a slow machine that is a stall.
const COMMANDS: u32 = 5;
const CONTAINER: &str = "stormed";

/// Runs commands in the storm.
///
/// # Errors
/// When no storm slows runc, when containerd is not named, or not who holds it off.
pub fn run() -> Result<String> {
    let containerd = Containerd::running()?;
    let rootfs = Rootfs::make()?;
    let mut container = Container::ask(&rootfs, CONTAINER)?;
    container.started()?;
    bind(FOUGHT_OVER)?;
    let bound = Undo::within(stall::WATCHDOG + 5 * BUDGET, "containerd was bound to a processor", || {
        drop(bind(ALL));
        drop(fs::remove_file(STORM));
    });
    let (storm, snapshot) = slowed()?;
    drop(bound);
    container.remove()?;
    let diagnosis = diagnose(&snapshot);
    let named = stall::named(&diagnosis);
    let wanted = [("O1", Some(containerd.pid), Confidence::High)];
    // A guest has no network: that comes before what is slow. On a slow machine one command in a storm takes more than five seconds, which
    // is a stall of the same cause.
    let is_slow = matches!(diagnosis.verdict, Verdict::Slow | Verdict::Failing | Verdict::Stall);
    ensure!(
        is_slow && named == wanted,
        "{:?}, named {named:?}: {:?}; {:?}, {:?}",
        diagnosis.verdict,
        diagnosis.reasons,
        snapshot.cpu,
        snapshot.recent
    );
    let headline = &diagnosis.findings[0].headline;
    let who = format!("forkstorm {storm} and the programs that it starts");
    ensure!(headline.contains(&who), "no {who} in {headline}");
    Ok(headline.clone())
}

/// What is seen in the first storm in which runc is slow, and the process of that storm.
fn slowed() -> Result<(u32, Snapshot)> {
    let mut took = Vec::new();
    for weight in WEIGHTS {
        let pid = storm(weight)?;
        let over =
            Undo::within(stall::WATCHDOG + BUDGET, "a storm raged", || drop(systemctl(&["stop", UNIT])));
        let snapshot = observed(weight)?;
        drop(over);
        let median = exec_median_ns(&snapshot).context("no command was seen")?;
        if median > RUNC_SLOW_NS {
            return Ok((pid, snapshot));
        }
        took.push(median);
    }
    bail!("half of the commands took no more than {took:?} ns in storms of {WEIGHTS:?}")
}

/// What half of the commands took at most, nanoseconds.
fn exec_median_ns(snapshot: &Snapshot) -> Option<u64> {
    let is_exec = |recent: &&Recent| matches!(&recent.what, RecentKind::Runc { sub, .. } if sub == "exec");
    let mut took = snapshot.recent.iter().find(is_exec)?.took_ns.clone();
    took.sort_unstable();
    took.get(took.len() / 2).copied()
}

/// What is seen while commands are run and the runtime is asked for its list.
fn observed(weight: u32) -> Result<Snapshot> {
    let client = Client::connect()?;
    let settings = Settings { wire: false, to_the_end: true, duration: ENDLESS, ..stall::settings() };
    let observation = Observation::begin_with(settings)?;
    let is_over = AtomicBool::new(false);
    let ran = thread::scope(|scope| {
        let asking = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                client.call("ListContainers")?;
                thread::sleep(PAUSE);
            }
            anyhow::Ok(())
        });
        let ran = (0..COMMANDS).try_for_each(|number| execute(weight, number));
        is_over.store(true, Ordering::Relaxed);
        ran.and(asking.join().expect("a request does not panic"))
    });
    ran?;
    // On a slow machine a command takes five seconds, and is a stall: until the next look, at most, which finds that it has ended.
    let (ended, deadline) = (clock::monotonic_ns(), Instant::now() + LOOK);
    let looked = |seen: &Seen| seen.looked_ns > ended || Instant::now() > deadline;
    let (snapshot, _) = observation.until("a look after the last command", looked)?.end()?;
    Ok(snapshot)
}

fn execute(weight: u32, number: u32) -> Result<()> {
    let mut exec = ctr();
    exec.args(["task", "exec", "--exec-id", &format!("x{weight}-{number}"), CONTAINER, PROGRAM, "0"]);
    wait::output(&mut exec, BUDGET).map(drop)
}

/// Starts one of this weight; gives its process.
fn storm(weight: u32) -> Result<u32> {
    fs::copy("/bin/bash", STORM).context("cannot copy the shell")?;
    let mut run = Command::new("systemd-run");
    run.args(["--quiet", "--collect", "--unit", UNIT, "--property", &format!("CPUWeight={weight}")]);
    wait::output(run.args(["taskset", "-c", FOUGHT_OVER, STORM, "-c", SCRIPT]), BUDGET)?;
    wait::until("a storm", BUDGET, || {
        let pid = systemctl(&["show", "--property", "MainPID", "--value", UNIT])?.trim().to_owned();
        let is_shell = fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == Path::new(STORM));
        Ok(if is_shell { Some(pid.parse()?) } else { None })
    })
}

fn systemctl(arguments: &[&str]) -> Result<String> {
    wait::output(Command::new("systemctl").args(arguments), BUDGET)
}

/// Binds all threads of containerd and of its shims to these processors.
fn bind(processors: &str) -> Result<()> {
    for process in fs::read_dir("/proc")?.flatten() {
        let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
        let pid = process.file_name().into_string().unwrap_or_default();
        if name.starts_with("containerd") && Path::new("/proc").join(&pid).join("exe").exists() {
            let mut taskset = Command::new("taskset");
            wait::output(taskset.args(["-a", "-p", "-c", processors, &pid]), BUDGET)?;
        }
    }
    Ok(())
}
