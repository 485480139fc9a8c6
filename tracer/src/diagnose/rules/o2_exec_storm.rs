//! O2: so many exec probes that the node is busy with nothing else.

use crate::{
    correlate::{Age, thresholds::SECOND_NS},
    diagnose::{
        Area, Confidence, Culprit, Evidence, Finding, Page, Proof, Rule, Scene, Severity, Source,
        excluded::{CPU_PRESSURE, percent},
    },
    input::Component,
    words::human::{count, duration},
};

/// Execs per second and processor from which they are a storm.
const PER_CORE: f64 = 5.0;
/// What is watched for less tells no rate.
const WINDOW_NS: u64 = 3 * SECOND_NS;

pub(super) static RULE: Rule = Rule {
    id: "O2",
    title: "a storm of exec probes keeps the node busy",
    area: Area::Overload,
    min_age_ns: WINDOW_NS,
    proof: Proof::Real,
    page: Page {
        mechanism: "Each exec probe starts runc, runc init and the command in the container: several processes, a \
            cgroup change, a mount or two, perhaps calls to systemd. A hundred pods with two probes each took a \
            third of the CPU. Each exec is quick by itself; together they delay everything, PID 1 and the cgroup \
            locks first (D2, X8).",
        versions: "all; runc 1.1.15 and 1.2 are cheaper for systemd",
        symptoms: &[
            "probes time out in one pod, then in another",
            "systemd and containerd use a lot of CPU",
            "PLEG flaps",
        ],
        evidence: &[
            "more than 5 runc exec per second and CPU, each short",
            "no call or process that stays: the oldest one keeps changing",
        ],
        excluded_by: &["any single culprit: one call, lock or process that stays"],
        next: &[
            "use httpGet, tcpSocket or grpc probes instead of exec, or longer periods",
            "reserve CPU for the system (kube-reserved)",
        ],
        trap: "Overload easily hides a single stuck process, so this cause is reported only when none was found.",
        sources: &["kubernetes#82440", "moby#45595", "kubernetes/website#41084"],
    },
    examine,
};

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    let snapshot = scene.snapshot;
    let (window, cpus) = (snapshot.window.ns(), snapshot.start.cpus);
    let Some(row) = scene.ended("exec").filter(|_| window >= WINDOW_NS && cpus > 0) else {
        return Vec::new();
    };
    #[allow(clippy::cast_precision_loss, reason = "a rate with two figures")]
    let rate = row.latency.count() as f64 / (window as f64 / SECOND_NS as f64);
    if rate < PER_CORE * f64::from(cpus) {
        return Vec::new();
    }
    let p50 = row.latency.quantile_ns(0.5).unwrap_or_default();
    let text = format!(
        "{} {} in {}: {rate:.0} per second on {} processors, p50 {}, max {}",
        count(row.latency.count()),
        row.kind,
        duration(window),
        cpus,
        duration(p50),
        duration(row.latency.max_ns())
    );
    let mut finding =
        Finding::new(&RULE, format!("exec probes start {rate:.0} commands per second on {cpus} processors"))
            .seen(Evidence::new(Source::Processes, text));
    let pressure = snapshot.census.round.as_ref().and_then(|round| round.pressure);
    finding = match pressure {
        Some(pressure) => finding.seen(Evidence::new(
            Source::Census,
            format!("CPU pressure was {} % over the last 10 s", percent(pressure.cpu_some_avg10)),
        )),
        None => finding,
    };
    if pressure.is_none_or(|pressure| pressure.cpu_some_avg10 < CPU_PRESSURE) {
        finding = finding.doubted("CPU pressure is low");
    }
    finding.culprit = Some(Culprit {
        component: Component::Kubelet,
        pid: None,
        container: None,
        words: "no single one: all exec probes of this node together".to_owned(),
    });
    finding.since = Some(Age { ns: window, at_least: true });
    // That it is busy is no stall, and one relist that took long, none either.
    let suffers = scene.slow().next().is_some() && finding.confidence == Confidence::High;
    finding.severity = if suffers { Severity::Slow } else { Severity::Notice };
    let finding = finding.advise(RULE.page.next.iter().copied());
    vec![finding]
}
