//! A kubelet that is started again on a node with many containers (K3): its first relist finds every pod changed, and
//! asks for the status of each of their containers, one after the other.

use std::thread;

use anyhow::{Result, bail, ensure};

use super::extra;
use super::guard::{CALL_LIMIT, EFFECT_LIMIT, Facts, Fault};
use crate::cri::Pod;
use crate::node::Node;
use crate::{http, process};

/// Pods from which the rule speaks.
pub(super) const PODS: usize = 20;
/// Created containers in each pod: the kubelet keeps them, because no two have the same name, and asks for each.
const CONTAINERS: usize = 220;
/// Threads that make them: each waits for the disk most of the time.
const THREADS: usize = 8;

/// Fills the pods of a node of [`super::Kind::knobs`] with containers that are never started; they go with the node.
///
/// # Errors
///
/// When there are too few pods, or a container cannot be made.
pub fn fill_pods(node: &Node) -> Result<()> {
    let pods = node.kubelet().running_pods()?;
    ensure!(pods.len() >= PODS, "{} pods are too few: set Knobs::pods to {PODS}", pods.len());
    let there = node.containerd().client().list_containers(CALL_LIMIT)?.len();
    if there >= pods.len() * CONTAINERS {
        return Ok(());
    }
    thread::scope(|scope| {
        let part = |first: usize| pods.iter().skip(first).step_by(THREADS);
        let makers: Vec<_> = (0..THREADS)
            .map(|first| scope.spawn(move || part(first).try_for_each(|pod| fill(node, pod))))
            .collect();
        let made: Vec<_> = makers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        for result in made {
            let Ok(result) = result else { bail!("a thread that makes containers panicked") };
            result?;
        }
        Ok(())
    })
}

fn fill(node: &Node, pod: &Pod) -> Result<()> {
    (0..CONTAINERS).try_for_each(|number| extra::create(node, pod, &format!("dead{number}"), None).map(drop))
}

/// Starts the kubelet again on a node whose pods are full. Nothing has to be healed; the culprit is the new kubelet.
///
/// # Errors
///
/// When the pods cannot be filled, or the kubelet does not come up again.
pub fn many_changed_pods(node: &Node) -> Result<Fault> {
    fill_pods(node)?;
    let kubelet = node.kubelet();
    kubelet.daemon().kill()?;
    kubelet.daemon().restart()?;
    process::wait_for("an answer of the new kubelet", EFFECT_LIMIT, || {
        Ok(http::get(kubelet.healthz_address(), "/healthz", CALL_LIMIT).ok().map(drop))
    })?;
    Ok(Fault::new(Facts { culprits: vec![kubelet.pid()], ..Facts::default() }))
}
