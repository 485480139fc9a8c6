//! Recordings of programs that the lab does not have: kubelet 1.36.2 with containerd 2.4 and with CRI-O 1.37, as users made them. A
//! recording that somebody made with one version is read by all later ones.

use std::fs::File;
use std::path::PathBuf;

use plegtrace::{
    commands,
    correlate::{LoopKind, Snapshot},
    diagnose::{Confidence, Failing, Verdict, diagnose},
    input::{Component, GoroutineGroup},
};
use plegtrace_tests::faults::stream::Stream;
use plegtrace_tests::found::still;
use plegtrace_tests::recordings::text_of;
use plegtrace_tests::story::{S, Story};

fn replayed(name: &str) -> Snapshot {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("golden/field/{name}.plegtrace"));
    let file = File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let replayed = commands::replay(file).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(replayed.damage.sentences().is_empty(), "{name}: {:?}", replayed.damage);
    replayed.snapshot
}

/// Nobody is accused on nodes that are well, also while a person works on one of them: CRI-O runs `crun exec` in the foreground.
#[test]
fn nodes_that_are_well() {
    for name in ["containerd-healthy", "crio-healthy", "crio-kubectl-exec"] {
        let diagnosis = diagnose(&replayed(name));
        assert_eq!(diagnosis.verdict, Verdict::Healthy, "{name}: {diagnosis:#?}");
    }
}

/// A network plugin that does not exist: no pod starts, and nothing hangs.
#[test]
fn a_plugin_that_fails() {
    let snapshot = replayed("containerd-plugin-fails");
    let diagnosis = diagnose(&snapshot);
    let [Failing::Calls { streak, .. }] = &diagnosis.failing[..] else { panic!("{diagnosis:#?}") };
    assert_eq!(
        (diagnosis.verdict, streak.method.name(), streak.failed),
        (Verdict::Failing, "RunPodSandbox", 2)
    );
    let text = text_of(&snapshot, true).unwrap();
    assert!(text.contains("\nFAILING  RunPodSandbox fails every time: 2 of 2 since "), "{text}");
}

/// What these recordings do not hold is not claimed: whether the runtime has a network, and what the kubelet's sync loop does.
#[test]
fn what_was_not_seen_is_not_claimed() {
    for name in ["containerd-no-network", "containerd-device-plugin"] {
        let text = text_of(&replayed(name), true).unwrap();
        assert!(!text.contains("not because of the runtime"), "{text}");
        assert!(
            text.contains("not asked whether it is ready") && text.contains("other loops of the kubelet"),
            "{text}"
        );
    }
}

/// A `runc update` that was stopped holds up all lists: it is named, with everybody behind it, and what to do about it.
#[test]
fn an_update_that_was_stopped() {
    const RUNC: u32 = 15_648;
    let snapshot = replayed("containerd-runc-update-stopped");
    let diagnosis = diagnose(&snapshot);
    let [finding] = &diagnosis.findings[..] else { panic!("{diagnosis:#?}") };
    assert_eq!((diagnosis.verdict, finding.rule.id), (Verdict::Stall, "R1"));
    let culprit = finding.culprit.as_ref().unwrap();
    assert_eq!((culprit.component, culprit.pid), (Component::Runc, Some(RUNC)));
    let words = "runc update of d6de0c214017 (pid 15648) of default/h2-n1: stopped (state T)";
    assert_eq!(culprit.words, words);
    assert_eq!((finding.confidence, &finding.doubts[..]), (Confidence::High, &[][..]));
    let chain = [
        "relist in kubelet 1966",
        "UpdateContainerResources in ",
        "4 ListContainers in ",
        "shim 2091 waits",
        words,
    ];
    let texts: Vec<&str> = finding.evidence.iter().map(|evidence| evidence.text.as_str()).collect();
    for link in chain {
        assert!(texts.iter().any(|text| text.starts_with(link)), "no {link} in {texts:#?}");
    }
    assert!(finding.next[0].starts_with("`kill -CONT 15648`"), "{:?}", finding.next);
    assert!(!finding.next.iter().any(|next| next.contains("restarts the containers")), "{:?}", finding.next);
    let text = text_of(&snapshot, true).unwrap();
    assert!(!text.contains("\n  also "), "one story: {text}");
}

/// CRI-O with crun: each program has its own name, and nothing is said of shims that are not there.
#[test]
fn programs_of_cri_o() {
    for name in ["crio-healthy", "crio-kubectl-exec"] {
        let snapshot = replayed(name);
        let text = text_of(&snapshot, true).unwrap();
        let header = text.lines().take_while(|line| !line.is_empty()).collect::<Vec<_>>().join("   ");
        assert!(header.contains("crun ?") && text.contains(" conmons"), "{text}");
        for wrong in ["runc", "ttrpc", "shim"] {
            let line = text.lines().find(|line| line.contains(wrong));
            assert!(line.is_none_or(|line| line.contains("watched ")), "{name}: {line:?}");
        }
        assert!(text.contains("\n  crun exec ") && text.contains("\n  crun init "), "{text}");
    }
}

/// The goroutines of the kubelet, as the first look of a recording found them, each with a fingerprint: looks of now have those.
fn goroutines_of_kubelet(name: &str) -> Option<Vec<GoroutineGroup>> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("golden/field/{name}.plegtrace"));
    let stream = Stream::open(&path).unwrap();
    let groups = stream.first_goroutines(Component::Kubelet)?;
    Some(groups.into_iter().map(|group| still(group, 7)).collect())
}

/// What two looks at these goroutines tell, eleven seconds apart.
fn looked_twice(groups: &[GoroutineGroup]) -> Snapshot {
    let mut story = Story::node();
    for second in 0..=13 {
        story.relist(second * S, 0);
    }
    story.census(2 * S, &[], &[], groups).census(13 * S, &[], &[], groups);
    story.read_open(13 * S).snapshot(13 * S)
}

/// The loops of kubelet 1.36.2 are known by the functions that they really have, and those of one that is well are idle. A loop that
/// `wait.Until` calls (the check of the runtime, reports of the node, the removal of containers) is on a stack only while it works.
#[test]
fn loops_of_a_kubelet_of_today() {
    let looks = ["containerd-healthy", "crio-healthy", "crio-kubectl-exec", "containerd-no-network"]
        .map(goroutines_of_kubelet);
    let looks: Vec<_> = looks.into_iter().flatten().collect();
    assert!(!looks.is_empty());
    for groups in looks {
        let snapshot = looked_twice(&groups);
        let [loops] = &snapshot.census.loops[..] else { panic!("{:?}", snapshot.census.loops) };
        assert!(snapshot.watches_loops() && loops.looks == 2, "{loops:#?}");
        let wanted =
            [LoopKind::SyncLoop, LoopKind::PodWorker, LoopKind::Eviction, LoopKind::PluginRegistration];
        for kind in wanted.into_iter().chain([LoopKind::VolumePopulator, LoopKind::VolumeReconciler]) {
            assert!(loops.found.contains(&kind), "no {kind:?} in {:?}", loops.found);
        }
        let late: Vec<_> = loops.busy.iter().filter(|one| one.late_ns().is_some()).collect();
        assert!(late.is_empty(), "{late:#?}");
    }
}

/// The same kubelet with a device plugin that does not answer. What was recorded then has one look at the goroutines; two would have shown it.
#[test]
fn a_device_plugin_that_does_not_answer() {
    let snapshot =
        looked_twice(&goroutines_of_kubelet("containerd-device-plugin").expect("a look at the kubelet"));
    let diagnosis = diagnose(&snapshot);
    let [finding] = &diagnosis.findings[..] else { panic!("{diagnosis:#?}") };
    assert_eq!((diagnosis.verdict, finding.rule.id), (Verdict::Stall, "K9"));
    let said =
        "waits for a device plugin to answer Allocate: no pod of this node is started, changed or removed";
    assert!(
        finding.headline.starts_with("the sync loop of kubelet ") && finding.headline.ends_with(said),
        "{}",
        finding.headline
    );
    assert_eq!(diagnosis.unexplained().count(), 0, "{diagnosis:#?}");
}
