//! S1: the reaper of a shim and its lock wait for each other, since many commands ended while the shim worked.

use crate::{
    correlate::{
        ProcessSeen,
        thresholds::{STILL_NS, UNREAPED_NS},
    },
    diagnose::{
        Area, Evidence, Finding, Page, Proof, Rule, Scene, Source,
        exits::{Series, by_version},
    },
    input::{Component, GoroutineGroup},
    stuck::{Deadlock, ShimLock, Stuck, StuckKind},
    words::{self, cut, of_pod},
};

/// Of containerd; the shim comes with it.
const AFFECTED: &[Series] = &[(1, 0, 0, 3), (1, 1, 0, 4), (1, 2, 0, 0)];
/// Children that are named.
const NAMED: usize = 4;

pub(super) static RULE: Rule = Rule {
    id: "S1",
    title: "a shim is deadlocked, its lock and its reaper wait for each other: commands ended while it started another",
    area: Area::Shim,
    min_age_ns: STILL_NS,
    proof: Proof::Rebuilt,
    page: Page {
        mechanism: "A shim notices the end of its children in one place, which hands each exit on to all who wait for one. In \
            affected shims it waits for every reader, and there is room for a few dozen exits. The reader that tells containerd takes \
            the lock of the shim for each; a request holds that lock until its runc has ended. When dozens of commands end \
            meanwhile, there is no more room, and the end of that runc is never noticed: each of the three waits for the next. \
            Nothing of that shim answers any more, and its children stay zombies. Lists do not ask shims, so PLEG stays \
            healthy with containerd; with Docker it does not.",
        versions: "containerd 1.0 to 1.1.4 and 1.2.0 (as in Docker 18.06), in shims of both versions; fixed in 1.1.5 and 1.2.1, \
            a rarer form was reported of later 1.2. A shim keeps the program that it was started with: pods from before \
            an upgrade keep the bug",
        symptoms: &[
            "ctr task ls hangs at one shim, docker ps or docker inspect at one container",
            "exec probes, StopContainer and stats of one pod: DeadlineExceeded",
            "[runc] <defunct> below a containerd-shim",
        ],
        evidence: &[
            "three goroutines of the shim: its reaper in a send, the reader of exits at a lock, a request that waits for an exit",
            "or, when its goroutines cannot be read: a runc below it that has ended and was not reaped for 10 s",
            "the shim runs no runc, at each look, 3 s apart or more",
            "a request that waits for its answer",
        ],
        excluded_by: &[
            "a runc of the shim runs: then the lock is merely held for as long as that takes",
            "the shim waits for itself in another way (S7), or for containerd to read (S2)",
            "the shim is stopped or frozen (S10)",
            "its children are zombies because of a tracer (S11): then the shim answers",
        ],
        next: &[
            "`kill -9` the shim: the kubelet starts the pod anew",
            "upgrade containerd to 1.2.1 or later, with the runtime io.containerd.runc.v2, and restart the pods that were started before",
            "until then: fewer exec probes that fire together (spread periodSeconds, or use httpGet)",
        ],
        trap: "Do not restart containerd or the kubelet: they ask the same shim.",
        sources: &[
            "containerd#2438",
            "containerd#2709",
            "containerd PR 2624, 2743, 2748",
            "containerd PR 3529",
        ],
    },
    examine,
};

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    scene.stuck().filter_map(|stuck| finding(stuck, scene)).collect()
}

fn finding(stuck: &Stuck, scene: &Scene<'_>) -> Option<Finding> {
    let StuckKind::SilentShim { shim, lock, .. } = &stuck.what else { return None };
    let unreaped = unreaped(*shim, scene);
    let headline = format!(
        "shim {shim}{} is deadlocked, its lock and its reaper wait for each other: nothing of its pod can be started, stopped \
         or probed",
        of_pod(stuck.container.as_ref())
    );
    let finding = Finding::of_stuck(&RULE, headline, Component::Shim, stuck, scene);
    let mut goroutines = scene.snapshot.census.goroutines.iter();
    let finding = match (lock, goroutines.find(|fact| fact.pid == *shim)) {
        (Some(ShimLock::Reaper), Some(fact)) => with_deadlock(finding, &Deadlock::find(&fact.groups)?),
        (None, None) if unreaped.iter().any(|seen| is_lost(seen, scene)) => finding
            .doubted("the goroutines of the shim could not be read: it may wait in another way")
            .doubted("whether a tracer holds back the exit of its runc (S11) is not known"),
        _ => return None,
    };
    let finding = match unreaped.as_slice() {
        [] => finding.doubted("no child of the shim was found that has ended and was not reaped"),
        unreaped => finding.seen(Evidence::new(Source::Census, zombies(unreaped))),
    };
    let kill = format!("`kill -9 {shim}`: the kubelet starts the pod anew");
    let [_, upgrade, probes] = RULE.page.next else { return None };
    Some(by_version(finding, AFFECTED, scene.snapshot).advise([&kill, *upgrade, *probes]))
}

/// What the goroutines say.
fn with_deadlock(finding: Finding, found: &Deadlock<'_>) -> Finding {
    let told = |what: &str, group: &GoroutineGroup| {
        Evidence::new(Source::Goroutines, format!("{what}: {}", words::go_stack(&group.frames, true)))
    };
    finding
        .seen(told("the reaper of the shim waits until an exit is taken", found.reaper))
        .seen(told("the reader of exits waits for a lock", found.reader))
        .seen(told("a request waits for the end of a runc", found.holder))
}

/// Children of the shim that have ended and were found unreaped at each look for a while.
fn unreaped<'a>(shim: u32, scene: &Scene<'a>) -> Vec<&'a ProcessSeen> {
    let is_child = |seen: &&ProcessSeen| seen.fact.parent == shim && seen.fact.state == 'Z';
    let all = scene.snapshot.census.processes.iter();
    all.filter(is_child).filter(|seen| unreaped_ns(seen, scene) >= STILL_NS).collect()
}

fn unreaped_ns(seen: &ProcessSeen, scene: &Scene<'_>) -> u64 {
    let looked = scene.snapshot.census.round.as_ref().map_or(0, |round| round.ended_ns);
    seen.still_since.map_or(0, |since| looked.saturating_sub(since.0))
}

/// Will nobody ask any more how this runc has ended?
fn is_lost(seen: &ProcessSeen, scene: &Scene<'_>) -> bool {
    seen.fact.component == Component::Runc && unreaped_ns(seen, scene) >= UNREAPED_NS
}

fn zombies(unreaped: &[&ProcessSeen]) -> String {
    let one = |seen: &&ProcessSeen| format!("{} {}", cut(&seen.fact.comm, 20), seen.fact.pid);
    let named: Vec<String> = unreaped.iter().take(NAMED).map(one).collect();
    let more = if unreaped.len() > NAMED { ", …" } else { "" };
    format!(
        "{} of its children {} ended and {} not been reaped: {}{more}",
        unreaped.len(),
        if unreaped.len() == 1 { "has" } else { "have" },
        if unreaped.len() == 1 { "has" } else { "have" },
        named.join(", ")
    )
}
