//! A CNI plugin that never ends, and a reload of the configuration that waits for it: `Status` waits behind both (R6).
//!
//! From go-cni 1.1.12 on, `(*libcni).Setup` and `Remove` hold the read lock until the last plugin has ended. A reload wants
//! the write lock, and Go's RWMutex lets no new reader pass a writer that waits: `Status` and every other set-up of a network
//! hang. Older ones hold the lock only for a moment: there the same plugin holds up nothing but its pod.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::gated::sleeping_cni;
use super::guard::{BLOCKED_AFTER, CALL_LIMIT, EFFECT_LIMIT, Facts, Fault, HANGING};
use crate::cri::{Call, Client};
use crate::node::Node;
use crate::process;

/// Sorts behind the lab's own configuration, so it is never the one that is used.
const NAME: &str = "99-other.conflist";
/// No configuration by its name; that it gets the other one begins the reload.
const HIDDEN: &str = ".other";
const TEXT: &str = r#"{"cniVersion": "0.4.0", "name": "other", "plugins": [{"type": "loopback"}]}"#;

/// A pod whose CNI plugin never ends, then a change of the configuration: `Status` hangs, lists are answered.
///
/// # Errors
///
/// When the node has no gates, the plugin is not seen, or `Status` is answered still: then its go-cni is an older one.
pub fn cni_reload(node: &Node) -> Result<Fault> {
    let containerd = node.containerd();
    let client = containerd.client();
    let plugin = sleeping_cni(node)?;
    let facts: Facts = plugin.facts().clone();
    let fault = begin(node)?.joined(plugin).with(facts);
    wait_for_silence(client)?;
    let fault = fault.holding(Call::start(client, "Status", |client| client.status(HANGING).map(drop))?);
    client.list_containers(CALL_LIMIT).context("the lists should be answered")?;
    Ok(fault)
}

/// Begins a reload: of one more configuration, which goes when the fault is healed.
pub(super) fn begin(node: &Node) -> Result<Fault> {
    let directory = node.containerd().cni_directory();
    let (hidden, file) = (directory.join(HIDDEN), directory.join(NAME));
    fs::write(&hidden, TEXT).with_context(|| format!("cannot write {}", hidden.display()))?;
    fs::rename(&hidden, &file).context("cannot rename the configuration")?;
    Ok(Fault::new(Facts::default()).healed_by(move || remove(&file)))
}

/// Until `Status` is not answered.
pub(super) fn wait_for_silence(client: &Client) -> Result<()> {
    process::wait_for("an unanswered Status", EFFECT_LIMIT, || {
        Ok(client.status(BLOCKED_AFTER).is_err_and(|error| error.is_deadline()).then_some(()))
    })
}

fn remove(file: &Path) -> Result<()> {
    fs::remove_file(file).with_context(|| format!("cannot remove {}", file.display()))
}
