//! A device plugin that does not answer (K9): the kubelet asks it in its sync loop, without a deadline.

use std::fs;

use anyhow::{Context as _, Result};

use super::gated::fresh_name;
use super::guard::{EFFECT_LIMIT, Facts, Fault};
use crate::device_plugin::{DevicePlugin, RESOURCE};
use crate::node::Node;
use crate::process;

/// A pod that wants a device whose plugin stops when it is asked: neither this pod nor any other is started, changed or removed, and relists
/// go on. The plugin answers once it continues.
///
/// # Errors
///
/// When the plugin does not register, or the kubelet does not ask it.
pub fn stopped_device_plugin(node: &Node) -> Result<Fault> {
    let (kubelet, pod) = (node.kubelet(), fresh_name("device"));
    let plugin = DevicePlugin::start(&kubelet.device_plugins())?;
    let pid = plugin.pid();
    let manifest = kubelet.add_pod_with_device(&pod, RESOURCE)?;
    let facts = Facts { victims: vec![kubelet.pid()], culprits: vec![pid], ..Facts::default() };
    let guard =
        Fault::new(facts).healed_by(move || process::signal(pid, libc::SIGCONT)).cleaned_by(move || {
            let removed =
                fs::remove_file(manifest).context("cannot remove the manifest of the pod with the device");
            drop(plugin);
            removed
        });
    process::wait_for("the stop of the device plugin", EFFECT_LIMIT, || {
        Ok((process::state(pid) == Some('T')).then_some(()))
    })?;
    Ok(guard)
}
