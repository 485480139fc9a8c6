//! Daemons that were killed (SIGKILL) and not started again: the kubelet (K7), the runtime (R15); or started again, as
//! by an init system.

use std::time::Duration;

use anyhow::Result;

use super::guard::{EFFECT_LIMIT, Facts, Fault};
use super::stopped::wait_for_silence;
use crate::cri::Client;
use crate::daemon::Daemon;
use crate::node::Node;
use crate::{http, process};

/// Kills the kubelet: nobody lists. Healing starts it again.
///
/// # Errors
///
/// When it cannot be killed.
pub fn kill_kubelet(node: &Node) -> Result<Fault> {
    let kubelet = node.kubelet();
    let facts = Facts { culprits: vec![kubelet.pid()], ..Facts::default() };
    let (daemon, address) = (kubelet.daemon().clone(), kubelet.healthz_address());
    daemon.kill()?;
    wait_for_silence(address)?;
    Ok(Fault::new(facts).healed_by(move || {
        daemon.restart()?;
        process::wait_for("an answer of the new kubelet", EFFECT_LIMIT, || {
            Ok(http::get(address, "/healthz", Duration::from_secs(2)).ok().map(drop))
        })
    }))
}

/// Kills containerd: its shims and pods live on, its socket refuses. Healing starts it again.
///
/// # Errors
///
/// When it cannot be killed.
pub fn kill_containerd(node: &Node) -> Result<Fault> {
    let containerd = node.containerd();
    let facts = Facts {
        culprits: vec![containerd.pid()],
        path: Some(containerd.socket().to_owned()),
        ..Facts::default()
    };
    let (daemon, client) = (containerd.daemon().clone(), containerd.client().clone());
    daemon.kill()?;
    Ok(Fault::new(facts).healed_by(move || start_again(&daemon, &client)))
}

/// Kills containerd and starts it again at once: nothing has to be healed. The culprit is the new process.
///
/// # Errors
///
/// When it cannot be killed, or does not come up again.
pub fn restart_containerd(node: &Node) -> Result<Fault> {
    let containerd = node.containerd();
    containerd.daemon().kill()?;
    start_again(containerd.daemon(), containerd.client())?;
    Ok(Fault::new(Facts { culprits: vec![containerd.pid()], ..Facts::default() }))
}

pub(super) fn start_again(daemon: &Daemon, client: &Client) -> Result<()> {
    daemon.restart()?;
    process::wait_for("an answer of the new containerd", EFFECT_LIMIT, || {
        Ok(client.version(Duration::from_secs(2)).ok().map(drop))
    })
}
