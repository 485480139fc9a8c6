//! Evidence taken away: the verdict stays right or becomes "cannot tell", and never turns wrong or healthy.

use std::time::{Duration, Instant};

use plegtrace_lab::fault::Kind;
use plegtrace_lab::{Knobs, Node, host, process};
use plegtrace_tests::program::Running;
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(90);
/// Hooks are late from 10 s on.
const LATE: Duration = Duration::from_secs(12);

/// What is taken away, and whether what is left names the cause.
const VARIANTS: [(&[&str], bool); 14] = [
    (&[], true),
    (&["--ring-bytes", "4096"], true),
    (&["--without", "relist"], true),
    (&["--without", "list-phase"], true),
    (&["--without", "kubelet-call"], true),
    (&["--without", "kubelet-client"], true),
    (&["--without", "handler"], true),
    (&["--without", "relist,list-phase,status-phase,kubelet-call,kubelet-client,handler"], true),
    (&["--sources", "census"], true),
    (&["--sources", "uprobes,census"], true),
    (&["--sources", "processes,census"], true),
    (&["--sources", "uprobes,processes"], false),
    (&["--sources", "uprobes"], false),
    (&["--sources", "processes"], false),
];

fn report(node: &Node, variant: &[&str]) -> (Value, Option<i32>) {
    let (kubelet, runtime) = (node.kubelet().pid().to_string(), node.containerd().pid().to_string());
    let about = ["-q", "-o", "json", "--kubelet-pid", &kubelet, "--runtime-pid", &runtime];
    // Without a census nothing is ever certain, and there is nothing to wait for.
    let census = !variant.iter().any(|word| word.contains("uprobes") || word.contains("processes"))
        || variant.iter().any(|word| word.contains("census"));
    let time: &[&str] = if census { &[] } else { &["-d", "6"] };
    let ended = Running::start(&[&about[..], time, variant].concat()).unwrap().finish(LIMIT).unwrap();
    let report = serde_json::from_str(&ended.stdout)
        .unwrap_or_else(|error| panic!("{variant:?}: {error}: {}\n{}", ended.stdout, ended.stderr));
    (report, ended.status.code())
}

fn ids(report: &Value) -> Vec<&str> {
    let findings = report["diagnosis"]["findings"].as_array().unwrap();
    findings.iter().map(|finding| finding["id"].as_str().unwrap()).collect()
}

/// A lock hostage in one pod and a sleeping hook in another, seen with less and less.
#[test]
fn less_evidence_is_never_a_wrong_verdict() {
    host::require_root().unwrap();
    let node = Node::start(&Knobs { gates: true, exec_probes: true, pods: 3, ..Knobs::default() }).unwrap();
    let hook = Kind::Hook.inject(&node, "p2").unwrap();
    let hostage = Kind::LockHostage.inject(&node, "p1").unwrap();
    let began = Instant::now();
    let late = || Ok((began.elapsed() >= LATE).then_some(()));
    process::wait_for("a hook that is late", LATE + LIMIT, late).unwrap();
    for (variant, named) in VARIANTS {
        let (report, code) = report(&node, variant);
        let (ids, verdict) = (ids(&report), &report["diagnosis"]["verdict"]);
        let told = serde_json::to_string_pretty(&report["diagnosis"]).unwrap();
        assert_ne!(verdict, "healthy", "{variant:?}\n{told}");
        assert!(matches!(code, Some(1 | 5)), "{variant:?}: {code:?}\n{told}");
        assert!(ids.iter().all(|id| matches!(*id, "R1" | "S10" | "U10")), "{variant:?}: {ids:?}\n{told}");
        if named {
            let versions = report["census"]["versions"].as_array().unwrap();
            let version = |of: &str| {
                let fact = versions.iter().find(|fact| fact["program"] == of);
                fact.and_then(|fact| fact["version"].as_str()).unwrap_or_else(|| panic!("{of}: {versions:?}"))
            };
            assert_eq!(version("kubelet"), "1.20.2", "{variant:?}");
            assert!(version("containerd").starts_with("1.6."), "{variant:?}: {versions:?}");
            assert_eq!((ids.first(), code), (Some(&"R1"), Some(1)), "{variant:?}\n{told}");
            let culprit = report["diagnosis"]["findings"][0]["culprit"]["pid"].as_u64();
            assert_eq!(culprit, Some(hostage.facts().culprits[0].into()), "{variant:?}\n{told}");
        }
        let taken = report["refused"].as_array().unwrap().iter().any(|refused| refused["matters"] == true);
        assert!(
            taken || variant.is_empty() || variant[0] == "--ring-bytes",
            "{variant:?} is not said: {}",
            report["refused"]
        );
        eprintln!("{variant:?}: {verdict} {ids:?}");
    }
    hostage.heal().unwrap();
    hook.heal().unwrap();
}

/// Lost events are counted, and no healthy node is called healthy on them, nor ill.
#[test]
fn lost_events_forbid_healthy() {
    host::require_root().unwrap();
    let node = Node::start(&Knobs { exec_probes: true, pods: 3, ..Knobs::default() }).unwrap();
    node.wait_for_relists(3, LIMIT).unwrap();
    let (report, code) = report(&node, &["--ring-bytes", "4096", "-d", "6"]);
    let lost = report["losses"].as_array().unwrap().iter().any(|loss| loss["is_loss"] == true);
    assert!(lost, "{}", report["losses"]);
    assert_eq!(
        (code, report["diagnosis"]["verdict"].as_str()),
        (Some(5), Some("cannot_tell")),
        "{}",
        report["diagnosis"]
    );
    assert_eq!(ids(&report), [] as [&str; 0]);
}
