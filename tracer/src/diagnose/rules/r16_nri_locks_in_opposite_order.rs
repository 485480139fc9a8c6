//! R16: the two locks of NRI are taken in opposite order, and nobody gets either any more.

use crate::{
    correlate::{Age, Held, NriWait, Request, WaitsFor, thresholds::SECOND_NS},
    diagnose::{
        Area, Culprit, Evidence, Finding, Page, Proof, Rule, Scene, Source,
        finding::{Explained, victims},
    },
    stuck::Waiter,
    words,
};

/// Neither of the two can let go, so two looks this far apart are enough.
const LOCKED_NS: u64 = 5 * SECOND_NS;

pub(super) static RULE: Rule = Rule {
    id: "R16",
    title: "the two locks of NRI are taken in opposite order: every start, stop and update of a container waits for ever",
    area: Area::Runtime,
    min_age_ns: LOCKED_NS,
    proof: Proof::Real,
    page: Page {
        mechanism: "NRI lets plugins change containers; it is on by default since containerd 2.0. A CRI call takes the runtime's lock \
            around NRI first, then the lock around the plugins. What a plugin asks for by itself (UpdateContainers), or the registration of \
            one in older versions, takes the second first. When both come at the same time, each waits for the lock of the other, and \
            everything that starts, stops, updates or removes a container waits behind them. Lists ask no plugin and go on, so \
            PLEG stays healthy.",
        versions: "containerd 1.7 and 2.x, CRI-O: an update that a plugin asks for (fixed by nri PR 301, July 2026; open in CRI-O, \
            cri-o PR 9835). containerd 1.7 before 1.7.16: the registration of a plugin, too (nri before 0.6.1)",
        symptoms: &[
            "pods stay ContainerCreating and Terminating on a node that is Ready",
            "StartContainer, StopPodSandbox, UpdateContainerResources: DeadlineExceeded, for all pods",
            "only a restart of containerd helps",
        ],
        evidence: &[
            "two looks, 5 s apart, find the same goroutine waiting for NRI's lock around its plugins (pkg/adaptation) inside of the \
             runtime's lock around NRI (nri.(*local))",
            "the same looks find the same other goroutine waiting for the latter inside of the former",
        ],
        excluded_by: &[
            "only one of the two waits: who has the lock may be waiting for a plugin, which NRI gives 2 s",
            "another goroutine waits there at each look: the locks are taken and let go",
        ],
        next: &[
            "restart the runtime (`systemctl restart containerd`): running containers are not touched",
            "until it is upgraded, stop the plugin that updates containers by itself: `ss -xp | grep nri.sock` names those that are connected",
            "upgrade the runtime, or switch NRI off (disable = true below io.containerd.nri.v1.nri) where nobody needs it",
        ],
        trap: "Nothing runs and nothing is busy, so the node looks idle. A pod that does not go is no sign of a process that cannot be \
            killed here (L3). A plugin that is merely stopped is none of it: NRI gives it 2 s and drops it.",
        sources: &["containerd#13733", "containerd#10085", "nri#78", "nri PR 79, 301", "cri-o PR 9835"],
    },
    examine,
};

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    let waits = &scene.snapshot.census.nri;
    let old = |wait: &&NriWait| age(wait) >= RULE.min_age_ns;
    let inner =
        waits.iter().filter(old).filter(|wait| (wait.has, wait.wants) == (Held::Nri, Held::NriPlugins));
    let of = |inner: &NriWait| {
        let closes = |wait: &&NriWait| {
            wait.pid == inner.pid && (wait.has, wait.wants) == (Held::NriPlugins, Held::Nri)
        };
        Some(finding(inner, waits.iter().filter(old).find(closes)?, scene))
    };
    // A lock has one holder.
    let mut found: Vec<Finding> = inner.filter_map(of).collect();
    found.dedup_by_key(|finding| finding.culprit.as_ref().and_then(|culprit| culprit.pid));
    found
}

/// From the first look that found it there to the last.
fn age(wait: &NriWait) -> u64 {
    wait.until.since(wait.since)
}

/// `request`: has the runtime's lock; `plugin`: has that of the plugins.
fn finding(request: &NriWait, plugin: &NriWait, scene: &Scene<'_>) -> Finding {
    let (runtime, pid) = (request.component.name(), request.pid);
    let wants = |request: &&Request| {
        let lock = matches!(request.waits_for, WaitsFor::Lock(Held::Nri | Held::NriPlugins | Held::NriSync));
        request.pid == pid && lock
    };
    let waiting = scene.snapshot.census.requests.iter().filter(wants);
    let waiters: Vec<Waiter> = waiting.cloned().map(Waiter::Requests).collect();
    let headline = format!(
        "{runtime} has locked itself out of NRI: every start, stop and update of a container waits for ever"
    );
    let culprit = Culprit {
        component: request.component,
        pid: Some(pid),
        container: None,
        words: format!("{runtime} {pid}: of its two locks of NRI, each is held by who waits for the other"),
    };
    let finding = Finding {
        culprit: Some(culprit),
        since: Some(Age { ns: age(request).min(age(plugin)), at_least: true }),
        victims: victims(&waiters),
        // Where nobody has come yet, the next one waits.
        reach: if waiters.is_empty() { 1 } else { 2 },
        explained: Explained::of_waiters(&waiters),
        evidence: vec![
            told("a call", request, "the runtime's lock around NRI", "that around the plugins"),
            told(asks(plugin), plugin, "the lock around the plugins", "the runtime's"),
        ],
        ..Finding::new(&RULE, headline)
    };
    let finding = if scene.relists_end() {
        finding.seen(Evidence::new(Source::Uprobes, "relists go on: lists ask no plugin"))
    } else {
        finding
    };
    finding.advise(RULE.page.next.iter().copied())
}

fn told(who: &str, wait: &NriWait, has: &str, wants: &str) -> Evidence {
    let stack = words::go_stack(&wait.frames, true);
    let text = format!("goroutine {}, {who}, has {has} and waits for {wants}: {stack}", wait.goid);
    Evidence::new(Source::Goroutines, text)
}

/// What the other one is, by its outer functions.
fn asks(wait: &NriWait) -> &'static str {
    let is = |name: &str| wait.frames.iter().any(|frame| frame.contains(name));
    if is("acceptPluginConnections") {
        "the registration of an NRI plugin"
    } else if is(".updateContainers") {
        "an update that an NRI plugin asked for"
    } else {
        "inside of NRI"
    }
}
