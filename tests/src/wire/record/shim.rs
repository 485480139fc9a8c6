//! containerd and the shim of one container, while `ctr` has it do things.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use plegtrace_lab::{Containerd, Generation, Knobs, host, image, process};

use super::{LIMIT, metrics::handled};
use crate::wire::{Capture, capture::Tally, relay::Relay};

/// Times that everything is done.
const ROUNDS: usize = 8;
/// The container; whatever has such an id in its path is removed with the lab.
const ID: &str = "5417ab1e5417ab1e5417ab1e5417ab1e5417ab1e5417ab1e5417ab1e5417ab1e";
/// containerd's own service for tasks.
const TASKS: &str = "/containerd.services.tasks.v1.Tasks/";
const OK: u32 = 0;
const NOT_FOUND: u32 = 5;

/// A shim that runs already, because containerd connects to its socket when it starts the shim or when it starts itself.
pub(super) fn capture(knobs: &Knobs) -> Result<Capture> {
    let containerd = Containerd::start(knobs)?;
    let cgroup = format!("{}/{ID}", containerd.scratch().cgroup(knobs.cgroup_driver));
    let mut run = containerd.ctr()?;
    run.args(["run", "-d", "--null-io", "--snapshotter", containerd.snapshotter(), "--cgroup", &cgroup]);
    host::run(run.args([image::REFERENCE, ID, "/pause"]))?;
    containerd.daemon().kill()?;
    let relay = Relay::insert(&containerd.shim_socket(ID)?)?;
    containerd.daemon().restart()?;
    // Not by its page, for which it asks the shim.
    wait_until_it_answers(&containerd)?;
    for round in 0..ROUNDS {
        work(&containerd, round)?;
    }
    let tally = asked(&handled(&containerd.metrics(LIMIT)?, TASKS.trim_matches('/')), knobs.generation);
    containerd.daemon().kill()?;
    let chunks = relay.finish();
    // What runc keeps of it is not in the lab's directory.
    containerd.daemon().restart()?;
    wait_until_it_answers(&containerd)?;
    host::run(containerd.ctr()?.args(["tasks", "rm", "--force", ID]))?;
    Ok(Capture { chunks, tally })
}

fn wait_until_it_answers(containerd: &Containerd) -> Result<()> {
    process::wait_for("containerd", LIMIT, || {
        let asked = host::run(containerd.ctr()?.args(["containers", "info", ID]));
        Ok(asked.ok().map(drop))
    })
}

/// All that `ctr` offers for a task, and something that is not there.
fn work(containerd: &Containerd, round: usize) -> Result<()> {
    let tasks = || Ok::<_, anyhow::Error>(task(containerd.ctr()?));
    for what in ["metrics", "ps", "pause", "resume"] {
        host::run(tasks()?.args([what, ID]))?;
    }
    host::run(tasks()?.args(["kill", "--signal", "SIGWINCH", ID]))?;
    let missing = tasks()?.args(["kill", "--exec-id", "nothing", ID]).output().context("cannot run ctr")?;
    ensure!(!missing.status.success(), "there is such a command");
    let mut exec = tasks()?;
    exec.args(["exec", "--exec-id", &format!("e{round}"), ID, "true"]).stdin(Stdio::piped());
    let mut child = exec.stdout(Stdio::null()).spawn().context("cannot run ctr")?;
    // Its end would be one request more, which comes at any time.
    let input = child.stdin.take();
    let status = process::wait(&mut child, LIMIT)?;
    drop(input);
    ensure!(status.success(), "the command failed");
    Ok(())
}

fn task(mut ctr: Command) -> Command {
    ctr.arg("tasks");
    ctr
}

/// What containerd must have asked for what it was asked (`services/tasks/local.go` and `runtime/v2/shim.go` in its source).
fn asked(handled: &Tally, generation: Generation) -> Tally {
    let count = |method: &str, code| handled.get(&(format!("{TASKS}{method}"), code)).copied().unwrap_or(0);
    let version = if generation == Generation::V2_1 { 3 } else { 2 };
    let mut tally = Tally::new();
    let mut ask = |method: &str, code, times| {
        if times > 0 {
            *tally.entry((format!("containerd.task.v{version}.Task/{method}"), code)).or_default() += times;
        }
    };
    // When it starts: does the shim answer, and later releases: does it have a task?
    ask("Connect within 5s", OK, 1);
    let is_later = matches!(generation, Generation::V1_7 | Generation::V2_1);
    ask("Pids", OK, u64::from(is_later));
    for (method, own) in [
        ("Exec", "Exec"),
        ("Wait", "Wait"),
        ("Start", "Start"),
        ("DeleteProcess", "Delete"),
        ("Kill", "Kill"),
        ("Pause", "Pause"),
        ("Resume", "Resume"),
        ("ListPids", "Pids"),
        ("Metrics", "Stats"),
        ("Get", "State within 2s"),
    ] {
        ask(own, OK, count(method, OK));
    }
    // Its page of metrics has those of the task.
    ask(if is_later { "Stats within 2s" } else { "Stats" }, OK, 1);
    // Before anything is done with a command it is looked for, and how it is once it has started; `ctr` gets it as well before it
    // deletes it.
    let before = count("Wait", OK) + count("Start", OK) + 2 * count("DeleteProcess", OK);
    ask("State", OK, before + count("Start", OK));
    ask("State", NOT_FOUND, count("Kill", NOT_FOUND));
    tally
}
