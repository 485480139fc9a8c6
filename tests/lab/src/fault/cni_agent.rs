//! CNI plugins whose agent does not answer (N3): one that runs in a container and has accepted the connection, as of
//! networks that run in pods, and a service of the host that was stopped before.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::extra;
use super::gated::{self, fresh_name, sandbox};
use super::guard::{CALL_LIMIT, EFFECT_LIMIT, Facts, Fault};
use super::stopped::stop_process;
use crate::cri::Pod;
use crate::gate::{self, Order};
use crate::node::Node;
use crate::process::{self, Process};

/// What the agent's program is called, and its socket.
const PROGRAM: &str = "lab-agent";
const SOCKET: &str = "agent.sock";

/// A directory with the agent's program, in which it makes its socket.
fn home(node: &Node) -> Result<PathBuf> {
    let home = gated::gates(node)?.join(fresh_name("agent"));
    fs::create_dir(&home).with_context(|| format!("cannot make {}", home.display()))?;
    fs::copy(gate::program()?, home.join(PROGRAM)).context("cannot install the agent")?;
    Ok(home)
}

/// A pod whose CNI plugin asks the agent in `home`, and waits.
fn asking(node: &Node, home: &Path, agent: &Process) -> Result<Fault> {
    let order = Order::Ask(home.join(SOCKET));
    let (fault, plugin) = sandbox(node, &fresh_name("asking"), &order, libc::SYS_recvfrom)?;
    let facts = Facts { victims: vec![plugin.pid()], culprits: vec![agent.pid()], ..fault.facts().clone() };
    Ok(fault.with(facts))
}

/// Waits until an agent waits for connections.
fn listening(pid: u32) -> Result<Process> {
    let accepts = || process::blocked_threads(pid).iter().any(|thread| thread.syscall == libc::SYS_accept);
    process::wait_for("an agent that listens", EFFECT_LIMIT, || {
        Ok(Process::running(pid).filter(|_| accepts()))
    })
}

/// A pod whose CNI plugin waits for an agent in a container of `pod`, which has accepted its connection and does not answer:
/// its RunPodSandbox hangs.
///
/// # Errors
///
/// When the node has no gates, or the agent or the plugin is not seen.
pub fn silent_cni_agent(node: &Node, pod: &Pod) -> Result<Fault> {
    let (client, home) = (node.containerd().client(), home(node)?);
    let (program, socket) = (format!("/host/{PROGRAM}"), format!("/host/{SOCKET}"));
    let container =
        extra::running(node, pod, &fresh_name("agent"), home.clone(), &[&program, "agent", &socket])?;
    let guard = Fault::new(Facts::default()).cleaned_by(extra::removal(client, &container));
    client.start_container(&container, CALL_LIMIT)?;
    let pid = process::wait_for("the agent's process", EFFECT_LIMIT, || {
        Ok(process::in_cgroup(&container).into_iter().find(|pid| process::name(*pid) == PROGRAM))
    })?;
    let agent = listening(pid)?;
    let (stopping, id) = (client.clone(), container);
    let guard = guard.healed_by(move || Ok(stopping.stop_container(&id, Duration::ZERO, CALL_LIMIT)?));
    let asking = asking(node, &home, &agent)?;
    let facts = asking.facts().clone();
    Ok(asking.joined(guard).with(facts))
}

/// A pod whose CNI plugin waits for a service of the host that was stopped before it could accept the connection: its
/// RunPodSandbox hangs.
///
/// # Errors
///
/// When the node has no gates, or the agent or the plugin is not seen.
pub fn stopped_cni_agent(node: &Node) -> Result<Fault> {
    let (scratch, home) = (node.containerd().scratch(), home(node)?);
    let mut command = Command::new(home.join(PROGRAM));
    command.arg("agent").arg(home.join(SOCKET));
    let mut child = scratch.spawn(&mut command, &home.join("log"))?;
    let pid = child.id();
    let guard = Fault::new(Facts::default()).healed_by(move || {
        child.kill().context("cannot kill the agent")?;
        child.wait().context("cannot wait for the agent").map(drop)
    });
    let agent = listening(pid)?;
    let stopped = stop_process(pid)?;
    let asking = asking(node, &home, &agent)?;
    let facts = asking.facts().clone();
    let guard = guard.healed_by(move || {
        drop(stopped);
        Ok(())
    });
    Ok(asking.joined(guard).with(facts))
}
