//! The lock of one container inside dockerd (R11): a signal for the container waits for its stopped shim, and dockerd
//! holds the container's lock until it has an answer. The list of containers needs no lock, the state of this one does.

use anyhow::{Context as _, Result, ensure};

use super::guard::{BLOCKED_AFTER, CALL_LIMIT, EFFECT_LIMIT, HANGING};
use super::relists;
use super::stopped::{Stopped, stop_process};
use crate::cri::{ContainerState, Pod};
use crate::docker::Request;
use crate::http::Unanswered;
use crate::node::Node;
use crate::process::{self, Process};

/// What `/pause` ignores, so that nothing has changed after the healing.
const HARMLESS: &str = "WINCH";

/// A container whose lock inside dockerd is held for as long as its shim is stopped. Heals when dropped.
#[derive(Debug)]
#[must_use = "a dropped fault is healed"]
pub struct ContainerLock {
    stopped: Option<Stopped>,
    kill: Option<Request>,
    pod: Pod,
}

impl ContainerLock {
    /// The stopped shim.
    #[must_use]
    pub fn shim(&self) -> u32 {
        self.stopped.as_ref().map_or(0, Stopped::pid)
    }

    /// The pod of the container, and the container.
    #[must_use]
    pub fn pod(&self) -> &Pod {
        &self.pod
    }

    /// Whether the request that holds the lock is without an answer.
    pub fn is_held(&mut self) -> bool {
        self.kill.as_mut().is_some_and(Request::is_pending)
    }

    /// Ends the other containers of the pod: the relist then asks for the state of all of them, and hangs for the one
    /// that is locked. The kubelet starts the others again after the healing.
    ///
    /// # Errors
    ///
    /// When the pod has no other container ([`crate::Knobs::containers`]), or relists go on.
    pub fn stall_relist(&self, node: &Node) -> Result<()> {
        let docker = node.docker()?;
        let is_other = |id: &str| id != self.pod.container;
        let others: Vec<String> =
            containers(node, &self.pod)?.into_iter().filter(|id| is_other(id)).collect();
        ensure!(!others.is_empty(), "the pod has one container only: set Knobs::containers to 2");
        for other in others {
            let process = Process::running(docker.process_of(&other)?).context("the container has ended")?;
            process.kill(EFFECT_LIMIT)?;
        }
        relists::wait_until_they_hang(node)
    }

    /// Lets the shim continue and waits for the answer of the request that held the lock.
    ///
    /// # Errors
    ///
    /// When the request failed or did not end.
    pub fn release(mut self) -> Result<()> {
        drop(self.stopped.take());
        let kill = self.kill.take().context("the lock is not held")?;
        kill.wait(EFFECT_LIMIT).context("the signal was not sent after SIGCONT")
    }
}

impl Drop for ContainerLock {
    fn drop(&mut self) {
        drop(self.stopped.take());
    }
}

/// The running containers of a pod.
fn containers(node: &Node, pod: &Pod) -> Result<Vec<String>> {
    let all = node.kubelet().client().list_containers(CALL_LIMIT)?;
    let running = i32::from(ContainerState::Running);
    let own = all.into_iter().filter(|found| found.pod_sandbox_id == pod.sandbox && found.state == running);
    Ok(own.map(|found| found.id).collect())
}

/// Has the lock of `pod`'s container held inside dockerd, and waits until dockerd is seen not to tell its state.
///
/// # Errors
///
/// When the node has no Docker, the shim cannot be found or stopped, or dockerd goes on telling the state.
pub fn container_lock(node: &Node, pod: &Pod) -> Result<ContainerLock> {
    let api = node.docker()?.api();
    let container = &pod.container;
    let stopped = stop_process(node.containerd().shim_of(container)?)?;
    let kill = api.start(&format!("/containers/{container}/kill?signal={HARMLESS}"), HANGING)?;
    let lock = ContainerLock { stopped: Some(stopped), kill: Some(kill), pod: pod.clone() };
    let path = format!("/containers/{container}/json");
    process::wait_for("a container whose state dockerd does not tell", EFFECT_LIMIT, || {
        match api.get(&path, BLOCKED_AFTER) {
            Err(error) if Unanswered::is_in(&error) => Ok(Some(())),
            Err(error) => Err(error),
            Ok(_) => Ok(None),
        }
    })?;
    Ok(lock)
}
