//! K3: one relist asks for the status of very many pods, each quickly.

use crate::{
    correlate::{
        Age, Relist,
        thresholds::{RELIST_OPEN_NS, RELIST_PERIOD_NS, SECOND_NS},
    },
    decode::MonoNs,
    diagnose::{
        Area, Culprit, Evidence, Finding, Page, Proof, Rule, Scene, Source,
        excluded::{CPU_PRESSURE, percent},
    },
    input::{Component, Layer},
    span::Span,
    stuck::REACH_RELIST,
    words::human::{count, duration},
};

/// Changed pods from which a relist is long because of their number.
const PODS: u64 = 20;
/// No single status call is slow.
const LONGEST_NS: u64 = SECOND_NS;
/// They are quick on average; a runtime that is short of something answers all of them late.
const MEAN_NS: u64 = SECOND_NS / 20;

pub(super) static RULE: Rule = Rule {
    id: "K3",
    title: "a relist asks for the status of many changed pods, one by one",
    area: Area::Kubelet,
    min_age_ns: RELIST_PERIOD_NS,
    proof: Proof::Real,
    page: Page {
        mechanism: "After listing, the relist asks for the status of every changed pod and of each of its \
            containers, dead ones included, one call at a time; up to Kubernetes 1.35 it also lists those of each pod \
            again. To the first relist after a kubelet start every pod \
            has changed; a mass exit has the same effect.",
        versions: "all: the loop is serial by design",
        symptoms: &[
            "PLEG is not healthy for some minutes after the kubelet starts, then recovers on its own",
        ],
        evidence: &[
            "a relist longer than its period, most of it in the status phase, for at least 20 pods",
            "no call in it longer than a second; its status calls take 50 ms or less on average",
        ],
        excluded_by: &[
            "one of its calls is slow: that call is the cause",
            "all of its calls are slow: the cause is what the runtime is short of (CPU, disk, memory)",
        ],
        next: &[
            "wait: it ends on its own, after the time per pod multiplied by the number of pods",
            "remove dead containers and finished pods (Job TTL, terminated-pod-gc-threshold); run fewer pods per node",
        ],
        trap: "Do not restart the kubelet, the usual reflex: that starts it all over again.",
        sources: &["kubernetes#45419", "pkg/kubelet/pleg/generic.go"],
    },
    examine,
};

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    let long = scene.snapshot.relists.iter().filter_map(|relist| Some((relist, status(relist, scene)?)));
    // What is in flight counts more than what is over.
    let worst = long.max_by_key(|(relist, _)| {
        (is_stall(relist, scene.snapshot.now), relist.root().duration_ns(scene.snapshot.now))
    });
    worst.map(|(relist, status)| finding(relist, &status, scene)).into_iter().collect()
}

fn is_stall(relist: &Relist, now: MonoNs) -> bool {
    relist.root().is_open() && relist.root().duration_ns(now) > RELIST_OPEN_NS
}

/// The status phase of a relist that is long because of it.
struct Status {
    pods: u64,
    ns: u64,
    calls: u64,
    longest_ns: u64,
    mean_ns: u64,
}

fn status(relist: &Relist, scene: &Scene<'_>) -> Option<Status> {
    let now: MonoNs = scene.snapshot.now;
    let whole = relist.root().duration_ns(now);
    let calls = || relist.root().walk().filter(|span| span.layer() == Layer::KubeletCall);
    let longest_ns = calls().map(|span| span.duration_ns(now)).max()?;
    let (pods, ns, calls) = (relist.status_pods, relist.status_ns, calls().count() as u64);
    let status = Status { pods, ns, calls, longest_ns, mean_ns: mean_ns(relist, now)? };
    let long = whole > RULE.min_age_ns && status.pods >= PODS && status.ns > whole / 2;
    (long && longest_ns < LONGEST_NS && status.mean_ns <= MEAN_NS).then_some(status)
}

/// How long the calls of the status phase take on average.
fn mean_ns(relist: &Relist, now: MonoNs) -> Option<u64> {
    let phases = relist.root().walk().filter(|span| span.layer() == Layer::StatusPhase);
    let calls = phases.flat_map(Span::walk).filter(|span| span.layer() == Layer::KubeletCall);
    let (sum, count) = calls.fold((0_u64, 0), |(sum, count), call| (sum + call.duration_ns(now), count + 1));
    sum.checked_div(count)
}

fn finding(relist: &Relist, status: &Status, scene: &Scene<'_>) -> Finding {
    let now = scene.snapshot.now;
    let whole = relist.root().duration_ns(now);
    let pods = count(status.pods);
    let open = relist.root().is_open();
    let state = if open { "open" } else { "that took" };
    let headline = format!(
        "a relist {state} {} asks for the status of {pods} changed pods, each quickly",
        duration(whole)
    );
    let finding = Finding::new(&RULE, headline)
        .seen(Evidence::new(
            Source::Uprobes,
            format!("status phase {} of {}, for {pods} pods", duration(status.ns), duration(whole)),
        ))
        .seen(Evidence::new(
            Source::Uprobes,
            format!(
                "{} calls, the longest {}, those for the status {} on average",
                count(status.calls),
                duration(status.longest_ns),
                duration(status.mean_ns)
            ),
        ));
    let pid = relist.root().id.tgid;
    let finding = Finding {
        since: Some(Age { ns: now.since(relist.root().start()), at_least: false }),
        culprit: Some(Culprit {
            component: Component::Kubelet,
            pid: Some(pid),
            container: None,
            words: format!("kubelet {pid}: {pods} changed pods in one relist"),
        }),
        victims: vec![format!("relist of kubelet {pid}")],
        reach: REACH_RELIST,
        ..finding
    };
    let finding = finding.advise([
        "wait: it ends on its own; do not restart the kubelet, which would start it over",
        "fewer dead containers and finished pods make it shorter (`crictl ps -a`, Job TTL)",
    ]);
    let finding = match pressure(scene) {
        Some(share) => finding.doubted(format!("CPU pressure was {share} % over the last 10 s")),
        None => finding,
    };
    if is_stall(relist, now) { finding } else { finding.into_notice() }
}

/// The share of the time in which somebody waited for a processor, when it is large.
fn pressure(scene: &Scene<'_>) -> Option<String> {
    let cpu = scene.snapshot.census.round.as_ref()?.pressure?.cpu_some_avg10;
    (cpu >= CPU_PRESSURE).then(|| percent(cpu))
}
