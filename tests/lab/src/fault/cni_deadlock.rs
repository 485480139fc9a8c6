//! A containerd with the bug of 2.0.1 ([`crate::rebuilt::deadlocking`]): a reload of the CNI configuration while a plugin
//! runs locks it out of its networks until it is restarted (R5).

use anyhow::{Context as _, Result, ensure};

use super::cni_reload::{begin, wait_for_silence};
use super::gated::{fresh_name, gates, sandbox};
use super::guard::{CALL_LIMIT, EFFECT_LIMIT, Facts, Fault, HANGING};
use super::killed::start_again;
use crate::cache::Lock;
use crate::cri::Call;
use crate::gate::{self, Order};
use crate::node::Node;
use crate::process;

/// A pod whose CNI plugin works until the reload has come, and then ends as it should: RunPodSandbox and `Status` hang, lists
/// are answered, and no plugin runs. Healing kills containerd and starts it again, because nothing less helps.
///
/// # Errors
///
/// When the node has another containerd or no gates, or `Status` is answered still.
pub fn cni_deadlock(node: &Node) -> Result<Fault> {
    let containerd = node.containerd();
    ensure!(
        containerd.knobs().deadlocking,
        "the node's containerd does not lock itself out: set Knobs::deadlocking"
    );
    let (client, dir) = (containerd.client(), gates(node)?);
    let lock = dir.join(fresh_name("cni-lock"));
    let held = Lock::wait(&lock)?;
    let (setup, _) = sandbox(node, &fresh_name("cni"), &Order::Lock(lock, 0), libc::SYS_flock)?;
    let (daemon, restarted) = (containerd.daemon().clone(), client.clone());
    let facts = Facts { culprits: vec![containerd.pid()], ..setup.facts().clone() };
    let again = move || {
        daemon.kill()?;
        start_again(&daemon, &restarted)
    };
    let fault = begin(node)?.healed_by(again).joined(setup).with(facts);
    wait_for_silence(client)?;
    drop(held);
    process::wait_for("the end of all CNI plugins", EFFECT_LIMIT, || {
        let runs = process::marked(dir).into_iter().any(|pid| process::name(pid) == gate::NAME);
        Ok((!runs).then_some(()))
    })?;
    wait_for_silence(client)?;
    client.list_containers(CALL_LIMIT).context("the lists should be answered")?;
    Ok(fault.holding(Call::start(client, "Status", |client| client.status(HANGING).map(drop))?))
}
