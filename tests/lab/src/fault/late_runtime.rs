//! A runtime that comes back late: the kubelet's gRPC client waits before it tries to connect again (K8).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::guard::{EFFECT_LIMIT, Facts, Fault};
use super::killed::start_again;
use super::stopped::{stop_process, wait_for_silence};
use crate::node::Node;
use crate::{http, process};

/// After so many attempts in vain gRPC waits for 27 s (1 s × 1.6⁷), give or take a fifth.
const ATTEMPTS: usize = 8;
/// The kubelet has a connection for each of the two services of CRI.
const CONNECTIONS: usize = 2;
/// What grpc-go logs after each attempt in vain.
const IN_VAIN: &str = "createTransport failed to connect to";
/// Until the last of the attempts: 43 s, give or take a fifth.
const DOWN_LIMIT: Duration = Duration::from_secs(90);

/// Kills containerd and starts it again out of the kubelet's sight, which tries in vain to connect, and lets its socket appear right
/// after one of the attempts. A new kubelet, which connects at once, heals it.
///
/// # Errors
///
/// The kubelet does not try, or containerd does not come up again.
pub fn late_runtime(node: &Node) -> Result<Fault> {
    let (containerd, kubelet) = (node.containerd(), node.kubelet());
    let facts = Facts { culprits: vec![kubelet.pid()], ..Facts::default() };
    let (daemon, address) = (kubelet.daemon().clone(), kubelet.healthz_address());
    let fault = Fault::new(facts).healed_by(move || {
        daemon.kill()?;
        wait_for_silence(address)?;
        daemon.restart()?;
        process::wait_for("an answer of the new kubelet", EFFECT_LIMIT, || {
            Ok(http::get(address, "/healthz", Duration::from_secs(2)).ok().map(drop))
        })
    });
    let log = kubelet.log_path();
    let wanted = attempts(&log, containerd.socket())? + ATTEMPTS * CONNECTIONS;
    // How long containerd takes to start shall not count.
    let stopped = stop_process(kubelet.pid())?;
    containerd.daemon().kill()?;
    start_again(containerd.daemon(), containerd.client())?;
    let away = Away::of(containerd.socket())?;
    drop(stopped);
    process::wait_for("attempts of the kubelet to connect", DOWN_LIMIT, || {
        Ok((attempts(&log, containerd.socket())? >= wanted).then_some(()))
    })?;
    drop(away);
    Ok(fault)
}

/// A socket under another name; under its own again when dropped.
struct Away<'a> {
    socket: &'a Path,
    name: PathBuf,
}

impl<'a> Away<'a> {
    fn of(socket: &'a Path) -> Result<Self> {
        let name = socket.with_extension("away");
        fs::rename(socket, &name).context("cannot rename a socket")?;
        Ok(Self { socket, name })
    }
}

impl Drop for Away<'_> {
    fn drop(&mut self) {
        // The lab may have ended, and its files with it.
        let _ = fs::rename(&self.name, self.socket);
    }
}

/// How often the kubelet has tried in vain to connect to this socket.
fn attempts(log: &Path, socket: &Path) -> Result<usize> {
    let (text, socket) =
        (fs::read_to_string(log).context("no log of the kubelet")?, socket.to_string_lossy());
    Ok(text.lines().filter(|line| line.contains(IN_VAIN) && line.contains(socket.as_ref())).count())
}
