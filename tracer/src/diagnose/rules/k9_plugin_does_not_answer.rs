//! K9: a plugin of the kubelet does not answer, and a loop of the kubelet waits for it.

use crate::{
    correlate::{BusyLoop, LoopWait, PluginKind},
    diagnose::{
        Area, Culprit, Evidence, Finding, Page, Proof, Rule, Scene, Source, kubelet_loops, unit::unit,
    },
    input::{Component, Holder, PluginFact},
    stuck::{Stuck, StuckKind},
    words::{self, cut, holders, of_pod},
};

pub(super) static RULE: Rule = Rule {
    id: "K9",
    title: "a plugin of the kubelet does not answer (device, DRA, CSI), and a loop of the kubelet waits for it",
    area: Area::Kubelet,
    min_age_ns: 0,
    proof: Proof::Scripted,
    page: Page {
        mechanism: "The kubelet asks plugins over gRPC: a device plugin for each container with a device (Allocate), a DRA driver before \
            a pod with a claim (NodePrepareResources), a CSI driver for each volume. It asks device plugins in its sync loop, and \
            without a deadline: one that hangs or is stopped holds up every pod of the node, with or without a device. The node \
            stays Ready, relists go on, and the kubelet logs nothing. A driver holds up the pods that need it.",
        versions: "device plugins: all that have them, 1.8 to 1.38, open upstream; DRA drivers from 1.26 on, 45 s for each attempt; CSI \
            drivers from 1.9 on, two minutes for each attempt",
        symptoms: &[
            "every new pod of the node stays Pending, also those without devices; deleted ones stay Terminating",
            "/healthz of the kubelet: syncloop failed (after minutes)",
            "ContainerCreating with the one event Scheduled",
        ],
        evidence: &[
            "two looks find the same goroutine of a loop in a call of gRPC to a plugin, and its stack shows that it has not gone on in \
             between, for 10 s (Allocate in the sync loop), 30 s (DRA) or 90 s (CSI)",
            "the process at the other end of the kubelet's connection, its state, and what it has not read",
        ],
        excluded_by: &[
            "a look in between found the loop idle, or another call: a plugin that is only slow for each pod",
            "the call is one to the container runtime",
        ],
        next: &[
            "stopped: `kill -CONT PID`; else look at the log of the plugin, and restart it: the call then fails, and the kubelet goes on",
            "if it is a pod that cannot be restarted, kill its process: closing the connection ends the call as well",
        ],
        trap: "Restarting the kubelet helps only until the next pod with such a device is admitted.",
        sources: &[
            "kubernetes#117435",
            "kubernetes#129249",
            "kubernetes#130855",
            "csi-driver-nfs#1271",
            "endpoint.go of 1.20 to 1.36",
        ],
    },
    examine,
};

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    scene.stuck().filter_map(|stuck| finding(stuck, scene)).collect()
}

fn finding(stuck: &Stuck, scene: &Scene<'_>) -> Option<Finding> {
    let StuckKind::Loop(stall) = &stuck.what else { return None };
    let LoopWait::Plugin { plugin, method } = &stall.oldest.wait else { return None };
    let seen = connections(&stall.oldest, scene);
    let end = End::of(&seen);
    let asked = method.as_ref().map(|method| format!(" to answer {}", cut(method, 40))).unwrap_or_default();
    let (name, pid) = (stall.oldest.kind.words(), stall.oldest.pid);
    let who = end.words(*plugin);
    let stops = stall.oldest.kind.stops();
    // One plugin gets a clause of its own.
    let comma = if end.one().is_some() && !asked.is_empty() { "," } else { "" };
    let headline = format!("{name} of kubelet {pid} waits for {who}{comma}{asked}: {stops}");
    let finding = kubelet_loops::finding(&RULE, headline, stall, stuck, scene);
    let culprit = Culprit {
        component: Component::Helper,
        pid: end.holder().map(|holder| holder.pid),
        container: end.one().and_then(|fact| fact.container.clone()),
        words: who.clone(),
    };
    let finding = Finding { culprit: Some(culprit), ..finding };
    let finding = seen.iter().take(4).fold(finding, |finding, fact| finding.seen(evidence(fact)));
    let finding = end.doubts(*plugin).into_iter().fold(finding, Finding::doubted);
    Some(advised(finding, &end, scene))
}

/// The connections at which it may wait, of the last look.
fn connections<'a>(waits: &BusyLoop, scene: &Scene<'a>) -> Vec<&'a PluginFact> {
    let round = scene.snapshot.census.round.as_ref();
    round.map(|round| waits.connections(&round.plugins)).unwrap_or_default()
}

/// What is known of the other end.
enum End<'a> {
    /// One connection.
    One(&'a PluginFact),
    /// It is one of several.
    Several(&'a [&'a PluginFact]),
    Unknown,
}

impl<'a> End<'a> {
    fn of(seen: &'a [&'a PluginFact]) -> Self {
        match seen {
            [] => Self::Unknown,
            [one] => Self::One(one),
            several => Self::Several(several),
        }
    }

    fn one(&self) -> Option<&'a PluginFact> {
        match self {
            Self::One(fact) => Some(fact),
            Self::Several(_) | Self::Unknown => None,
        }
    }

    /// The one process at the other end.
    fn holder(&self) -> Option<&'a Holder> {
        match self.one()?.holders.as_slice() {
            [holder] => Some(holder),
            _ => None,
        }
    }

    /// `device plugin nvidia 70 of kube-system/x, which is stopped (state T)`.
    fn words(&self, plugin: PluginKind) -> String {
        let kind = plugin.words();
        match self {
            Self::One(fact) => {
                let who = match fact.holders.as_slice() {
                    [] => format!("the {kind} at {}", place(fact)),
                    found => format!("{kind} {}", holders(found)),
                };
                format!("{who}{}, which {}", of_pod(fact.container.as_ref()), does(fact))
            }
            Self::Several(several) => format!("one of {} {kind}s", several.len()),
            Self::Unknown => format!("a {kind}"),
        }
    }

    fn doubts(&self, plugin: PluginKind) -> Vec<String> {
        let kind = plugin.words();
        match self {
            Self::One(fact) if fact.holders.is_empty() => {
                vec![format!("which process holds the other end of {} was not seen", place(fact))]
            }
            Self::One(_) => Vec::new(),
            Self::Several(_) => vec![format!(
                "which {kind} it asks is not known: none of them stands still, and all have read what they got"
            )],
            Self::Unknown => vec![format!("the connection to that {kind} was not found")],
        }
    }
}

/// What it does instead of answering.
fn does(fact: &PluginFact) -> &'static str {
    match fact.state {
        Some('T' | 't') => "is stopped (state T)",
        Some('D') => "hangs in the kernel (state D)",
        _ if fact.pending => "does not accept its connection",
        _ => "does not answer",
    }
}

fn place(fact: &PluginFact) -> String {
    cut(&fact.path, 80)
}

fn evidence(fact: &PluginFact) -> Evidence {
    let who = match fact.holders.as_slice() {
        [] => "a process that was not found".to_owned(),
        found => holders(found),
    };
    let state = fact.state.map(|state| format!(" (state {state})")).unwrap_or_default();
    let unread = match fact.unread {
        0 => String::new(),
        unread => format!(", and has not read {}", words::human::plural(u64::from(unread), "byte")),
    };
    Evidence::new(Source::Census, format!("{who}{state} holds the other end of {}{unread}", place(fact)))
}

fn advised(finding: Finding, end: &End<'_>, scene: &Scene<'_>) -> Finding {
    let stopped = end.one().is_some_and(|fact| matches!(fact.state, Some('T' | 't')));
    let finding = match end.holder() {
        Some(Holder { pid, comm, .. }) if stopped => finding.advise([format!(
            "`kill -CONT {pid}`: {} goes on where it was stopped; then find out who stopped it",
            cut(comm, 40)
        )]),
        Some(Holder { pid, comm, .. }) => finding.advise([format!(
            "look at the log of {} (pid {pid}), then restart it: the call fails, and the kubelet goes on",
            cut(comm, 40)
        )]),
        None => finding.advise([RULE.page.next[0]]),
    };
    let unit = unit(Component::Kubelet, scene);
    let last = format!(
        "if that does not help: `systemctl restart {unit}`; the kubelet asks again with the next pod that needs it"
    );
    finding.advise([last])
}
