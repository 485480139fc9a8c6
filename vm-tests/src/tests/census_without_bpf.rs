//! The census needs no eBPF: where `bpf(2)` and `perf_event_open(2)` are refused it still names a containerd that is
//! stopped. Run on the oldest kernel too.

use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use plegtrace::census;
use plegtrace::cli::{Attach, Settings};
use plegtrace::engine;
use plegtrace::input::Component;
use plegtrace::{
    correlate::Snapshot,
    diagnose::{Verdict, diagnose},
    stuck::StuckKind,
};

use crate::observation;
use crate::wait::{self, BUDGET};

/// Stops containerd, looks with the census only, lets it go on.
///
/// # Errors
/// When containerd is not named, or the kernel side was asked for.
pub fn run() -> Result<String> {
    let pid =
        wait::output(Command::new("systemctl").args(["show", "-pMainPID", "--value", "containerd"]), BUDGET)?;
    let pid: u32 = pid.trim().parse().context("no pid of containerd")?;
    signal(pid, libc::SIGSTOP)?;
    let snapshot = thread::spawn(look).join().map_err(|_| anyhow!("the look panicked"));
    signal(pid, libc::SIGCONT)?;
    let snapshot = snapshot??;
    let stopped = |what: &StuckKind| matches!(what, StuckKind::Stopped { component: Component::Containerd, pid: of, .. } if *of == pid);
    let diagnosis = diagnose(&snapshot);
    ensure!(diagnosis.stuck.iter().any(|stuck| stopped(&stuck.what)), "not named: {:?}", diagnosis.stuck);
    ensure!(diagnosis.verdict == Verdict::Stall, "no stall: {:?}", diagnosis.doubts);
    let goroutines: u32 = snapshot.census.goroutines.iter().map(|fact| fact.total).sum();
    ensure!(goroutines > 0, "no goroutine of it was read: {:?}", snapshot.census.round);
    Ok(format!("containerd stopped, its {goroutines} goroutines read, {} looks", snapshot.census.rounds))
}

/// In a thread of its own, because it gives up what it may do.
fn look() -> Result<Snapshot> {
    deny_bpf()?;
    let settings = Settings {
        uprobes: false,
        parks: false,
        processes: false,
        census: true,
        census_program: Some(census::this_program()),
        duration: Duration::from_secs(60),
        to_the_end: false,
        ..observation::settings(Attach::Auto)
    };
    Ok(engine::observe(&settings, None)?)
}

fn signal(pid: u32, signal: i32) -> Result<()> {
    // SAFETY: no memory is involved.
    let done = unsafe { libc::kill(pid.cast_signed(), signal) };
    ensure!(done == 0, "cannot send signal {signal} to {pid}: {}", std::io::Error::last_os_error());
    Ok(())
}

/// From now on `bpf(2)` and `perf_event_open(2)` fail with EPERM in this thread and whatever it starts.
fn deny_bpf() -> Result<()> {
    let statement =
        |code: u32, k: u32| libc::sock_filter { code: u16::try_from(code).unwrap_or(0), jt: 0, jf: 0, k };
    let jump = |k: i64, jt: u8| libc::sock_filter {
        jt,
        ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, u32::try_from(k).unwrap_or(u32::MAX))
    };
    let refuse = libc::SECCOMP_RET_ERRNO | u32::try_from(libc::EPERM).unwrap_or(1);
    // The number of the call is the first word of what the filter sees (include/uapi/linux/seccomp.h).
    let mut program = [
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        jump(libc::SYS_bpf, 2),
        jump(libc::SYS_perf_event_open, 1),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
        statement(libc::BPF_RET | libc::BPF_K, refuse),
    ];
    let filter = libc::sock_fprog { len: u16::try_from(program.len())?, filter: program.as_mut_ptr() };
    // SAFETY: the filter and its program live until the call returns; the kernel copies both.
    let done =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const filter) };
    ensure!(done == 0, "cannot deny bpf: {}", std::io::Error::last_os_error());
    // SAFETY: a call without memory; it must be refused.
    let bpf = unsafe { libc::syscall(libc::SYS_bpf, 0, 0, 0) };
    let why = std::io::Error::last_os_error();
    ensure!(bpf == -1 && why.raw_os_error() == Some(libc::EPERM), "bpf is not denied: {why}");
    Ok(())
}
