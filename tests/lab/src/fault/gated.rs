//! Hooks and CNI plugins that sleep or wait for a lock, at the gates of a node that has them ([`crate::Knobs::gates`]).

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result, ensure};

use super::extra;
use super::guard::{CALL_LIMIT, EFFECT_LIMIT, Facts, Fault, HANGING};
use crate::cri::{Call, Client, Pod, PodSpec};
use crate::gate::{self, Order, Place};
use crate::node::Node;
use crate::process::{self, Process};

/// Longer than any test or demo.
pub(super) const LONG: u32 = 100_000;

pub(super) fn gates(node: &Node) -> Result<&Path> {
    let containerd = node.containerd();
    ensure!(containerd.knobs().gates, "the node has no gates: set Knobs::gates");
    Ok(containerd.scratch().path())
}

/// The gate's processes of a lab that are in this call now.
fn waiting(dir: &Path, syscall: i64) -> Vec<u32> {
    let is_waiting = |pid: &u32| {
        process::name(*pid) == gate::NAME
            && process::blocked_threads(*pid).iter().any(|thread| thread.syscall == syscall)
    };
    process::marked(dir).into_iter().filter(is_waiting).collect()
}

pub(super) fn opening(file: PathBuf) -> impl FnOnce() -> Result<()> + Send + 'static {
    move || fs::remove_file(file).context("cannot open the gate again")
}

/// The hook that runc waits for, in this call, as the child of the runc that works on `container`.
pub(super) fn hook_in(dir: &Path, container: &str, syscall: i64) -> Option<(Process, u32)> {
    waiting(dir, syscall).into_iter().find_map(|hook| {
        let runc = process::parent(hook)?;
        let is_ours = process::arguments(runc).last().is_some_and(|last| last == container);
        Some((Process::running(hook).filter(|_| is_ours)?, runc))
    })
}

fn hooked(node: &Node, pod: &Pod, place: Place) -> Result<Fault> {
    let dir = gates(node)?;
    let client = node.containerd().client();
    let container = extra::create(node, pod, place.name(), None)?;
    let guard = Fault::new(Facts::default()).cleaned_by(extra::removal(client, &container));
    let is_stop = place == Place::Poststop;
    if is_stop {
        client.start_container(&container, CALL_LIMIT)?;
    }
    let file = gate::close(dir, place, &container, &Order::Sleep(LONG))?;
    let guard = guard.healed_by(opening(file));
    let id = container.clone();
    let call = if is_stop {
        let grace = std::time::Duration::from_secs(1);
        Call::start(client, "StopContainer", move |client| client.stop_container(&id, grace, HANGING))
    } else {
        Call::start(client, "StartContainer", move |client| client.start_container(&id, HANGING))
    };
    let guard = guard.holding(call?);
    let (hook, runc) = process::wait_for("a sleeping hook below runc", EFFECT_LIMIT, || {
        Ok(hook_in(dir, &container, libc::SYS_clock_nanosleep))
    })?;
    let facts = Facts {
        victims: vec![runc],
        culprits: vec![hook.pid()],
        pod: pod.name.clone(),
        ids: vec![pod.sandbox.clone(), container],
        path: None,
    };
    Ok(guard.with(facts).healed_by_killing(vec![hook]))
}

/// A container in the sandbox of `pod` whose createRuntime hook sleeps: its StartContainer hangs in `runc create`.
///
/// # Errors
///
/// When the node has no gates, or the hook is not seen.
pub fn sleeping_hook(node: &Node, pod: &Pod) -> Result<Fault> {
    hooked(node, pod, Place::CreateRuntime)
}

/// A container in the sandbox of `pod` whose poststop hook sleeps: its StopContainer hangs in `runc delete`.
///
/// # Errors
///
/// When the node has no gates, or the hook is not seen.
pub fn sleeping_poststop(node: &Node, pod: &Pod) -> Result<Fault> {
    hooked(node, pod, Place::Poststop)
}

/// A pod's name that no other has.
pub(super) fn fresh_name(what: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{what}{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Runs a sandbox with a network of its own, whose CNI plugin does as `order` says, and waits until it does: the plugin
/// then waits in `syscall`.
pub(super) fn sandbox(node: &Node, name: &str, order: &Order, syscall: i64) -> Result<(Fault, Process)> {
    let dir = gates(node)?;
    let (containerd, client) = (node.containerd(), node.containerd().client());
    let file = gate::close(dir, Place::Cni, name, order)?;
    let guard = Fault::new(Facts::default()).healed_by(opening(file)).cleaned_by(removal(client, name));
    let spec = PodSpec { host_network: false, ..containerd.pod_spec(name) };
    let call = Call::start(client, "RunPodSandbox", move |client| {
        client.run_pod_sandbox(spec.sandbox(), HANGING).map(drop)
    })?;
    let guard = guard.holding(call);
    let daemon = containerd.pid();
    let plugin = process::wait_for("a waiting CNI plugin", EFFECT_LIMIT, || {
        Ok(plugin_of(dir, name, syscall, daemon))
    })?;
    let facts = Facts { culprits: vec![plugin.pid()], pod: name.to_owned(), ..Facts::default() };
    Ok((guard.with(facts), plugin))
}

/// The plugin that waits in `syscall` on its way to the pod `name`, as a child of `daemon`.
pub(super) fn plugin_of(dir: &Path, name: &str, syscall: i64, daemon: u32) -> Option<Process> {
    let of_pod = |pid: &u32| {
        let arguments = process::variable(*pid, "CNI_ARGS").unwrap_or_default();
        let is_ours = arguments.split(';').any(|pair| pair.strip_prefix("K8S_POD_NAME=") == Some(name));
        is_ours && process::parent(*pid) == Some(daemon)
    };
    waiting(dir, syscall).into_iter().find(of_pod).and_then(Process::running)
}

/// Removes the sandboxes of a pod, if there are any. A kubelet may be faster: it removes pods that it does not know, and Docker refuses
/// to remove at the same time what is being removed.
pub(super) fn removal(client: &Client, name: &str) -> impl FnOnce() -> Result<()> + Send + 'static {
    let (client, name) = (client.clone(), name.to_owned());
    move || {
        for sandbox in client.list_pod_sandbox(CALL_LIMIT)?.iter().filter(|found| found.pod_name() == name) {
            let stopped = client.stop_pod_sandbox(&sandbox.id, CALL_LIMIT);
            let Err(error) = stopped.and_then(|()| client.remove_pod_sandbox(&sandbox.id, CALL_LIMIT)) else {
                continue;
            };
            let gone = || {
                let all = client.list_pod_sandbox(CALL_LIMIT)?;
                Ok(all.iter().all(|other| other.id != sandbox.id).then_some(()))
            };
            let waited =
                process::wait_for("the end of a sandbox that somebody else removes", EFFECT_LIMIT, gone);
            waited.with_context(|| format!("it could not be removed here: {error}"))?;
        }
        Ok(())
    }
}

/// A pod whose CNI plugin never ends: its RunPodSandbox hangs, with the plugin as a child of containerd.
///
/// # Errors
///
/// When the node has no gates, or the plugin is not seen.
pub fn sleeping_cni(node: &Node) -> Result<Fault> {
    let (fault, plugin) = sandbox(node, &fresh_name("cni"), &Order::Sleep(LONG), libc::SYS_clock_nanosleep)?;
    Ok(fault.healed_by_killing(vec![plugin]))
}

/// No fault: a pod whose CNI plugin takes so many seconds, then works. A report must not blame it.
///
/// # Errors
///
/// When the node has no gates, or the plugin is not seen.
pub fn slow_cni(node: &Node, seconds: u32) -> Result<Fault> {
    let order = Order::Sleep(seconds);
    Ok(sandbox(node, &fresh_name("slowcni"), &order, libc::SYS_clock_nanosleep)?.0)
}

/// Two pods whose CNI plugins need the same lock: one holds it and sleeps, the other waits in flock(2). Two
/// RunPodSandbox hang; the facts are the second pod's, whose victim waits for the culprit.
///
/// # Errors
///
/// When the node has no gates, or the plugins are not seen.
pub fn cni_flock(node: &Node) -> Result<Fault> {
    let lock = gates(node)?.join(fresh_name("cni-lock"));
    let order = Order::Lock(lock.clone(), LONG);
    let (holding, holder) = sandbox(node, &fresh_name("holder"), &order, libc::SYS_clock_nanosleep)?;
    let (waiting, waiter) = sandbox(node, &fresh_name("waiter"), &order, libc::SYS_flock)?;
    let facts = Facts {
        victims: vec![waiter.pid()],
        culprits: vec![holder.pid()],
        path: Some(lock),
        ..waiting.facts().clone()
    };
    // The waiter goes first: it would take the lock and sleep on.
    Ok(waiting.healed_by_killing(vec![waiter, holder]).joined(holding).with(facts))
}
