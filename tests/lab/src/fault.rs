//! Faults that are injected for real: processes are stopped, locks are held. Each ends when its guard is dropped.

use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::containerd::Containerd;
use crate::cri::{self, Pod};
use crate::process;

/// The hostage's own deadline: longer than any test or demo, so that it ends by SIGCONT.
const HOSTAGE_DEADLINE: Duration = Duration::from_secs(3600);
/// For a signal or an RPC to take effect.
const EFFECT_LIMIT: Duration = Duration::from_secs(30);
/// A list that takes this long is taken for blocked; a healthy one takes 0.2 ms.
const BLOCKED_AFTER: Duration = Duration::from_secs(1);

/// A process under SIGSTOP; continues when dropped.
#[derive(Debug)]
pub struct Stopped {
    pid: u32,
    identity: Option<String>,
}

impl Stopped {
    /// The stopped process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // It may be gone, and its number may belong to another process by now.
        if process::identity(self.pid) == self.identity {
            let _ = process::signal(self.pid, libc::SIGCONT);
        }
    }
}

/// Stops a process (SIGSTOP) and waits until it has stopped.
///
/// # Errors
///
/// When it cannot be signalled or does not stop.
pub fn stop_process(pid: u32) -> Result<Stopped> {
    let stopped = Stopped { pid, identity: process::identity(pid) };
    process::signal(pid, libc::SIGSTOP)?;
    process::wait_for(&format!("the stop of process {pid}"), EFFECT_LIMIT, || {
        Ok((process::state(pid) == Some('T')).then_some(()))
    })?;
    Ok(stopped)
}

/// A container's status lock inside containerd, held by an UpdateContainerResources that waits for a stopped shim:
/// every ListContainers waits behind it, ListPodSandbox does not. Heals when dropped.
#[derive(Debug)]
pub struct Hostage {
    stopped: Option<Stopped>,
    pod: Pod,
    result: Receiver<Result<(), cri::Error>>,
}

impl Hostage {
    /// The stopped shim.
    #[must_use]
    pub fn shim(&self) -> u32 {
        self.stopped.as_ref().map_or(0, Stopped::pid)
    }

    /// The pod whose container is locked.
    #[must_use]
    pub fn pod(&self) -> &Pod {
        &self.pod
    }

    /// Lets the shim continue and waits for the answer of the update.
    ///
    /// # Errors
    ///
    /// When the update failed or did not end.
    pub fn release(mut self) -> Result<()> {
        drop(self.stopped.take());
        let answer =
            self.result.recv_timeout(EFFECT_LIMIT).context("the update did not end after SIGCONT")?;
        answer.context("the update failed after SIGCONT")
    }
}

impl Drop for Hostage {
    fn drop(&mut self) {
        drop(self.stopped.take());
        // The answer comes within milliseconds; when containerd was killed, the broken connection is one too. When it
        // was stopped, its caller is left alone: it must not hold up the teardown.
        let _ = self.result.recv_timeout(EFFECT_LIMIT);
    }
}

/// Takes the status lock of `pod`'s container hostage and waits until ListContainers is seen to hang.
///
/// # Errors
///
/// When the shim cannot be found or stopped, or ListContainers goes on answering.
pub fn lock_hostage(containerd: &Containerd, pod: &Pod) -> Result<Hostage> {
    let shim = containerd.shim_of(&pod.sandbox)?;
    let client = containerd.client_of(containerd.knobs().generation.api())?;
    let stopped = stop_process(shim)?;
    let (sender, result) = mpsc::channel();
    let container = pod.container.clone();
    std::thread::spawn(move || {
        let answer = client.update_container_resources(&container, 512, HOSTAGE_DEADLINE);
        // Nobody listens any more when the hostage was dropped.
        let _ = sender.send(answer);
    });
    let hostage = Hostage { stopped: Some(stopped), pod: pod.clone(), result };
    process::wait_for("a hanging ListContainers", EFFECT_LIMIT, || {
        match containerd.client().list_containers(BLOCKED_AFTER) {
            Err(error) if error.is_deadline() => Ok(Some(())),
            Err(error) => Err(error.into()),
            Ok(_) => Ok(None),
        }
    })?;
    Ok(hostage)
}
