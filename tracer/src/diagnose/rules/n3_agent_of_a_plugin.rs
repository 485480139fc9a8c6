//! N3: the agent behind a network plugin does not answer.

use super::n1_cni_plugin_hangs::plugin;
use crate::{
    correlate::thresholds::CNI_NS,
    diagnose::{Area, Culprit, Evidence, Finding, Page, Proof, Rule, Scene, Source},
    input::{Component, FdTarget, Holder, ParkedThreads, SocketFact},
    stuck::{Stuck, processes},
    words::{self, holders, of_pod},
};

pub(super) static RULE: Rule = Rule {
    id: "N3",
    title: "the agent behind a network plugin does not answer",
    area: Area::Cni,
    min_age_ns: CNI_NS,
    proof: Proof::Story,
    page: Page {
        mechanism: "Many network plugins only pass the request on to an agent on the node (Cilium, Multus, the AWS VPC CNI), \
            over a unix socket. When the agent hangs, waits for the API server or is starved, the plugin waits, and with \
            it RunPodSandbox or StopPodSandbox.",
        versions: "all",
        symptoms: &[
            "Unable to create endpoint",
            "failed to set up sandbox … network … context deadline exceeded",
            "ContainerCreating",
        ],
        evidence: &[
            "a network plugin older than 10 s that waits for bytes from a unix socket",
            "one process of a container holds the other end of it, as agents do that run in pods",
        ],
        excluded_by: &[
            "the other end is held by several processes or by one outside of containers, or is not known (N1)",
            "the agent is down: the plugin then fails at once instead of waiting",
        ],
        next: &[
            "look at the agent: its log, its memory and CPU limits, its way to the API server",
            "restart the agent",
        ],
        trap: "Killing the plugin only makes the kubelet start another one, which waits for the same agent.",
        sources: &["cilium#9046", "multus#1146", "vpc-cni#2945"],
    },
    examine,
};

/// Calls that wait for bytes of one socket.
const READS: [&str; 4] = ["read", "recvfrom", "recvmsg", "readv"];

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    scene.stuck().filter_map(|stuck| finding(stuck, scene)).collect()
}

fn finding(stuck: &Stuck, scene: &Scene<'_>) -> Option<Finding> {
    let (agent, socket) = agent(stuck)?;
    let (words, _) = plugin(stuck)?;
    if stuck.since.ns < RULE.min_age_ns {
        return None;
    }
    let who = holders(std::slice::from_ref(agent));
    let pod = of_pod(stuck.container.as_ref());
    let headline = format!("{words}{pod} waits for its agent {who}, which does not answer");
    let finding = Finding::of_stuck(&RULE, headline, Component::Helper, stuck, scene);
    let culprit = Culprit {
        component: Component::Helper,
        pid: Some(agent.pid),
        container: None,
        words: format!("{who}, the agent of the network plugin"),
    };
    let place =
        socket.path.as_deref().map_or_else(|| "a unix socket".to_owned(), |path| words::cut(path, 80));
    let seen = format!("{who} holds the other end of {place}, at which the plugin waits");
    let finding = Finding { culprit: Some(culprit), behind: Some(stuck.what.pid()), ..finding };
    Some(finding.seen(Evidence::new(Source::Census, seen)).advise([
        format!("look at {who}: its log, its limits, its way to the API server; then restart it"),
        format!("only then kill {}: the kubelet tries again", stuck.what.pid()),
    ]))
}

/// Sockets behind which there is no agent: they pass on what others answer, or take logs.
const OTHERS: [&str; 5] = ["dbus", "/bus", "/run/systemd/", "/dev/log", "nscd"];

/// Who must answer the plugin: the one process at the other end of the one socket at which it waits, unless that waits for
/// the plugin, or passes on what others answer.
pub(super) fn agent(stuck: &Stuck) -> Option<(&Holder, &SocketFact)> {
    plugin(stuck)?;
    let mut sockets = stuck.parks.iter().flat_map(waited);
    let (Some(FdTarget::Socket(socket)), None) = (sockets.next(), sockets.next()) else { return None };
    let mut peers = socket.peers.iter();
    let (Some(peer), None) = (peers.next(), peers.next()) else { return None };
    let path = socket.path.as_deref().unwrap_or_default();
    let is_agent = !socket.listening && !OTHERS.iter().any(|other| path.contains(other));
    (is_agent && !processes(stuck).any(|pid| pid == peer.pid)).then_some((peer, socket))
}

/// The sockets whose bytes these threads wait for.
fn waited(park: &ParkedThreads) -> impl Iterator<Item = &FdTarget> {
    let reads = |name: &str| READS.contains(&name);
    park.syscall.iter().flat_map(move |call| {
        let own = call.fd.as_ref().filter(|_| call.name.as_deref().is_some_and(reads));
        let own = own.map(|fd| &fd.target).filter(|target| matches!(target, FdTarget::Socket(_)));
        own.into_iter().chain(call.watched.iter().map(|fd| &fd.target))
    })
}
