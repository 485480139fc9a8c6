//! Nodes on which nothing is wrong, recorded while they were busy: whenever a report is asked for, nobody is accused.

use std::path::PathBuf;

use plegtrace::correlate::{Correlator, Limits};
use plegtrace::decode::{MonoNs, decode};
use plegtrace::diagnose::{Severity, Verdict, diagnose};
use plegtrace_tests::faults::stream::Stream;
use plegtrace_tests::story::S;
use plegtrace_tests::{packed, quiet};

/// So often a report is asked for.
const STEP_NS: u64 = S;

fn streams() -> Vec<(String, Stream)> {
    let open = |(work, file): (String, PathBuf)| (work, packed::stream(&file).unwrap());
    quiet::all().unwrap().into_iter().map(open).collect()
}

/// Whom a report accuses, and of what.
fn accused(correlator: &Correlator, ns: u64) -> Vec<String> {
    let snapshot = correlator.snapshot(MonoNs(ns));
    let diagnosis = diagnose(&snapshot);
    let findings = diagnosis.findings.iter().filter(|finding| finding.severity != Severity::Notice);
    let mut wrong: Vec<String> =
        findings.map(|finding| format!("at {ns}: {} {}", finding.rule.id, finding.headline)).collect();
    if matches!(diagnosis.verdict, Verdict::Stall | Verdict::Slow | Verdict::Failing) {
        wrong.push(format!("at {ns}: {:?}", diagnosis.verdict));
    }
    wrong
}

/// Every kind of work has its recording, and nothing else lies there.
#[test]
fn each_work_is_recorded() {
    let mut wanted: Vec<String> = quiet::WORKS.map(str::to_owned).to_vec();
    wanted.sort_by_key(|work| format!("{work}."));
    let kept: Vec<String> = quiet::all().unwrap().into_iter().map(|(work, _)| work).collect();
    assert_eq!(kept, wanted, "make them with cargo xtask bless --record --quiet");
}

/// Once a second, and at the end, at which each is healthy.
#[test]
fn nobody_is_accused_at_any_moment() {
    for (work, stream) in streams() {
        let mut correlator = Correlator::new(Limits::default());
        let (mut wrong, mut now, mut due) = (Vec::new(), 0, None);
        for frame in stream.frames() {
            now = now.max(frame.header.ts_ns);
            let due_ns = *due.get_or_insert(now + STEP_NS);
            if now >= due_ns {
                wrong.extend(accused(&correlator, due_ns));
                due = Some(now + STEP_NS);
            }
            correlator.push(decode(frame).unwrap());
        }
        let end = stream.end();
        assert!(wrong.is_empty(), "{work}:\n{}", wrong.join("\n"));
        assert_eq!(diagnose(&end).verdict, Verdict::Healthy, "{work}");
    }
}
