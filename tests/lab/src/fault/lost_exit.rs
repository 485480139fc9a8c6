//! A shim with the bug of containerd 1.7.21 ([`crate::rebuilt::lossy_shim`]): after a command that could not be started it reaps the
//! first process of its container and reports nothing (S4).

use anyhow::{Context as _, Result, bail, ensure};

use super::extra;
use super::guard::{CALL_LIMIT, EFFECT_LIMIT, Facts, Fault, HANGING};
use crate::cri::{Call, Pod};
use crate::knobs::ShimBuild;
use crate::node::Node;
use crate::process::{self, Process};

/// A container of its own in the sandbox of `pod`, a command in it that does not exist, and the end of its first process: its
/// StopContainer hangs. The pod goes with its shim when it is healed; the kubelet starts it anew.
///
/// # Errors
///
/// When the node has other shims, or the end is reported.
pub fn lost_exit(node: &Node, pod: &Pod) -> Result<Fault> {
    let containerd = node.containerd();
    ensure!(containerd.knobs().shim == ShimBuild::Lossy, "the node's shims lose no exits: set Knobs::shim");
    let client = containerd.client();
    let container = extra::create(node, pod, "lost", None)?;
    let guard = Fault::new(Facts::default()).cleaned_by(extra::removal(client, &container));
    client.start_container(&container, CALL_LIMIT)?;
    if client.exec_sync(&container, &["/missing"], CALL_LIMIT).is_ok() {
        bail!("a command that does not exist was started");
    }
    let shim = Process::running(containerd.shim_of(&pod.sandbox)?).context("the shim has ended")?;
    let init = process::wait_for("the container's process", EFFECT_LIMIT, || {
        let mut inside = process::in_cgroup(&container).into_iter();
        Ok(inside.find(|&pid| process::name(pid) == "pause"))
    })?;
    process::signal(init, libc::SIGKILL)?;
    process::wait_for("the end of the container's process", EFFECT_LIMIT, || {
        Ok(process::state(init).is_none().then_some(()))
    })?;
    let id = container.clone();
    let call =
        Call::start(client, "StopContainer", move |client| client.stop_container(&id, HANGING, HANGING))?;
    let ids = vec![pod.sandbox.clone(), container];
    let (victims, culprits) = (vec![init], vec![shim.pid()]);
    let facts = Facts { victims, culprits, pod: pod.name.clone(), ids, ..Facts::default() };
    Ok(guard.with(facts).holding(call).healed_by_killing(vec![shim]))
}
