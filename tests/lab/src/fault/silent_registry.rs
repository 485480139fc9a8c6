//! An image that does not come (R17): the registry sends the beginning of a layer, and then nothing.

use std::fs;

use anyhow::{Context as _, Result};

use super::gated::fresh_name;
use super::guard::{EFFECT_LIMIT, Facts, Fault};
use crate::node::Node;
use crate::process;
use crate::registry::SilentRegistry;

/// A pod whose image stays half pulled: it does not start, nor does any other that needs an image; relists go on.
///
/// # Errors
///
/// When the registry cannot listen, or the runtime does not ask it for the layer.
pub fn silent_registry(node: &Node) -> Result<Fault> {
    let pod = fresh_name("pull");
    let registry = SilentRegistry::start()?;
    let manifest = node.kubelet().add_pod_with_image(&pod, &registry.image())?;
    process::wait_for("a pull that waits for its layer", EFFECT_LIMIT, || {
        Ok(registry.is_silent().then_some(()))
    })?;
    // Before the registry ends: a kubelet that still wants the pod would pull again.
    Ok(Fault::new(Facts::default())
        .healed_by(move || {
            fs::remove_file(manifest).context("cannot remove the manifest of the pod with the image")
        })
        .healed_by(move || {
            drop(registry);
            Ok(())
        }))
}
