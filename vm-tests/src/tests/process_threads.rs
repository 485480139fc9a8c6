//! A process is its threads: it ends with the last of them, however early the first one left, and an `execve` by any of
//! them is the process's.

use std::io;
use std::process::id;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use plegtrace::decode::{Process, Step};
use plegtrace::kernel::{AttachMode, Kernel};
use plegtrace_common::key::Watched;
use plegtrace_common::role::Role;

use super::process_follow::Seen;
use crate::machine;

/// How much longer the second thread lives than the first.
const LONGER: Duration = Duration::from_millis(300);

/// Plays processes whose first thread leaves before the others end, are killed or leave too, and one whose second thread executes a program.
///
/// # Errors
/// When an end comes too early, twice, or with the wrong status.
pub fn run() -> Result<String> {
    let mut kernel = Kernel::load(&machine::load_options(AttachMode::PerfAddress)?)?;
    kernel.watch(id(), Watched::found(Role::Containerd))?;
    let left = child(|| leave_to(|| exit_group(5)))?;
    let killed = child(|| leave_to(kill_ourselves))?;
    let apart = child(|| leave_to(|| exit_thread(7)))?;
    let executed = child(|| {
        thread::spawn(execute);
        sleep_for_ever()
    })?;
    let all = [left, killed, apart, executed];
    let statuses = all.map(wait);

    let seen = Seen::take(&mut kernel)?;
    for (pid, status) in all.into_iter().zip(statuses) {
        let steps: Vec<&Process> = seen.steps.iter().filter(|step| step.meta.tgid == pid).collect();
        let ends = steps.iter().filter(|step| matches!(step.step, Step::Exit(_))).count();
        let last = steps.last().context("no step")?;
        ensure!(ends == 1, "process {pid} ended {ends} times: {steps:?}");
        // A core dump is none of ours to tell apart: the bit is the same in both.
        ensure!(last.step == Step::Exit(status?), "process {pid} ended as {:?}: {steps:?}", last.step);
        let lived = last.meta.at.since(steps[0].meta.at);
        let want = if pid == executed { Duration::ZERO } else { LONGER };
        ensure!(Duration::from_nanos(lived) >= want, "process {pid} ended with its first thread: {steps:?}");
        let execs = steps.iter().filter(|step| step.step == Step::Exec).count();
        ensure!(execs == usize::from(pid == executed), "process {pid} executed {execs} programs");
    }
    Ok("ends by the last thread (exit 5, signal 9, exit 3 of the first), exec by a second thread".to_owned())
}

/// Runs `play` in a child.
fn child(play: fn() -> !) -> Result<u32> {
    // SAFETY: the child only sleeps, makes a thread, and ends or executes; it never returns from here.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        play();
    }
    u32::try_from(pid).map_err(|_| io::Error::last_os_error()).context("cannot fork")
}

/// The first thread leaves; a second one stays a while, and then does this.
fn leave_to(last: fn() -> !) -> ! {
    thread::spawn(move || {
        thread::sleep(LONGER);
        last();
    });
    exit_thread(3)
}

/// Ends this thread only: the system call, which is not the function of that name.
fn exit_thread(code: i32) -> ! {
    // SAFETY: nothing of this thread is used any more.
    unsafe { libc::syscall(libc::SYS_exit, code) };
    sleep_for_ever()
}

fn exit_group(code: i32) -> ! {
    // SAFETY: never returns.
    unsafe { libc::_exit(code) }
}

fn kill_ourselves() -> ! {
    // SAFETY: no memory is involved.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    sleep_for_ever()
}

fn execute() {
    let program = c"/bin/true";
    let arguments = [program.as_ptr(), std::ptr::null()];
    // SAFETY: program and arguments are zero-terminated and live.
    unsafe { libc::execv(program.as_ptr(), arguments.as_ptr()) };
    exit_group(127);
}

fn sleep_for_ever() -> ! {
    loop {
        thread::park();
    }
}

/// Waits for a child and gives its wait status.
fn wait(pid: u32) -> Result<u32> {
    let mut status = 0;
    // SAFETY: the status lives during the call.
    let waited = unsafe { libc::waitpid(pid.cast_signed(), &raw mut status, 0) };
    ensure!(waited == pid.cast_signed(), "cannot wait for {pid}: {}", io::Error::last_os_error());
    Ok(status.cast_unsigned())
}
