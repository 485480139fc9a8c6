//! A kubelet that has locked itself out (K10), on a node of [`crate::Knobs::locking_kubelet`]: its pod manager takes its own lock a second
//! time.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::gated::fresh_name;
use super::guard::{EFFECT_LIMIT, Facts, Fault};
use crate::kubelet::{LOCKING_POD, manifest_path};
use crate::node::Node;
use crate::{http, process};

/// A pod at which the kubelet's sync loop waits for a lock that it has itself: no pod is started, changed or removed, and relists go on.
/// Healing starts the kubelet again.
///
/// # Errors
///
/// When the kubelet is not the one with the defect, or goes on.
pub fn locked_kubelet(node: &Node) -> Result<Fault> {
    let kubelet = node.kubelet();
    ensure!(
        node.containerd().knobs().locking_kubelet,
        "the kubelet does not lock itself out: set Knobs::locking_kubelet"
    );
    let pod = fresh_name(LOCKING_POD);
    kubelet.add_pod(&pod)?;
    let manifest = manifest_path(&kubelet.manifests(), &pod);
    let (daemon, address) = (kubelet.daemon().clone(), kubelet.healthz_address());
    let facts = Facts { culprits: vec![kubelet.pid()], ..Facts::default() };
    let fault = Fault::new(facts).healed_by(move || {
        fs::remove_file(manifest)
            .context("cannot remove the manifest of the pod at which the kubelet locks itself out")?;
        daemon.kill()?;
        daemon.restart()?;
        process::wait_for("an answer of the new kubelet", EFFECT_LIMIT, || {
            Ok(http::get(address, "/healthz", Duration::from_secs(2)).ok().map(drop))
        })
    });
    // Its list of pods needs the lock.
    process::wait_for("a kubelet that does not list its pods", EFFECT_LIMIT, || {
        Ok(http::get(kubelet.read_only_address(), "/pods", Duration::from_secs(2)).is_err().then_some(()))
    })?;
    Ok(fault)
}
