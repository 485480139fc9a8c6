//! O1: kubelet or runtime do not get the processor time they need.

use crate::{
    correlate::{Age, CpuShare, Doing, Place, RecentKind},
    diagnose::{
        Area, Culprit, Evidence, Finding, Page, Proof, Reason, Rule, Scene, Severity, Slow, SlowKind, Source,
        held_off::{HeldOff, STALLS, WINDOW_NS, explains_all, held_off},
    },
    input::{Component, RunnerFact},
    stuck::REACH_RELIST,
    words::{self, human},
};

/// So many of those that run meanwhile are named.
const NAMED: usize = 3;

pub(super) static RULE: Rule = Rule {
    id: "O1",
    title: "kubelet or runtime are held off the processors, by a quota or by others",
    area: Area::Overload,
    min_age_ns: WINDOW_NS,
    proof: Proof::Real,
    page: Page {
        mechanism: "Every answer needs processor time. A cgroup whose quota is used up does not run until the next \
            period of 100 ms: each step of a call, which takes microseconds, may wait that long, and a list from \
            memory takes hundreds of milliseconds. Without a quota the same comes from too many runnable tasks: the \
            daemon is ready, and waits for its turn. Nothing hangs, everything is late.",
        versions: "all",
        symptoms: &[
            "relists and all CRI calls are slow together, ListContainers as well as Version",
            "PLEG flaps, probes time out, \"context deadline exceeded\" in many places",
            "nr_throttled grows in cpu.stat of the daemon's cgroup",
        ],
        evidence: &[
            "relists or calls are slow",
            "its cgroup, or one above it, was throttled for a fifth of the time or more",
            "or its threads waited longer for a CPU than they ran, for a fifth of the time or more",
        ],
        excluded_by: &[
            "the node answers in time: a quota that hurts nobody is none of our business",
            "only a plugin, a hook or a shim is slow: it is not the daemon that is waited for",
        ],
        next: &[
            "`systemctl show -p CPUQuotaPerSecUSec containerd kubelet`: look for a quota, also of system.slice",
            "raise or remove it: `systemctl set-property --runtime UNIT CPUQuota=`",
            "without a quota: see who runs meanwhile (top), give it less (cpu.weight, CPUWeight=), and reserve CPU for the system \
             (kube-reserved, system-reserved)",
        ],
        trap: "Do not restart the daemon: that makes it worse, its start needs more processor time than its calls.",
        sources: &["eks-ami#195", "kubernetes#129811", "kubernetes#45419"],
    },
    examine,
};

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    let late = scene.slow().any(is_of_daemons) || scene.reasons().next().is_some();
    let mut held: Vec<(HeldOff<'_>, &CpuShare)> = all_held_off(scene).filter(|_| late).collect();
    // A quota is certain; the others may suffer from what it does.
    held.sort_by_key(|(held, daemon)| (matches!(held, HeldOff::Others(_)), 100 - held.share(), daemon.pid));
    held.iter().map(|(held, daemon)| finding(held, daemon, scene)).collect()
}

fn all_held_off<'a>(scene: &Scene<'a>) -> impl Iterator<Item = (HeldOff<'a>, &'a CpuShare)> {
    scene.snapshot.cpu.daemons.iter().filter_map(|daemon| Some((held_off(daemon)?, daemon)))
}

/// Quotas that do not explain what is held up, and no cause is named: they are certain, and may be behind it all the same.
pub(in crate::diagnose) fn quotas(scene: &Scene<'_>) -> Vec<Finding> {
    let quotas = all_held_off(scene).filter(|(held, _)| matches!(held, HeldOff::Quota(..)));
    let notice = |(held, daemon): (HeldOff<'_>, &CpuShare)| Finding {
        severity: Severity::Notice,
        ..finding(&held, daemon, scene)
            .doubted("what is held up may have another cause: look again without the quota")
    };
    quotas.filter(|_| scene.reasons().next().is_some()).map(notice).collect()
}

/// Does it show what a daemon lacks? What waits for others, or is slow by itself, does not.
fn is_of_daemons(slow: &Slow) -> bool {
    let own = |component: Component| component == Component::Kubelet || component.role().is_runtime();
    let lacks =
        |place: &Place| !matches!(place.doing, Doing::Waits | Doing::Lock) && place.component.is_none_or(own);
    match &slow.what {
        SlowKind::Relists | SlowKind::Recent(RecentKind::Runc { .. }) => true,
        SlowKind::Recent(RecentKind::Calls(_)) => slow.part.as_ref().is_none_or(|(place, _)| lacks(place)),
        SlowKind::Recent(_) => false,
    }
}

/// Who had the processors meanwhile, the most first.
fn others<'a>(daemon: &CpuShare, scene: &Scene<'a>) -> impl Iterator<Item = &'a RunnerFact> {
    let pid = daemon.pid;
    scene.snapshot.cpu.runners.iter().filter(move |runner| runner.pid != pid)
}

/// Names the one that runs most of the time.
fn who_runs(daemon: &CpuShare, scene: &Scene<'_>) -> String {
    let most = others(daemon, scene).next().filter(|most| most.ran_ns > daemon.ran_ns);
    most.map_or("others run".to_owned(), |most| {
        format!("others run, most of all {}", words::runner_name(most))
    })
}

fn finding(held: &HeldOff<'_>, daemon: &CpuShare, scene: &Scene<'_>) -> Finding {
    let name = daemon.component.name();
    let (headline, culprit) = match held {
        HeldOff::Quota(quota, share) => (
            format!("{name} is throttled {share} % of the time: its cgroup may use {}", words::quota(quota)),
            format!("{name} {} is {}", daemon.pid, words::throttled(quota, daemon.over_ns)),
        ),
        HeldOff::Others(share) => {
            let who = who_runs(daemon, scene);
            (format!("{name} waits for a CPU {share} % of the time: {who}"), words::cpu_share(daemon))
        }
    };
    let mut finding = Finding::new(&RULE, headline).seen(Evidence::new(Source::Scheduler, culprit.clone()));
    if let HeldOff::Quota(..) = held {
        finding = finding.seen(Evidence::new(Source::Scheduler, words::cpu_share(daemon)));
    }
    let others: Vec<RunnerFact> = others(daemon, scene).take(NAMED).cloned().collect();
    if matches!(held, HeldOff::Others(_)) && !others.is_empty() {
        let text = format!("meanwhile {}", words::runners(&others));
        finding = finding.seen(Evidence::new(Source::Scheduler, text));
    }
    if let Some((waited, over)) = scene.snapshot.cpu.pressure {
        let text =
            format!("some task of the node waited for a CPU {} of the time", human::share(waited, over));
        finding = finding.seen(Evidence::new(Source::Scheduler, text));
    }
    finding.culprit =
        Some(Culprit { component: daemon.component, pid: Some(daemon.pid), container: None, words: culprit });
    finding.since = Some(Age { ns: daemon.over_ns, at_least: true });
    let relists = scene.slow().any(|slow| slow.what == SlowKind::Relists);
    let open = scene.reasons().any(|reason| matches!(reason, Reason::RelistOpen { .. }));
    finding.reach = if relists || open { REACH_RELIST } else { 2 };
    let by_age = explains_all(*scene) && scene.reasons().next().is_some();
    let stalls = held.share() >= STALLS && (open || by_age);
    finding.severity = match scene.reasons().next() {
        None => Severity::Slow,
        Some(_) if stalls => Severity::Stall,
        Some(_) => Severity::Notice,
    };
    if by_age && !open {
        finding =
            finding.doubted("what is open for so long may hang by itself: look again without the quota");
    }
    finding.advise(RULE.page.next.iter().copied())
}
