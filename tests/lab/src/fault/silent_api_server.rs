//! An API server that does not answer (L1): it is stopped by a signal, so the kernel still takes what the kubelet sends.

use std::fs;

use anyhow::{Context as _, Result};

use super::gated::fresh_name;
use super::guard::{Facts, Fault};
use super::stopped::stop_process;
use crate::node::Node;

/// Stops the API server of a node of [`crate::Knobs::control_plane`]: what the kubelet asks it is not answered. A pod that comes makes it
/// ask; relists go on.
///
/// # Errors
///
/// When the node has no API server, or it does not stop.
pub fn silent_api_server(node: &Node) -> Result<Fault> {
    let plane = node.control_plane()?;
    let stopped = stop_process(plane.api_server().pid())?;
    let pod = fresh_name("unreported");
    node.kubelet().add_pod(&pod)?;
    let (manifests, name) = (node.kubelet().manifests(), node.name());
    let manifest = crate::kubelet::manifest_path(&manifests, &pod);
    // On a node of its own nobody but the kubelet asks. That is the victim; the culprit is on another machine, as a rule.
    let facts = Facts { victims: vec![node.kubelet().pid()], ..Facts::default() };
    let kubeconfig = plane.kubeconfig().to_owned();
    Ok(Fault::new(facts)
        .healed_by(move || {
            drop(stopped);
            crate::control_plane::wait_for_node(&kubeconfig, &name)
        })
        .cleaned_by(move || fs::remove_file(manifest).context("cannot remove the manifest of a pod")))
}
