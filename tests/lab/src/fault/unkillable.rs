//! A process that SIGKILL does not end, because it waits in the kernel for a FUSE server that has read its request (X6).

use std::fs;

use anyhow::{Context as _, Result};

use super::answerers::DeadMount;
use super::extra;
use super::guard::{CALL_LIMIT, EFFECT_LIMIT, Facts, Fault, HANGING};
use crate::cri::{Call, Pod};
use crate::node::Node;
use crate::process;

/// A container of its own in the sandbox of `pod` whose only process reads a file on FUSE that nobody serves. Its StopContainer sends SIGTERM,
/// then SIGKILL, and hangs.
///
/// # Errors
///
/// When the kernel has no FUSE, the container cannot be made, or its process ends.
pub fn unkillable(node: &Node, pod: &Pod) -> Result<Fault> {
    let client = node.containerd().client();
    let host = node.containerd().scratch().path().join("unkillable");
    fs::create_dir_all(&host).context("cannot make a directory")?;
    let mount = DeadMount::mount(host.join("fuse"))?;
    let container = extra::running(node, pod, "unkillable", host.clone(), &["cat", "/host/fuse/data"])?;
    let guard = Fault::new(Facts::default()).cleaned_by(extra::removal(client, &container));
    let guard = guard.healed_by(move || {
        mount.unmount()?;
        fs::remove_dir_all(&host).context("cannot remove a directory")
    });
    client.start_container(&container, CALL_LIMIT)?;
    let reader = process::wait_for("a container that reads from FUSE", EFFECT_LIMIT, || {
        let waits =
            |pid: &u32| process::blocked_threads(*pid).iter().any(|one| one.wchan.contains("request_wait"));
        Ok(process::in_cgroup(&container).into_iter().find(waits))
    })?;
    let id = container.clone();
    let call = Call::start(client, "StopContainer", move |client| {
        client.stop_container(&id, std::time::Duration::from_secs(1), HANGING)
    })?;
    let guard = guard.holding(call);
    process::wait_for("a process that was killed", EFFECT_LIMIT, || Ok(is_killed(reader).then_some(())))?;
    let ids = vec![pod.sandbox.clone(), container];
    let (victims, culprits) = (vec![reader], vec![std::process::id()]);
    Ok(guard.with(Facts { victims, culprits, pod: pod.name.clone(), ids, path: None }))
}

/// Is SIGKILL pending?
fn is_killed(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let pending =
        status.lines().filter_map(|line| line.strip_prefix("SigPnd:").or(line.strip_prefix("ShdPnd:")));
    pending
        .filter_map(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .any(|mask| mask & 1 << (libc::SIGKILL - 1) != 0)
}
