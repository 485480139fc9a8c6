//! R5: go-cni takes its read lock twice, and a reload between the two waits for ever, as does everybody behind it.

use crate::{
    correlate::{Request, thresholds::SECOND_NS},
    diagnose::{
        Area, Culprit, Evidence, Finding, Page, Proof, Rule, Scene, Source,
        networks::Networks,
        unit::{fate, unit},
    },
    input::Command,
    words,
};

/// No holder of the lock can let go, so two looks this far apart are enough.
const LOCKED_NS: u64 = 5 * SECOND_NS;
/// Functions of go-cni that hold the read lock from begin to end (go-cni 1.1.11, cni.go).
const HOLDERS: [&str; 4] = ["Setup", "SetupSerially", "Remove", "Check"];

pub(super) static RULE: Rule = Rule {
    id: "R5",
    title: "go-cni takes its read lock twice and deadlocks when a network configuration changes",
    area: Area::Runtime,
    min_age_ns: LOCKED_NS,
    proof: Proof::Rebuilt,
    page: Page {
        mechanism: "The set-up of a network takes go-cni's read lock, and inside of it once more. When a file in \
            /etc/cni/net.d changes in between, the reload waits to write, and Go's RWMutex lets no reader pass it: the \
            set-up waits for the reload, and the reload for the set-up. Status and every other pod wait behind them.",
        versions: "containerd 2.0.1 and 2.0.2; fixed in 2.0.3 and 2.1 (go-cni 1.1.12)",
        symptoms: &["container runtime is down, soon after boot, with two network plugins"],
        evidence: &[
            "goroutines in Status and in RunPodSandbox that wait for go-cni's lock",
            "a goroutine that reloads the configuration and waits for the same lock",
            "nobody is past the lock, and no network plugin runs",
            "the set-up waits for the lock inside of go-cni's Setup, which holds it",
        ],
        excluded_by: &["a network plugin runs (R6)", "the reload is past the lock (L2)"],
        next: &["restart the runtime: running containers are not touched", "then upgrade it"],
        trap: "Nothing runs and nothing is busy, so the node looks idle; waiting does not help.",
        sources: &["containerd#11186", "containerd#11275", "go-cni PR 123"],
    },
    examine,
};

/// Is this why `Status` hangs?
pub(super) fn explains(scene: &Scene<'_>) -> bool {
    !examine(scene).is_empty()
}

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    let Some(networks) = Networks::of(scene) else { return Vec::new() };
    let plugin = scene
        .snapshot
        .census
        .processes
        .iter()
        .any(|seen| matches!(seen.fact.command, Some(Command::Cni { .. })));
    let old = networks.status.stays && networks.status.since.ns > RULE.min_age_ns;
    let locked = networks.reload.is_some() && networks.inside.is_empty() && !networks.waiting.is_empty();
    if plugin || !old || !locked {
        return Vec::new();
    }
    let (runtime, pid) = (networks.component.name(), networks.pid);
    let headline =
        format!("{runtime} has locked itself out of its network configuration: Status waits for ever");
    let finding = Finding::new(&RULE, headline);
    let again = networks.waiting.iter().find_map(|request| twice(request));
    let finding = Finding {
        since: Some(networks.status.since),
        culprit: Some(Culprit {
            component: networks.component,
            pid: Some(pid),
            container: None,
            words: format!("{runtime} {pid}: its network lock, whose holder waits for it as well"),
        }),
        victims: networks.victims(),
        reach: 2,
        evidence: networks.evidence().into_iter().chain(again.clone()).collect(),
        ..finding
    };
    let restart =
        format!("`systemctl restart {}`: {}", unit(networks.component, scene), fate(networks.component));
    let finding = finding.advise([restart, RULE.page.next[1].to_owned()]);
    vec![if again.is_some() {
        finding
    } else {
        finding.doubted("no goroutine was seen waiting for the lock a second time")
    }]
}

/// A goroutine that holds the lock and waits for it: in a go-cni function called by one that holds it.
fn twice(request: &Request) -> Option<Evidence> {
    let of_go_cni = |frame: &str| Some(frame.split_once("go-cni.(*libcni).")?.1.to_owned());
    let mut functions = request.frames.iter().enumerate().filter_map(|(at, f)| Some((at, of_go_cni(f)?)));
    let _inner = functions.next()?;
    let (outer, _) = functions.find(|(_, name)| HOLDERS.contains(&name.as_str()))?;
    let text = format!(
        "{}, holds the lock and waits for it again: {}",
        words::requests(request),
        words::go_stack(&request.frames[..=outer], true)
    );
    Some(Evidence::new(Source::Goroutines, text))
}
