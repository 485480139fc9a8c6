//! Limits of the node that are used up.

use std::time::Duration;

use plegtrace::correlate::Snapshot;
use plegtrace::diagnose::{Confidence, Severity, Verdict, diagnose};
use plegtrace::input::Component;
use plegtrace_lab::fault::{Facts, Fault};
use plegtrace_lab::{Containerd, Knobs, fault, host, process};
use plegtrace_tests::watching::Watching;

const LIMIT: Duration = Duration::from_secs(30);

/// A shim whose cgroup has no room for another process is noticed, with the cgroup.
#[test]
fn a_full_cgroup_is_noticed() {
    is_noticed(fault::crowded, "O4", |crowded| crowded.path.as_ref().unwrap().display().to_string());
}

/// A shim that may have no more files open is noticed, with the figures of its limit.
#[test]
fn a_daemon_without_open_files_is_noticed() {
    is_noticed(fault::no_more_files, "O5", |_| "files open: it can neither open another".to_owned());
}

/// A limit of a shim that is used up is noticed by this rule, with these words, and nothing is called a stall; once there is room
/// again, there is no finding.
fn is_noticed(use_up: fn(u32) -> anyhow::Result<Fault>, rule: &str, words: fn(&Facts) -> String) {
    host::require_root().unwrap();
    let containerd = Containerd::start(&Knobs { pods: 0, ..Knobs::default() }).unwrap();
    let pod = containerd.run_pod("p0").unwrap();
    let shim = containerd.shim_of(&pod.sandbox).unwrap();
    let used_up = use_up(shim).unwrap();
    let words = words(used_up.facts());
    let runtime = containerd.pid().to_string();
    let snapshot = look(&runtime);
    drop(used_up);
    let after = look(&runtime);

    let diagnosis = diagnose(&snapshot);
    let [finding] = &diagnosis.findings[..] else { panic!("{:#?}", diagnosis.findings) };
    assert_eq!(
        (finding.rule.id, finding.severity, finding.confidence),
        (rule, Severity::Notice, Confidence::High)
    );
    let culprit = finding.culprit.as_ref().unwrap();
    assert_eq!((culprit.component, culprit.pid), (Component::Shim, Some(shim)));
    assert!(finding.headline.contains(&words), "{}", finding.headline);
    assert_ne!(diagnosis.verdict, Verdict::Stall);
    let after = diagnose(&after);
    assert!(after.findings.is_empty(), "{:#?}", after.findings);
}

/// What plegtrace knows after a look of the census.
fn look(runtime: &str) -> Snapshot {
    let about = ["-d", "600", "--runtime-pid", runtime, "--sources", "census,processes"];
    let watching = Watching::start(&about).unwrap();
    watching.wait_until_armed().unwrap();
    let looked = || watching.seen().census_rounds > 0;
    process::wait_for("a look", LIMIT, || Ok(looked().then_some(()))).unwrap();
    watching.interrupt().unwrap().0
}
