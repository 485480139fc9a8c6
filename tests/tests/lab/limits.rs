//! Limits of the node that are used up.

use std::time::Duration;

use plegtrace::diagnose::{Confidence, Severity, Verdict, diagnose};
use plegtrace::input::Component;
use plegtrace_lab::{Containerd, Knobs, fault, host, process};
use plegtrace_tests::watching::Watching;

const LIMIT: Duration = Duration::from_secs(30);

/// A shim whose cgroup has no room for another process is noticed, with the cgroup, and nothing is called a stall; with room again,
/// nothing is said of it.
#[test]
fn a_full_cgroup_is_noticed() {
    host::require_root().unwrap();
    let containerd = Containerd::start(&Knobs { pods: 0, ..Knobs::default() }).unwrap();
    let pod = containerd.run_pod("p0").unwrap();
    let shim = containerd.shim_of(&pod.sandbox).unwrap();
    let crowded = fault::crowded(shim).unwrap();
    let group = crowded.facts().path.clone().unwrap();
    let runtime = containerd.pid().to_string();
    let look = || {
        let about = ["-d", "600", "--runtime-pid", &runtime, "--sources", "census,processes"];
        let watching = Watching::start(&about).unwrap();
        watching.wait_until_armed().unwrap();
        let looked = || watching.seen().census_rounds > 0;
        process::wait_for("a look", LIMIT, || Ok(looked().then_some(()))).unwrap();
        watching.interrupt().unwrap().0
    };
    let snapshot = look();
    drop(crowded);
    let after = look();

    let diagnosis = diagnose(&snapshot);
    let [finding] = &diagnosis.findings[..] else { panic!("{:#?}", diagnosis.findings) };
    assert_eq!(
        (finding.rule.id, finding.severity, finding.confidence),
        ("O4", Severity::Notice, Confidence::High)
    );
    let culprit = finding.culprit.as_ref().unwrap();
    assert_eq!((culprit.component, culprit.pid), (Component::Shim, Some(shim)));
    assert!(finding.headline.contains(group.to_str().unwrap()), "{}", finding.headline);
    assert_ne!(diagnosis.verdict, Verdict::Stall);
    let after = diagnose(&after);
    assert!(after.findings.is_empty(), "{:#?}", after.findings);
}
