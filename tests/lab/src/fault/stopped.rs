//! Processes under SIGSTOP: a shim (S10), the runtime (R14), the kubelet (K7).

use std::time::Duration;

use anyhow::Result;

use super::guard::{BLOCKED_AFTER, EFFECT_LIMIT, Facts, Fault, HANGING};
use crate::cri::{Call, Pod};
use crate::node::Node;
use crate::{http, process};

/// A process under SIGSTOP; continues when dropped.
#[derive(Debug)]
pub struct Stopped {
    pid: u32,
    identity: Option<String>,
}

impl Stopped {
    /// Stops a process (SIGSTOP), and does not wait until it has stopped.
    pub(super) fn of(pid: u32) -> Result<Stopped> {
        let stopped = Stopped { pid, identity: process::identity(pid) };
        process::signal(pid, libc::SIGSTOP)?;
        Ok(stopped)
    }

    /// The stopped process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // It may be gone, and its number may belong to another process by now.
        if process::identity(self.pid) == self.identity {
            let _ = process::signal(self.pid, libc::SIGCONT);
        }
    }
}

/// Stops a process (SIGSTOP) and waits until it has stopped.
///
/// # Errors
///
/// When it cannot be signalled or does not stop.
pub fn stop_process(pid: u32) -> Result<Stopped> {
    let stopped = Stopped::of(pid)?;
    process::wait_for(&format!("the stop of process {pid}"), EFFECT_LIMIT, || {
        Ok((process::state(pid) == Some('T')).then_some(()))
    })?;
    Ok(stopped)
}

/// The fault of which a stopped process is the cause.
pub(super) fn stopped_fault(stopped: Stopped, facts: Facts) -> Fault {
    let facts = Facts { culprits: vec![stopped.pid()], ..facts };
    Fault::new(facts).healed_by(move || {
        drop(stopped);
        Ok(())
    })
}

/// Stops the shim of `pod`: an ExecSync into the pod hangs, the lists of all pods go on.
///
/// # Errors
///
/// When the shim cannot be found or stopped.
pub fn stop_shim(node: &Node, pod: &Pod) -> Result<Fault> {
    let containerd = node.containerd();
    let stopped = stop_process(containerd.shim_of(&pod.sandbox)?)?;
    let container = pod.container.clone();
    let call = Call::start(containerd.client(), "ExecSync", move |client| {
        client.exec_sync(&container, &["true"], HANGING).map(drop)
    })?;
    let ids = vec![pod.sandbox.clone(), pod.container.clone()];
    Ok(stopped_fault(stopped, Facts { pod: pod.name.clone(), ids, ..Facts::default() }).holding(call))
}

/// Stops containerd: no call is answered, requests queue in its socket.
///
/// # Errors
///
/// When it cannot be stopped, or answers still.
pub fn stop_containerd(node: &Node) -> Result<Fault> {
    let containerd = node.containerd();
    let fault = stopped_fault(stop_process(containerd.pid())?, Facts::default());
    let call = Call::start(containerd.client(), "ListPodSandbox", |client| {
        client.list_pod_sandbox(HANGING).map(drop)
    })?;
    let fault = fault.holding(call);
    process::wait_for("an unanswered Version", EFFECT_LIMIT, || {
        Ok(containerd.client().version(BLOCKED_AFTER).is_err_and(|error| error.is_deadline()).then_some(()))
    })?;
    Ok(fault)
}

/// Stops the kubelet: nobody lists, nobody probes; the runtime answers everybody else.
///
/// # Errors
///
/// When it cannot be stopped, or answers still.
pub fn stop_kubelet(node: &Node) -> Result<Fault> {
    let kubelet = node.kubelet();
    let fault = stopped_fault(stop_process(kubelet.pid())?, Facts::default());
    wait_for_silence(kubelet.healthz_address())?;
    Ok(fault)
}

/// Waits until nothing answers at `address`.
pub(super) fn wait_for_silence(address: std::net::SocketAddr) -> Result<()> {
    process::wait_for("a silent kubelet", EFFECT_LIMIT, || {
        Ok(http::get(address, "/healthz", Duration::from_millis(500)).is_err().then_some(()))
    })
}
