//! containerd locks itself out of NRI (R16): a plugin asks for updates while a container is updated, and each waits for the lock of the
//! other. containerd 1.7 of trixie has this bug.

use anyhow::{Result, bail, ensure};

use super::guard::{BLOCKED_AFTER, Facts, Fault, HANGING};
use super::killed::start_again;
use crate::cri::{Call, Pod};
use crate::node::Node;
use crate::nri_plugin::NriPlugin;

/// How often a container is updated until it happens; mostly it takes a few.
const UPDATES: u32 = 400;

/// Updates a container, beside a plugin that asks for updates, until an update hangs: every start, stop and update of a container waits, lists
/// are answered. Healing kills containerd and starts it again, because nothing less helps.
///
/// # Errors
///
/// When the node has no NRI ([`crate::Knobs::nri`]), or no update hangs.
pub fn nri_locks(node: &Node, pod: &Pod) -> Result<Fault> {
    let containerd = node.containerd();
    ensure!(containerd.knobs().nri, "the node has no NRI: set Knobs::nri");
    let (client, daemon) = (containerd.client(), containerd.daemon().clone());
    let plugin = NriPlugin::start(&containerd.nri_socket())?;
    let restarted = client.clone();
    let facts = Facts { culprits: vec![containerd.pid()], ..Facts::default() };
    let fault = Fault::new(facts).healed_by(move || {
        drop(plugin);
        daemon.kill()?;
        start_again(&daemon, &restarted)
    });
    for shares in 0..UPDATES {
        match client.update_container_resources(&pod.container, 100 + i64::from(shares), BLOCKED_AFTER) {
            Err(error) if error.is_deadline() => {
                client.list_containers(BLOCKED_AFTER)?;
                let container = pod.container.clone();
                return Ok(fault.holding(Call::start(client, "UpdateContainerResources", move |client| {
                    client.update_container_resources(&container, 100, HANGING).map(drop)
                })?));
            }
            result => result?,
        }
    }
    bail!("no update of {UPDATES} hangs")
}
