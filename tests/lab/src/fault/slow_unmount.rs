//! A container that has written much ends while its disk is slow: its shim waits in umount2(2), in which the kernel first writes all
//! of the file system under the overlay (R3).

use std::fs;

use anyhow::{Context as _, Result, ensure};

use super::extra;
use super::guard::{CALL_LIMIT, EFFECT_LIMIT, Facts, Fault, HANGING};
use super::hostage;
use crate::cri::{Call, Pod};
use crate::disk;
use crate::node::Node;
use crate::process;

/// What the container has written: with one write of at most a mebibyte a second, enough for any test.
const WRITTEN: usize = 128 << 20;
const WRITES_A_SECOND: u32 = 1;

/// A container of its own in the sandbox of `pod`, which has just written a large file when its StopContainer comes. Lists are
/// answered.
///
/// # Errors
///
/// When the node has no disk of its own, the kernel cannot throttle it, or the shim does not wait for it.
pub fn slow_unmount(node: &Node, pod: &Pod) -> Result<Fault> {
    let containerd = node.containerd();
    let snapshotter = containerd.snapshotter();
    ensure!(snapshotter == "overlayfs", "containers are on {snapshotter}, not on overlays");
    let (device, client) = (disk::device(containerd.scratch().path())?, containerd.client());
    let (container, init, guard) = extra::started(node, pod, "writer")?;
    fs::write(format!("/proc/{init}/root/written"), vec![1; WRITTEN])
        .context("cannot write for a container")?;
    disk::throttle(&device, WRITES_A_SECOND)?;
    let guard = guard.healed_by(move || disk::throttle(&device, 0));
    let id = container.clone();
    let call =
        Call::start(client, "StopContainer", move |client| client.stop_container(&id, HANGING, HANGING))?;
    let guard = guard.holding(call);
    let shim = containerd.shim_of(&pod.sandbox)?;
    process::wait_for("an unmount by the shim", EFFECT_LIMIT, || {
        let unmounts = |thread: &process::Blocked| thread.syscall == libc::SYS_umount2;
        Ok(process::blocked_threads(shim).iter().any(unmounts).then_some(()))
    })?;
    client.list_containers(CALL_LIMIT).context("the lists should be answered")?;
    let ids = vec![pod.sandbox.clone(), container];
    Ok(guard.with(Facts { culprits: vec![shim], pod: pod.name.clone(), ids, ..Facts::default() }))
}

/// The same, and an update of that container comes meanwhile: it waits for the disk, then for the shim, under the lock that every list of
/// containers needs (R3: the cause is the unmount; the lock is how the relist comes to wait for it).
///
/// # Errors
///
/// As for [`slow_unmount`], or when lists go on being answered.
pub fn unmount_hostage(node: &Node, pod: &Pod) -> Result<Fault> {
    let guard = slow_unmount(node, pod)?;
    let containerd = node.containerd();
    let container = guard.facts().ids.last().context("a container")?.clone();
    let client = containerd.client_of(containerd.knobs().generation.api())?;
    let update = Call::start(&client, "UpdateContainerResources", move |client| {
        client.update_container_resources(&container, 512, HANGING)
    })?;
    let guard = guard.holding(update);
    hostage::wait_for_hanging_list(containerd)?;
    Ok(guard)
}
