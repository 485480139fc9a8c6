//! A `runc init` whose execve waits for a thread that the freezer of version 1 holds (U3).

use std::fs;

use anyhow::{Context as _, Result};

use super::bundle::Bundle;
use super::frozen::Freezer;
use super::guard::{EFFECT_LIMIT, Facts, Fault};
use crate::host;
use crate::node::Node;
use crate::process::{self, Process};

/// A container that was made (`runc create`), of whose init one idle thread is frozen before it is started: its execve waits
/// for the end of that thread, which cannot end. Then its cgroup is frozen, which does not come to its end either, and
/// `runc kill` waits for that. A thread alone has to lie in a cgroup of its own, below.
///
/// # Errors
///
/// When the freezer of version 1 is not mounted, runc fails, or the init does not wait there.
pub fn freezing_init(node: &Node) -> Result<Fault> {
    let bundle = Bundle::of_runtime(node, node.containerd().runc_program().to_owned())?;
    let id = bundle.id().to_owned();
    let (mut kill, mut start) = (bundle.orphan("kill"), bundle.command("start"));
    host::run_detached(&mut bundle.command("create"))?;
    let guard = Fault::new(Facts::default()).cleaned_by(move || bundle.remove());
    let init = process::wait_for("a runc init at exec.fifo", EFFECT_LIMIT, || Ok(waiting_init(&id)))?;
    let whole = Freezer::of_process(&Freezer::version_1()?, init.pid())?;
    let part = whole.below("held")?;
    let (thaw, removed) = ([whole.clone(), part.clone()], part.clone());
    let guard = guard.healed_by(move || {
        thaw.iter().try_for_each(Freezer::thaw)?;
        process::wait_for("an empty cgroup", EFFECT_LIMIT, || Ok(removed.remove().then_some(())))
    });
    part.admit_thread(idle_thread(init.pid())?)?;
    part.freeze()?;
    host::run(&mut start)?;
    process::wait_for("an execve that waits", EFFECT_LIMIT, || Ok(in_execve(init.pid()).then_some(())))?;
    whole.begin_freezing()?;
    host::run_detached(&mut kill)?;
    let runc = process::wait_for("a runc kill", EFFECT_LIMIT, || Ok(killing(node, &id)))?;
    let victims = vec![init.pid(), runc];
    let facts = Facts { victims, ids: vec![id], path: Some(whole.file()), ..Facts::default() };
    Ok(guard.with(facts))
}

/// The init of a container that waits to be started.
fn waiting_init(id: &str) -> Option<Process> {
    let is_init = |pid: &u32| process::arguments(*pid) == ["runc", "init"];
    let init = process::in_cgroup(id).into_iter().find(is_init)?;
    let waits = process::blocked_threads(init).iter().any(|thread| thread.syscall == libc::SYS_openat);
    Process::running(init).filter(|_| waits)
}

/// The first thread after the main one: of a Go program the one that only watches the others.
fn idle_thread(pid: u32) -> Result<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).context("the init has ended")?;
    let numbers = threads.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(|thread| *thread != pid).min().context("the init has one thread")
}

fn in_execve(pid: u32) -> bool {
    let threads = process::blocked_threads(pid);
    process::state(pid) == Some('D') && threads.iter().any(|thread| thread.syscall == libc::SYS_execve)
}

/// The `runc kill` of this container.
fn killing(node: &Node, id: &str) -> Option<u32> {
    let is_kill = |pid: &u32| {
        let arguments = process::arguments(*pid);
        process::name(*pid) == "runc"
            && arguments.iter().any(|word| word == "kill")
            && arguments.last().is_some_and(|last| last == id)
    };
    process::marked(node.containerd().scratch().path()).into_iter().find(is_kill)
}
