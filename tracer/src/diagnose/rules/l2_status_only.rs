//! L2: lists are answered, only Status is not: the kubelet says "container runtime is down".

use super::{r5_go_cni_locks_itself_out as r5, r6_plugin_keeps_the_network_lock as r6};
use crate::{
    correlate::{Age, thresholds::CALL_OPEN_NS},
    cri::Method,
    diagnose::{
        Area, Culprit, Evidence, Finding, Page, Proof, Rule, Scene, Source,
        evidence::{self, in_syscall},
        networks,
    },
    input::{Component, Layer},
    words,
};

pub(super) static RULE: Rule = Rule {
    id: "L2",
    title: "only Status hangs: \"container runtime is down\", while lists are fine",
    area: Area::LookAlike,
    min_age_ns: CALL_OPEN_NS,
    proof: Proof::Real,
    page: Page {
        mechanism: "The kubelet asks the runtime for its Status every 5 s and considers it down after 30 s without \
            an answer. Status also needs the lock of the network configuration, which a reload that cannot read its \
            files may hold, a hanging plugin (R6), or go-cni itself by a bug (R5). PLEG stays healthy.",
        versions: "all; see R5 and R6 for who else may hold the lock",
        symptoms: &["container runtime is down", "container runtime status check may not have completed yet"],
        evidence: &["a Status call open for more than 10 s", "relists still get their lists"],
        excluded_by: &[
            "a relist hangs as well",
            "a network plugin keeps the lock (R6), or go-cni has locked itself out (R5)",
        ],
        next: &[
            "has a CNI plugin been running for long? kill it and check its agent (N1)",
            "is a reload reading /etc/cni/net.d? look for a FIFO or a hung filesystem there, and remove it",
            "neither? run `plegtrace goroutines $(pidof containerd)` and look for go-cni; then restart containerd",
        ],
        trap: "The condition reads like a dead runtime, but containers are still listed, started and stopped.",
        sources: &["containerd#11186", "containerd#11275", "containerd#4666"],
    },
    examine,
};

/// What opens a file, which a FIFO or a file system can hold up.
const OPENS: [&str; 3] = ["openat", "open", "openat2"];

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    // Who has the lock of the networks is known: that is another cause.
    if !scene.relists_end() || r5::explains(scene) || r6::explains(scene) {
        return Vec::new();
    }
    by_calls(scene).or_else(|| by_goroutines(scene)).into_iter().collect()
}

/// Calls whose start the probes saw. The runtime is where they hang, as soon as one of its handlers is open: that of the call
/// which is late is a little younger.
fn by_calls(scene: &Scene<'_>) -> Option<Finding> {
    let oldest_ns = scene.open(Method::Status).map(|call| call.age_ns).max()?;
    if oldest_ns <= RULE.min_age_ns {
        return None;
    }
    let call =
        scene.open(Method::Status).max_by_key(|call| (call.span.layer() == Layer::Handler, call.age_ns))?;
    let since = Age { ns: oldest_ns, at_least: false };
    Some(finding(call.span.component(), call.span.id.tgid, since, evidence::of_call(call), scene))
}

/// A handler that began before the probes.
fn by_goroutines(scene: &Scene<'_>) -> Option<Finding> {
    let mut servers = scene.snapshot.census.requests.iter().filter(|r| r.component.role().is_runtime());
    let late =
        servers.find(|r| r.method() == Some(Method::Status) && r.stays && r.since.ns > RULE.min_age_ns)?;
    let text = format!("{}: {}", words::requests(late), words::waits_for(late));
    Some(finding(late.component, late.pid, late.since, Evidence::new(Source::Goroutines, text), scene))
}

fn finding(component: Component, pid: u32, since: Age, seen: Evidence, scene: &Scene<'_>) -> Finding {
    let headline = "only Status hangs: the kubelet says \"container runtime is down\", while lists are fine";
    let finding = Finding::new(&RULE, headline)
        .seen(seen)
        .seen(Evidence::new(Source::Uprobes, "relists still get their lists".to_owned()));
    let reload = reload(pid, scene);
    let held = if reload.is_some() { ", behind a reload of the network configuration" } else { "" };
    let mut finding = Finding {
        since: Some(since),
        culprit: Some(Culprit {
            component,
            pid: Some(pid),
            container: None,
            words: format!("{} {pid}: Status{held}", component.name()),
        }),
        victims: vec!["the runtime's status in the node's conditions".to_owned()],
        reach: 2,
        ..finding
    };
    let general = RULE.page.next.iter().copied();
    let Some(reload) = reload else { return finding.advise(general) };
    finding.evidence.extend(reload);
    finding.advise(["remove or fix the file that the reload opens (plegtrace -v names it)"]).advise(general)
}

/// A reload that has the lock which Status wants: its goroutine, and the file that it opens.
fn reload(pid: u32, scene: &Scene<'_>) -> Option<Vec<Evidence>> {
    let stack = words::go_stack(networks::reload(pid, scene)?.ok()?, true);
    let mut all = vec![Evidence::new(
        Source::Goroutines,
        format!("a goroutine holds the network lock while reloading the configuration: {stack}"),
    )];
    let server = scene.snapshot.census.processes.iter().find(|seen| seen.fact.pid == pid);
    let opens = server.and_then(|server| in_syscall(&server.fact.parked, &OPENS));
    all.extend(opens.map(|park| Evidence::new(Source::Census, words::park_line(park, false))));
    Some(all)
}
