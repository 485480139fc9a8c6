//! A CNI plugin that never ends, below the dockershim (N1): the kubelet itself runs it, and holds the pod's lock for the
//! network meanwhile. The status of the sandbox needs that lock, so the relist hangs as soon as it asks for it.
//!
//! The dockershim of 1.20 does not ask for the network of a sandbox that has none yet, so it takes a pod that ends.

use anyhow::{Context as _, Result, ensure};

use super::gated::{LONG, fresh_name, gates, opening, plugin_of, removal};
use super::guard::{BLOCKED_AFTER, EFFECT_LIMIT, Facts, Fault};
use super::relists;
use crate::gate::{self, Order, Place};
use crate::knobs::Network;
use crate::node::Node;
use crate::process::{self, Process};

/// A pod of the kubelet that ends, whose CNI plugin sleeps at that: PodSandboxStatus of its sandbox hangs, and with it the
/// relist. After 220 s the dockershim of 1.20 ends the plugin, and runs it again.
///
/// # Errors
///
/// When the node has no Docker, no gates or no bridge, or the effect is not seen.
pub fn sleeping_cni_of_dockershim(node: &Node) -> Result<Fault> {
    let (docker, dir) = (node.docker()?, gates(node)?);
    ensure!(
        node.containerd().knobs().network == Network::Bridge,
        "the node's pods have no network of their own: set Knobs::network to Network::Bridge"
    );
    let (kubelet, client) = (node.kubelet(), node.kubelet().client());
    let short = fresh_name("cni");
    // As the kubelet calls a static pod.
    let name = format!("{short}-{}", node.containerd().scratch().network());
    let file = gate::close(dir, Place::CniDelete, &name, &Order::Sleep(LONG))?;
    let guard = Fault::new(Facts::default()).healed_by(opening(file)).cleaned_by(removal(client, &name));
    kubelet.add_pod(&short)?;
    let pod = process::wait_for("the start of the pod", EFFECT_LIMIT, || Ok(node.pod(&short).ok()));
    // It must not stay when it does not start.
    kubelet.remove_pod(&short)?;
    let pod = pod?;
    let plugin = process::wait_for("a sleeping CNI plugin below the kubelet", EFFECT_LIMIT, || {
        Ok(plugin_of(dir, &name, libc::SYS_clock_nanosleep, kubelet.pid()))
    })?;
    let (culprits, ids) = (vec![plugin.pid()], vec![pod.sandbox.clone(), pod.container]);
    let guard = guard.with(Facts { culprits, pod: name, ids, ..Facts::default() });
    let guard = guard.healed_by_killing(vec![plugin]);
    process::wait_for("a hanging PodSandboxStatus", EFFECT_LIMIT, || {
        let status = client.pod_sandbox_status(&pod.sandbox, BLOCKED_AFTER);
        Ok(status.is_err_and(|error| error.is_deadline()).then_some(()))
    })?;
    // A relist may have seen the end of the container before the plugin ran. It asks again when the sandbox ends.
    let sandbox = Process::running(docker.process_of(&pod.sandbox)?).context("the sandbox has ended")?;
    sandbox.kill(EFFECT_LIMIT)?;
    relists::wait_until_they_hang(node)?;
    Ok(guard)
}
