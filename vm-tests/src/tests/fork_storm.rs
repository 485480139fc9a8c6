//! A shell starts one short program after the other on the only processor that containerd and its shim may use, and has a larger share of
//! it: runc is slow, and plegtrace says that containerd waits for a processor, and who starts all these programs. Shares are kept on an
//! emulated processor, too; moments of a clock are not.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use plegtrace::cli::Settings;
use plegtrace::clock;
use plegtrace::correlate::Snapshot;
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
/// Nine times the share of a usual process (sched(7), "The nice value"): with twice the share, half of the commands took 0.7 s, which is
/// not slow.
const NICE: &str = "-10";
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
/// When containerd is not named, or not who holds it off.
pub fn run() -> Result<String> {
    let containerd = Containerd::running()?;
    let rootfs = Rootfs::make()?;
    let mut container = Container::ask(&rootfs, CONTAINER)?;
    container.started()?;
    bind(FOUGHT_OVER)?;
    let mut storm = storm()?;
    let pid = storm.id();
    let over = Undo::within(stall::WATCHDOG + BUDGET, "a storm raged", move || {
        drop(storm.kill());
        drop(storm.wait());
        drop(fs::remove_file(STORM));
        drop(bind(ALL));
    });
    let snapshot = observed()?;
    drop(over);
    container.remove()?;
    let diagnosis = diagnose(&snapshot);
    let named = stall::named(&diagnosis);
    let wanted = [("O1", Some(containerd.pid), Confidence::High)];
    // A guest has no network: that comes before what is slow.
    let is_slow = matches!(diagnosis.verdict, Verdict::Slow | Verdict::Failing);
    ensure!(
        is_slow && named == wanted,
        "{:?}, named {named:?}: {:?}; {:?}, {:?}",
        diagnosis.verdict,
        diagnosis.reasons,
        snapshot.cpu,
        snapshot.recent
    );
    let headline = &diagnosis.findings[0].headline;
    let who = format!("forkstorm {pid} and the programs that it starts");
    ensure!(headline.contains(&who), "no {who} in {headline}");
    Ok(headline.clone())
}

/// What is seen while commands are run and the runtime is asked for its list.
fn observed() -> Result<Snapshot> {
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
        let ran = (0..COMMANDS).try_for_each(execute);
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

fn execute(number: u32) -> Result<()> {
    let mut exec = ctr();
    exec.args(["task", "exec", "--exec-id", &format!("x{number}"), CONTAINER, PROGRAM, "0"]);
    wait::output(&mut exec, BUDGET).map(drop)
}

fn storm() -> Result<Child> {
    fs::copy("/bin/bash", STORM).context("cannot copy the shell")?;
    let mut storm = Command::new("taskset");
    storm.args(["-c", FOUGHT_OVER, "nice", "-n", NICE, STORM, "-c", SCRIPT]);
    storm.stdin(Stdio::null()).stdout(Stdio::null()).spawn().context("no storm")
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
