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
    proof: Proof::Real,
    page: Page {
        mechanism: "Many network plugins only pass the request on to an agent on the node (Cilium, Multus, the AWS VPC CNI, \
            the dhcp daemon), over a unix socket. When the agent hangs, is stopped, waits for the API server or is starved, \
            the plugin waits, and with it RunPodSandbox or StopPodSandbox.",
        versions: "all",
        symptoms: &[
            "Unable to create endpoint",
            "failed to set up sandbox … network … context deadline exceeded",
            "ContainerCreating",
        ],
        evidence: &[
            "a network plugin older than 10 s that waits for bytes from a unix socket",
            "one process holds the other end of it, or should have accepted the connection: a container's, as agents are \
                that run in pods, or a service of the host",
        ],
        excluded_by: &[
            "the other end is held by several processes, or is not known (N1)",
            "it is held by the runtime, the kubelet, a shim, systemd, a bus, or whoever started the plugin (N1)",
            "the agent is down: the plugin then fails at once instead of waiting",
        ],
        next: &[
            "look at the agent: its log, its memory and CPU limits, its way to the API server",
            "restart the agent",
        ],
        trap: "Do not kill the plugin first: the kubelet starts another one, which waits for the same agent.",
        sources: &["cilium#9046", "multus#1146", "vpc-cni#2945"],
    },
    examine,
};

/// Calls that wait for bytes of one socket.
const READS: [&str; 4] = ["read", "recvfrom", "recvmsg", "readv"];
/// Sockets behind which there is no agent: they pass on what others answer, take logs, or look up names.
const OTHERS: [&str; 6] = ["dbus", "/bus", "/run/systemd/", "/dev/log", "nscd", "/sss/"];
/// Process 1: it listens for services that are to be started by a connection.
const INIT: u32 = 1;

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    let mut found: Vec<Finding> = scene.stuck().filter_map(|stuck| finding(stuck, scene)).collect();
    // All that wait for one agent are one finding: the oldest speaks for the rest.
    found.sort_by_key(|finding| std::cmp::Reverse(finding.since.map(|since| since.ns)));
    found.dedup_by(|later, first| {
        let pid = |finding: &Finding| finding.culprit.as_ref().and_then(|culprit| culprit.pid);
        let same = pid(later) == pid(first);
        if same {
            first.victims.append(&mut later.victims);
        }
        same
    });
    found
}

fn finding(stuck: &Stuck, scene: &Scene<'_>) -> Option<Finding> {
    let (agent, socket) = agent(stuck, scene)?;
    let (words, plugin) = plugin(stuck)?;
    if stuck.since.ns < RULE.min_age_ns {
        return None;
    }
    let who = holders(std::slice::from_ref(agent));
    let pod = of_pod(stuck.container.as_ref());
    let headline =
        format!("{who}, the agent of the network plugin, {}: {words}{pod} waits for it", does(socket));
    let mut finding = Finding::of_stuck(&RULE, headline, Component::Helper, stuck, scene);
    finding.victims.push(format!("{words} (pid {plugin}){pod}"));
    let culprit = Culprit {
        component: Component::Helper,
        pid: Some(agent.pid),
        container: None,
        words: format!("{who}, the agent of the network plugin"),
    };
    let finding = Finding { culprit: Some(culprit), behind: Some(stuck.what.pid()), ..finding };
    let finding = finding.seen(Evidence::new(Source::Census, seen(&who, socket)));
    let finding = if socket.asked_all {
        finding
    } else {
        finding.doubted("not every process could be asked whether it holds that socket as well")
    };
    Some(
        finding.advise([
            remedy(agent, &who, socket),
            format!("only then `kill {plugin}`: the kubelet tries again"),
        ]),
    )
}

/// What the agent does instead of answering.
fn does(socket: &SocketFact) -> &'static str {
    match socket.peer_state {
        Some('T' | 't') => "is stopped (state T)",
        Some('D') => "hangs in the kernel (state D)",
        _ if socket.pending => "does not accept its connection",
        _ => "does not answer",
    }
}

fn seen(who: &str, socket: &SocketFact) -> String {
    let place =
        socket.path.as_deref().map_or_else(|| "a unix socket".to_owned(), |path| words::cut(path, 80));
    if socket.pending {
        format!("{who} listens at {place} and has not accepted the plugin's connection")
    } else {
        format!("{who} holds the other end of {place}, at which the plugin waits")
    }
}

fn remedy(agent: &Holder, who: &str, socket: &SocketFact) -> String {
    if matches!(socket.peer_state, Some('T' | 't')) {
        return format!(
            "`kill -CONT {}`: {who} goes on where it was stopped; then find out who stopped it",
            agent.pid
        );
    }
    format!("check {who}: its log, its limits, its way to the API server; then restart it")
}

/// Who must answer the plugin: the one process at the other end of the one socket at which it waits, unless that waits for
/// the plugin, is a part of the node itself, or passes on what others answer.
pub(super) fn agent<'a>(stuck: &'a Stuck, scene: &Scene<'_>) -> Option<(&'a Holder, &'a SocketFact)> {
    plugin(stuck)?;
    let mut sockets = stuck.parks.iter().flat_map(waited);
    let (Some(FdTarget::Socket(socket)), None) = (sockets.next(), sockets.next()) else { return None };
    // systemd keeps the sockets of the services that it starts, and accepts nothing there itself.
    let mut peers = socket.peers.iter().filter(|peer| !(socket.pending && peer.pid == INIT));
    let (Some(peer), None) = (peers.next(), peers.next()) else { return None };
    let path = socket.path.as_deref().unwrap_or_default();
    let passes_on = OTHERS.iter().any(|other| path.contains(other));
    let is_agent = !socket.listening && !passes_on && !is_of_node(peer.pid, scene);
    (is_agent && !processes(stuck).any(|pid| pid == peer.pid)).then_some((peer, socket))
}

/// Is it a component, or something that one runs? The census reports nobody else, but for frozen processes of containers.
fn is_of_node(pid: u32, scene: &Scene<'_>) -> bool {
    let mut seen = scene.snapshot.census.processes.iter().map(|seen| &seen.fact);
    let of_node =
        seen.any(|fact| fact.pid == pid && (fact.component != Component::Helper || fact.freezer.is_none()));
    of_node || pid == INIT
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
