//! A storm of execs (O2): threads that run one command after the other in all pods, as exec probes do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};

use anyhow::{Context as _, Result, bail, ensure};

use super::guard::{CALL_LIMIT, EFFECT_LIMIT, Facts, Fault};
use crate::cri::{self, Client};
use crate::node::Node;
use crate::process;

/// Threads per processor: while one execs, others wait for their shim.
const PER_CPU: usize = 4;

/// Executes commands in all pods as fast as the machine can, until it is healed. There is no culprit.
///
/// # Errors
///
/// When no pod runs, or the execs do not come to their end.
pub fn exec_storm(node: &Node) -> Result<Fault> {
    let pods = node.kubelet().running_pods()?;
    ensure!(!pods.is_empty(), "there is no pod to exec in");
    let threads = PER_CPU * thread::available_parallelism().map_or(1, usize::from);
    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let storm: Vec<JoinHandle<Result<(), cri::Error>>> = (0..threads.max(pods.len()))
        .map(|number| {
            let (client, container) =
                (node.containerd().client().clone(), pods[number % pods.len()].container.clone());
            let (stop, done) = (Arc::clone(&stop), Arc::clone(&done));
            thread::spawn(move || exec(&client, &container, &stop, &done))
        })
        .collect();
    let wanted = u32::try_from(storm.len()).context("too many threads")?;
    let fault = Fault::new(Facts::default()).healed_by(move || {
        stop.store(true, Ordering::Relaxed);
        end(storm)
    });
    process::wait_for("a storm of execs", EFFECT_LIMIT, || {
        Ok((done.load(Ordering::Relaxed) >= wanted).then_some(()))
    })?;
    Ok(fault)
}

fn exec(client: &Client, container: &str, stop: &AtomicBool, done: &AtomicU32) -> Result<(), cri::Error> {
    while !stop.load(Ordering::Relaxed) {
        client.exec_sync(container, &["/bin/true"], CALL_LIMIT)?;
        done.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

fn end(storm: Vec<JoinHandle<Result<(), cri::Error>>>) -> Result<()> {
    // All are waited for, also when one has failed.
    let ended: Vec<_> = storm.into_iter().map(JoinHandle::join).collect();
    for result in ended {
        let Ok(result) = result else { bail!("a thread of the storm panicked") };
        result.context("an exec failed")?;
    }
    Ok(())
}
