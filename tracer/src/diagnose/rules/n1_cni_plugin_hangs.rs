//! N1: a network plugin does not end.

use super::n3_agent_of_a_plugin as n3;
use crate::{
    correlate::thresholds::CNI_NS,
    diagnose::{Area, Finding, Page, Proof, Rule, Scene, evidence::in_syscall},
    input::{Command, Component, FdTarget, ParkedThreads},
    stuck::{Stuck, StuckKind},
    words::{command_words, holders, of_pod},
};

pub(super) static RULE: Rule = Rule {
    id: "N1",
    title: "a network plugin hangs",
    area: Area::Cni,
    min_age_ns: CNI_NS,
    proof: Proof::Real,
    page: Page {
        mechanism: "The runtime runs the CNI plugins itself, one process per step, and waits for each. A plugin that waits \
            for its agent, for an API server or for a kernel lock holds up RunPodSandbox or StopPodSandbox; pods stay \
            ContainerCreating or Terminating. With dockershim it also held up PodSandboxStatus, and with it the relist.",
        versions: "all; with containerd since go-cni 1.1.12, a configuration reload meanwhile also holds up Status \
            (R6)",
        symptoms: &[
            "failed to set up sandbox … network",
            "RunPodSandbox: DeadlineExceeded (4 min)",
            "ContainerCreating",
        ],
        evidence: &[
            "a CNI plugin older than 10 s, a child of the runtime, and what it is blocked on",
            "runtime goroutines in RunPodSandbox or StopPodSandbox that wait for a plugin",
        ],
        excluded_by: &[
            "it waits for a file lock: the holder of the lock is the cause (N2)",
            "it waits until an agent permits an access to a file (X11), or for a FUSE server (X6)",
            "it waits at a unix socket for one process, its agent, in a pod or on the host (N3)",
        ],
        next: &[
            "check what it is blocked on: the peer of a socket is its agent; restart that",
            "kill the plugin: the kubelet tries again",
        ],
        trap: "Do not restart the runtime: that leaves the plugin running and starts a second one next to it.",
        sources: &["containernetworking/cni#567", "calico#2098", "kubernetes#98044", "containerd#13326"],
    },
    examine,
};

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    scene.stuck().filter_map(|stuck| finding(stuck, scene)).collect()
}

fn finding(stuck: &Stuck, scene: &Scene<'_>) -> Option<Finding> {
    let (words, pid) = plugin(stuck)?;
    let other =
        stuck.parks.iter().any(ParkedThreads::waits_for_answerer) || n3::agent(stuck, scene).is_some();
    if stuck.since.ns < RULE.min_age_ns || other || in_syscall(&stuck.parks, &LOCKS).is_some() {
        return None;
    }
    let pod = of_pod(stuck.container.as_ref());
    let headline = format!("{words}{pod} hangs: the pod's network is not set up or torn down");
    let finding = Finding::of_stuck(&RULE, headline, Component::Helper, stuck, scene);
    let agent = stuck.parks.iter().find_map(agent);
    let finding = match agent {
        Some(agent) => finding.advise([format!("it waits for {agent}: check that first")]),
        None => finding,
    };
    // Without its system calls it could as well wait for a lock that another plugin holds.
    let finding = if stuck.parks.iter().any(|park| park.syscall.is_some()) {
        finding
    } else {
        finding.doubted("what it is blocked on was not seen: it may be queueing for a lock (N2)")
    };
    Some(finding.advise([
        format!("`kill {pid}`: the kubelet tries again"),
        "restart the network agent on this node".to_owned(),
    ]))
}

/// Calls that wait for a file lock.
pub(super) const LOCKS: [&str; 2] = ["flock", "fcntl"];

/// The plugin, or what it started, in words.
pub(super) fn plugin(stuck: &Stuck) -> Option<(String, u32)> {
    let StuckKind::Process { command, comm, pid, .. } = &stuck.what else { return None };
    let is_cni = |command: &Command| matches!(command, Command::Cni { .. });
    if is_cni(command) {
        return Some((command_words(command, comm), *pid));
    }
    let parent = stuck.waiters.iter().find_map(|waiter| match waiter {
        crate::stuck::Waiter::Process { command: Some(command), .. } if is_cni(command) => Some(command),
        _ => None,
    })?;
    Some((format!("{} of {}", command_words(command, comm), command_words(parent, "?")), *pid))
}

/// The other end of the socket it waits at.
fn agent(park: &ParkedThreads) -> Option<String> {
    let FdTarget::Socket(socket) = &park.syscall.as_ref()?.fd.as_ref()?.target else { return None };
    (!socket.peers.is_empty()).then(|| holders(&socket.peers))
}
