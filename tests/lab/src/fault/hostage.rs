//! The lock hostage (R1): an update of a container's resources that waits for a stopped shim, under a lock that every
//! list of containers needs.

use anyhow::{Context as _, Result};

use super::guard::{BLOCKED_AFTER, EFFECT_LIMIT, HANGING};
use super::stopped::{Stopped, stop_process};
use crate::containerd::Containerd;
use crate::cri::{Call, Pod};
use crate::process;

/// A container's status lock inside containerd, held by an UpdateContainerResources that waits for a stopped shim:
/// every ListContainers waits behind it, ListPodSandbox does not. Heals when dropped.
#[derive(Debug)]
pub struct Hostage {
    stopped: Option<Stopped>,
    pod: Pod,
    update: Option<Call>,
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
        let update = self.update.as_mut().context("the hostage has no update")?;
        let answer = update.wait(EFFECT_LIMIT).context("the update did not end after SIGCONT")?;
        answer.context("the update failed after SIGCONT")
    }

    /// The stopped shim and the update that waits for it.
    pub(super) fn into_parts(mut self) -> Option<(Stopped, Call)> {
        self.stopped.take().zip(self.update.take())
    }
}

impl Drop for Hostage {
    fn drop(&mut self) {
        drop(self.stopped.take());
        // The answer comes within milliseconds; when containerd was killed, the broken connection is one too. When it
        // was stopped, the update is given up: it must not hold up the teardown.
        if let Some(update) = &mut self.update {
            let _ = update.wait(EFFECT_LIMIT);
        }
    }
}

/// Takes the status lock of `pod`'s container hostage and waits until ListContainers is seen to hang.
///
/// # Errors
///
/// When the shim cannot be found or stopped, or ListContainers goes on answering.
pub fn lock_hostage(containerd: &Containerd, pod: &Pod) -> Result<Hostage> {
    let shim = containerd.shim_of(&pod.sandbox)?;
    // A connection of its own, as that of another client of the node.
    let client = containerd.client_of(containerd.knobs().generation.api())?;
    let stopped = stop_process(shim)?;
    let container = pod.container.clone();
    let update = Call::start(&client, "UpdateContainerResources", move |client| {
        client.update_container_resources(&container, 512, HANGING)
    })?;
    let hostage = Hostage { stopped: Some(stopped), pod: pod.clone(), update: Some(update) };
    wait_for_hanging_list(containerd)?;
    Ok(hostage)
}

/// Waits until a list of containers is not answered.
pub(super) fn wait_for_hanging_list(containerd: &Containerd) -> Result<()> {
    process::wait_for("a hanging ListContainers", EFFECT_LIMIT, || {
        match containerd.client().list_containers(BLOCKED_AFTER) {
            Err(error) if error.is_deadline() => Ok(Some(())),
            Err(error) if error.is_broken_connection() => {
                eprintln!("lock hostage: {error}; asking again");
                Ok(None)
            }
            Err(error) => Err(error.into()),
            Ok(_) => Ok(None),
        }
    })
}
