//! The guest's own containerd is up and its CRI socket answers, as a kubelet would see it.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::cri::Client;
use crate::wait::{self, BUDGET};

/// Asks systemd for the unit and the socket for its version and its (empty) list of containers.
///
/// # Errors
/// When the unit is not active or a request is not answered in time.
pub fn run() -> Result<String> {
    wait::until("containerd to be active", BUDGET, || {
        let state = wait::output(Command::new("systemctl").args(["is-active", "containerd"]), BUDGET)?;
        Ok((state.trim() == "active").then_some(()))
    })?;
    let client = wait::until("the CRI socket", BUDGET, || Client::connect().map(Some))?;
    let reply = client.call("Version")?;
    ensure!(
        reply.windows(10).any(|window| window == b"containerd"),
        "the Version reply of {} bytes does not name containerd",
        reply.len()
    );
    client.call("ListContainers").context("ListContainers failed")?;
    Ok(format!("answers {} on {}", client.api(), client.socket()))
}
