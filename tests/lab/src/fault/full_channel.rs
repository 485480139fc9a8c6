//! A relist that waits for room in the kubelet's event channel (K1), on a node of [`crate::Knobs::blocking_pleg`].
//!
//! The sync loop takes no event as long as it calls the runtime down, which it does 30 s after the last `Status`. More
//! containers start meanwhile than the channel has room for, and the relist that finds them waits to hand over the last.
//! After three minutes PLEG is not healthy either, so the sync loop takes no event even when `Status` is answered again.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::extra;
use super::guard::{CALL_LIMIT, EFFECT_LIMIT, Facts, Fault};
use super::status::status_hangs;
use crate::cri::Pod;
use crate::kubelet::Kubelet;
use crate::node::Node;
use crate::{http, process};

/// `maxWaitForContainerRuntime` (kubelet.go) is 30 s, and the sync loop looks every 5 s at most.
const DOWN_LIMIT: Duration = Duration::from_secs(60);
/// What the sync loop says in each round that it leaves out.
const SKIPPING: &str = "skipping pod synchronization - container runtime is down";
/// One more than the channel has room for.
const STARTS: usize = 5;
/// A relist takes milliseconds, and the next begins a second later.
const NO_RELIST_FOR: Duration = Duration::from_secs(4);

/// Fills the kubelet's event channel: its relist waits for the sync loop, which waits for `Status`. Healing starts the
/// kubelet again.
///
/// # Errors
///
/// When the kubelet is not the one with the defect, or goes on.
pub fn full_channel(node: &Node, pod: &Pod) -> Result<Fault> {
    let (containerd, kubelet) = (node.containerd(), node.kubelet());
    ensure!(containerd.knobs().blocking_pleg, "the kubelet does not wait: set Knobs::blocking_pleg");
    let said = skipped(kubelet);
    let mut fault = status_hangs(node)?;
    process::wait_for("a sync loop that does nothing", DOWN_LIMIT, || {
        Ok((skipped(kubelet) > said).then_some(()))
    })?;
    let (daemon, address) = (kubelet.daemon().clone(), kubelet.healthz_address());
    fault = fault.healed_by(move || {
        daemon.kill()?;
        daemon.restart()?;
        process::wait_for("an answer of the new kubelet", EFFECT_LIMIT, || {
            Ok(http::get(address, "/healthz", Duration::from_secs(2)).ok().map(drop))
        })
    });
    for number in 0..STARTS {
        let container = extra::create(node, pod, &format!("event{number}"), None)?;
        fault = fault.cleaned_by(extra::removal(containerd.client(), &container));
        containerd.client().start_container(&container, CALL_LIMIT)?;
    }
    wait_for_no_relist(node)?;
    let facts = Facts { culprits: vec![kubelet.pid()], pod: pod.name.clone(), ..Facts::default() };
    Ok(fault.with(facts))
}

/// How often the sync loop has said that it does nothing.
fn skipped(kubelet: &Kubelet) -> usize {
    fs::read_to_string(kubelet.log_path()).unwrap_or_default().matches(SKIPPING).count()
}

fn wait_for_no_relist(node: &Node) -> Result<()> {
    let mut last = (node.relists().context("the kubelet does not answer")?, Instant::now());
    process::wait_for("a relist that does not end", EFFECT_LIMIT, || {
        let now = node.relists()?;
        if now > last.0 {
            last = (now, Instant::now());
        }
        Ok((last.1.elapsed() >= NO_RELIST_FOR).then_some(()))
    })
}
