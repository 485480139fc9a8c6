//! Recordings of programs that the lab does not have: kubelet 1.36.2 with containerd 2.4 and with CRI-O 1.37, as users made them. A
//! recording that somebody made with one version is read by all later ones.

use std::fs::File;
use std::path::PathBuf;

use plegtrace::{
    commands,
    correlate::Snapshot,
    diagnose::{Failing, Verdict, diagnose},
};
use plegtrace_tests::recordings::text_of;

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
    let text = text_of(&snapshot, false).unwrap();
    assert!(text.contains("\nFAILING  RunPodSandbox fails every time: 2 of 2 since "), "{text}");
}

/// What these recordings do not hold is not claimed: whether the runtime has a network, and what the kubelet's sync loop does.
#[test]
fn what_was_not_seen_is_not_claimed() {
    for name in ["containerd-no-network", "containerd-device-plugin"] {
        let text = text_of(&replayed(name), false).unwrap();
        assert!(!text.contains("not because of the runtime"), "{text}");
        assert!(
            text.contains("not asked whether it is ready") && text.contains("other loops of the kubelet"),
            "{text}"
        );
    }
}

/// A `runc update` that was stopped holds up all lists.
#[test]
fn an_update_that_was_stopped() {
    let diagnosis = diagnose(&replayed("containerd-runc-update-stopped"));
    assert_eq!(diagnosis.verdict, Verdict::Stall);
    assert_eq!(diagnosis.first().map(|finding| finding.rule.id), Some("R1"));
}
