//! containerd without processor time (O1): by a quota of its cgroup, or because another thread has the processor.

use std::fs;
use std::mem::size_of_val;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};

use super::guard::{Facts, Fault};
use super::quota::{throttle, throttled};
use crate::host;
use crate::node::Node;

/// For relists of a node that is slow.
const LIMIT: Duration = Duration::from_secs(90);
/// Relists take so long at least when another thread has the processor of containerd.
pub(super) const HOGGED: Duration = Duration::from_millis(100);
/// What the next share of a CPU is of the one before.
const NEXT: f64 = 0.7;
/// How much more than it needs a daemon gets at first, and how long it is watched for that. With far less than it needs, what it is asked
/// piles up, and in the end it answers nobody; what it needs differs by several times from machine to machine.
const ENOUGH: f64 = 1.5;
const WATCHED: Duration = Duration::from_secs(4);
/// So long another thread has the processor of containerd, and so long it lets it go. A relist that ends while it does is
/// followed by one a second later, which is 70 ms after three such turns: that waits for 220 ms, and so does each after it.
const RUNS: Duration = Duration::from_millis(290);
const RESTS: Duration = Duration::from_millis(20);
/// Between two pages of the kubelet: a few relists.
const PAUSE: Duration = Duration::from_secs(4);
/// Relists of which the mean is taken.
const ASKED: u32 = 3;
const RELISTS: [&str; 2] =
    ["kubelet_pleg_relist_duration_seconds_sum", "kubelet_pleg_relist_duration_seconds_count"];

/// Lets a daemon have so little of a CPU, at first the first of `shares` or more than it needs, and not less than the second, that each
/// relist takes so long at least, on any machine. The first that are so slow may only have waited for what had piled up.
///
/// # Errors
///
/// The cgroup cannot be made, or the kubelet does not list.
pub fn throttled_until(node: &Node, pid: u32, shares: [f64; 2], slow: Duration) -> Result<Fault> {
    let needs = needs(pid)?;
    let [mut share, least] = [shares[0].max(ENOUGH * needs), shares[1]];
    let fault = throttled(node, pid, share)?;
    loop {
        let [piled_up, takes] = [relist_time(node)?, relist_time(node)?];
        let [percent, needed] = [share, needs].map(|share| 100.0 * share);
        eprintln!(
            "with {percent:.2} % of a CPU a relist takes {piled_up:.0?}, then {takes:.0?}; it needs {needed:.2} %"
        );
        if takes >= slow || share * NEXT < least {
            return Ok(fault);
        }
        share *= NEXT;
        throttle(&fault, share)?;
    }
}

/// The share of a CPU that a daemon uses while nothing is in its way.
pub(super) fn needs(pid: u32) -> Result<f64> {
    let (began, before) = (Instant::now(), ran_ns(pid)?);
    thread::sleep(WATCHED);
    Ok(ran_ns(pid)?.saturating_sub(before) as f64 / began.elapsed().as_nanos() as f64)
}

/// How long its threads have run, nanoseconds (`schedstat`, Documentation/scheduler/sched-stats.rst).
fn ran_ns(pid: u32) -> Result<u64> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).context("the daemon has ended")?.flatten();
    let ran = threads.filter_map(|thread| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    Ok(ran.sum())
}

/// What the next relists take, by the kubelet's own word. For its page it asks containerd, many times, which makes relists slow by
/// itself: so there is a pause between two pages, and nobody gives up on one and asks again, which would have two of them made.
pub(super) fn relist_time(node: &Node) -> Result<Duration> {
    let read = || {
        let page = node.kubelet().metrics(LIMIT)?;
        anyhow::Ok(RELISTS.map(|name| page.sum(name, &[])))
    };
    let (began, before) = (Instant::now(), read()?);
    loop {
        thread::sleep(PAUSE);
        let after = read()?;
        let ended = after[1] - before[1];
        if ended >= f64::from(ASKED) {
            return Ok(Duration::from_secs_f64((after[0] - before[0]) / ended));
        }
        ensure!(began.elapsed() < LIMIT, "only {ended} relists have ended within {LIMIT:?}");
    }
}

/// A thread of this process has one processor nearly all the time, before all others; containerd may use only that one.
///
/// # Errors
///
/// containerd cannot be moved, or relists do not become slow.
pub fn hog(node: &Node) -> Result<Fault> {
    let (containerd, cpu) = (node.containerd().pid(), processors() - 1);
    let facts = Facts { culprits: vec![containerd], ..Facts::default() };
    let all = format!("0-{cpu}");
    let fault = Fault::new(facts).healed_by(move || may_use(containerd, &all));
    may_use(containerd, &cpu.to_string())?;
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let thread = thread::spawn(move || take_turns(cpu, &stopped));
    let fault = fault.healed_by(move || {
        stop.store(true, Ordering::Relaxed);
        thread.join().map_err(|_| anyhow!("the hog has panicked"))?
    });
    let takes = relist_time(node)?;
    ensure!(takes >= HOGGED, "a relist takes only {takes:.0?} beside the hog");
    Ok(fault)
}

pub(super) fn processors() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Lets all threads of a process use these processors.
pub(super) fn may_use(pid: u32, processors: &str) -> Result<()> {
    host::run(Command::new("taskset").args(["-a", "-c", "-p", processors, &pid.to_string()])).map(drop)
}

fn take_turns(cpu: usize, stopped: &AtomicBool) -> Result<()> {
    take(cpu).context("cannot take a processor")?;
    while !stopped.load(Ordering::Relaxed) {
        let began = Instant::now();
        while began.elapsed() < RUNS {
            std::hint::spin_loop();
        }
        thread::sleep(RESTS);
    }
    Ok(())
}

/// Has this thread run on one processor, before all that are not real-time.
fn take(cpu: usize) -> std::io::Result<()> {
    // SAFETY: a set of processors is plain bits; the calls read it and a number, of this thread.
    let done = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        let first = libc::sched_param { sched_priority: 1 };
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set) == 0
            && libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const first) == 0
    };
    if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}
