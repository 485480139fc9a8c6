//! K10: a loop of the kubelet waits for a lock of the kubelet's own.

use crate::{
    correlate::{BusyLoop, LoopWait, TracedProcess},
    diagnose::{
        Area, Evidence, Finding, Page, Proof, Reason, Rule, Scene, Source,
        kubelet_loops::{self, HeldBy, held_by},
        unit::{fate, unit},
    },
    input::Component,
    stuck::{LoopStall, Stuck, StuckKind},
    words::{self, go_stack, short_function},
};

pub(super) static RULE: Rule = Rule {
    id: "K10",
    title: "the kubelet has locked itself out: a loop waits for a lock that nobody lets go",
    area: Area::Kubelet,
    min_age_ns: 0,
    proof: Proof::Rebuilt,
    page: Page {
        mechanism: "A goroutine of the kubelet waits for a lock that another one, or it itself, has and does not let go, because of a bug \
            of the kubelet or of a library in it: cAdvisor's lock of containers, or the lock of a gRPC connection that went idle. Every \
            thread rests, no call is open, and nothing is logged. What the loop does stops until the kubelet is restarted.",
        versions: "DRA drivers after 30 idle minutes: 1.34.0 and 1.34.1; cAdvisor: seen in 1.2x; any kubelet can have such a bug",
        symptoms: &[
            "new pods stay Pending or ContainerCreating on a node that is Ready; a restart of the kubelet heals",
            "/healthz of the kubelet: syncloop failed",
        ],
        evidence: &[
            "two looks find the same goroutine of a loop at a lock, and its stack shows that it has not gone on in between, for 10 s (sync \
             loop) or 30 s",
            "the goroutine that has the lock, where one shows it, and what it waits for",
        ],
        excluded_by: &[
            "something else of the node does not move: the lock may be held for that",
            "another loop waits for somebody else, and who has the lock is not seen",
            "whoever has the lock waits for a plugin, the runtime, the API server, a program or a file: that is to blame",
        ],
        next: &[
            "keep its goroutines for the report of the bug: `plegtrace goroutines PID`",
            "restart the kubelet: running containers go on",
        ],
        trap: "Do not restart the runtime: no call to it is open.",
        sources: &["kubernetes#133920 (PR 133926)", "kubernetes#102481"],
    },
    examine,
};

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    if !stands_alone(scene) {
        return Vec::new();
    }
    kubelet_loops::stalls(scene).filter_map(|(stuck, stall)| finding(stuck, stall, scene)).collect()
}

/// Nothing but loops of the kubelet is held up, and all of these wait inside of the kubelet.
fn stands_alone(scene: &Scene<'_>) -> bool {
    let is_loop =
        |reason: &Reason| matches!(reason, Reason::Stuck(stuck) if matches!(stuck.what, StuckKind::Loop(_)));
    let inside = |stall: &LoopStall| {
        matches!(stall.oldest.wait, LoopWait::Lock { .. } | LoopWait::Goroutine | LoopWait::Unknown)
    };
    let in_kernel = scene.snapshot.census.processes.iter().any(|seen| {
        seen.fact.component == Component::Kubelet && (!seen.blocked.is_empty() || seen.still_since.is_some())
    });
    scene.reasons().all(is_loop) && !in_kernel && kubelet_loops::stalls(scene).all(|(_, stall)| inside(stall))
}

fn finding(stuck: &Stuck, stall: &LoopStall, scene: &Scene<'_>) -> Option<Finding> {
    let LoopWait::Lock { by } = &stall.oldest.wait else { return None };
    let held = held_by(&stall.oldest, scene);
    let is_to_blame = match &held {
        HeldBy::Itself => true,
        HeldBy::Other { wait, .. } => matches!(wait, LoopWait::Lock { .. } | LoopWait::Goroutine),
        HeldBy::Unknown => !others_wait(&stall.oldest, scene),
    };
    if !is_to_blame {
        return None;
    }
    let (name, pid) = (stall.oldest.kind.words(), stall.oldest.pid);
    let place = by.as_deref().map(|by| format!(" in {}", short_function(by))).unwrap_or_default();
    let whose = match &held {
        HeldBy::Itself => " that it has itself",
        HeldBy::Other { .. } => ", and whoever has it waits, too",
        HeldBy::Unknown => "",
    };
    let headline = format!(
        "{name} of kubelet {pid} waits for a lock of the kubelet's own{place}{whose}: {}",
        stall.oldest.kind.stops()
    );
    let finding = kubelet_loops::finding(&RULE, headline, stall, stuck, scene);
    let finding = match &held {
        HeldBy::Other { group, .. } => finding
            .seen(Evidence::new(
                Source::Goroutines,
                format!(
                    "goroutine {}, in a function of the same structure: {}",
                    goroutine(&group.goids),
                    go_stack(&group.frames, false)
                ),
            ))
            .doubted("that another goroutine has the lock has never been tested on the real programs"),
        HeldBy::Itself => finding,
        HeldBy::Unknown => finding.doubted("which goroutine has that lock was not seen"),
    };
    let version = known_bug(by.as_deref(), scene, pid);
    let finding = version.into_iter().fold(finding, Finding::seen);
    let unit = unit(Component::Kubelet, scene);
    Some(finding.advise([
        format!("`plegtrace goroutines {pid} > kubelet.txt`: for the report of the bug"),
        format!("`systemctl restart {unit}`: {}", fate(Component::Kubelet)),
    ]))
}

/// Another loop of this kubelet has not gone on either, and waits for another component: it may have the lock.
fn others_wait(one: &BusyLoop, scene: &Scene<'_>) -> bool {
    let busy = scene.snapshot.census.loops.iter().flat_map(|loops| &loops.busy);
    let outside = |wait: &LoopWait| {
        !matches!(wait, LoopWait::Lock { .. } | LoopWait::Goroutine | LoopWait::Time | LoopWait::Unknown)
    };
    busy.filter(|other| other.pid == one.pid && other.looks >= 2).any(|other| outside(&other.wait))
}

fn goroutine(goids: &[u64]) -> u64 {
    goids.first().copied().unwrap_or_default()
}

/// Kubelets 1.34.0 and 1.34.1 lock themselves out of a DRA driver whose connection was idle for 30 minutes.
fn known_bug(by: Option<&str>, scene: &Scene<'_>, pid: u32) -> Option<Evidence> {
    let mut targets = scene.snapshot.targets.iter();
    let target: &TracedProcess = targets.find(|target| target.fact.pid == pid)?;
    let version = scene.snapshot.version_of(target)?.trim_start_matches('v');
    let has = ["1.34.0", "1.34.1"].contains(&version) && by.is_some_and(|by| by.contains("internal/idle."));
    has.then(|| {
        Evidence::new(
            Source::Census,
            format!(
                "kubelet {} has this bug: upgrade to 1.34.2 (kubernetes#133920)",
                words::cut(version, 40)
            ),
        )
    })
}
