//! What is slow, and does not hang: a plugin or a hook that takes its time, a disk of few writes a second, a shim that is
//! stopped and continued in turns.

use std::fs;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::gated;
use super::guard::{Facts, Fault};
use super::stopped::Stopped;
use crate::cri::Pod;
use crate::disk;
use crate::gate::{self, Order, Place};
use crate::node::Node;
use crate::process;

/// Between two stops the shim runs for so long.
const RUNS: Duration = Duration::from_millis(20);

/// Whoever comes to `place` on a node with gates takes so long from now on.
///
/// # Errors
///
/// When the node has no gates.
pub fn slow_gate(node: &Node, place: Place, takes: Duration) -> Result<Fault> {
    let file = gate::close(gated::gates(node)?, place, gate::ALL, &Order::Take(takes))?;
    Ok(Fault::new(Facts::default())
        .healed_by(move || fs::remove_file(file).context("cannot open the gates again")))
}

/// The disk of containerd does so many writes a second from now on.
///
/// # Errors
///
/// When the node has no disk of its own, or the kernel cannot throttle it.
pub fn slow_disk(node: &Node, writes: u32) -> Result<Fault> {
    let device = disk::device(node.containerd().scratch().path())?;
    ensure!(writes > 0, "a disk that writes nothing is not slow");
    disk::throttle(&device, writes)?;
    let facts = Facts { culprits: vec![node.containerd().pid()], ..Facts::default() };
    Ok(Fault::new(facts).healed_by(move || disk::throttle(&device, 0)))
}

/// The shim of `pod` runs for a share of the time only: it is stopped so many times as long as it runs, in turns.
///
/// # Errors
///
/// When the shim cannot be found or signalled.
pub fn slow_shim(node: &Node, pod: &Pod, factor: f64) -> Result<Fault> {
    let shim = node.containerd().shim_of(&pod.sandbox)?;
    process::signal(shim, libc::SIGCONT)?;
    let stops = RUNS.mul_f64((factor - 1.0).max(0.0));
    let (end, ended) = mpsc::channel::<()>();
    let turns = move || loop {
        let stopped = Stopped::of(shim)?;
        let waited = ended.recv_timeout(stops);
        drop(stopped);
        if waited != Err(RecvTimeoutError::Timeout)
            || ended.recv_timeout(RUNS) != Err(RecvTimeoutError::Timeout)
        {
            return Ok(());
        }
    };
    let thread = thread::Builder::new().name("slow-shim".to_owned()).spawn(turns).context("no thread")?;
    let ids = vec![pod.sandbox.clone(), pod.container.clone()];
    let facts = Facts { culprits: vec![shim], pod: pod.name.clone(), ids, ..Facts::default() };
    Ok(Fault::new(facts).healed_by(move || {
        drop(end);
        thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("the thread that stops a shim panicked")))
    }))
}
