//! Every fault of the matrix, replayed: what was lived through once, by one that was there before and by one that came later, is judged
//! anew by the code as it is. Verdict, cause, culprit, nobody else, and when: all of it is a function of the recording.

use std::fmt::Write as _;

use plegtrace::{
    commands,
    correlate::Snapshot,
    diagnose::{Confidence, Verdict, diagnose},
};
use plegtrace_lab::fault::Kind;
use plegtrace_tests::faults::check::{Report, check};
use plegtrace_tests::faults::stream::Stream;
use plegtrace_tests::faults::{
    Case, Observer, kept, named_within, needed_late_s, needed_s, only_early, said,
};
use plegtrace_tests::golden;
use plegtrace_tests::recordings::{json_of, text_of};

/// Faults of which there is no recording, with the reason.
const NOT_KEPT: [Kind; 1] = [
    // No fault, a decoy.
    Kind::CniSlow,
];

fn cases() -> Vec<(Case, Stream)> {
    let open = |(case, file): (Case, std::path::PathBuf)| {
        let stream = kept::recording(&file).and_then(|bytes| Stream::read(bytes.as_slice()));
        (case, stream.unwrap_or_else(|error| panic!("{}: {error:#}", file.display())))
    };
    kept::all().unwrap().into_iter().map(open).collect()
}

/// What a program that asked for JSON would have got.
fn report(snapshot: &Snapshot) -> Report {
    let code = match diagnose(snapshot).verdict {
        Verdict::Healthy => 0,
        Verdict::Stall | Verdict::Slow => 1,
        Verdict::CannotTell => 5,
    };
    Report { document: serde_json::from_str(&json_of(snapshot).unwrap()).unwrap(), code: Some(code) }
}

/// Nothing of the matrix is missing.
#[test]
fn each_fault_has_its_recordings() {
    let wanted = Kind::all().iter().filter(|kind| !NOT_KEPT.contains(kind)).flat_map(|kind| {
        let late = (!only_early(*kind)).then_some(Observer::Late);
        [Some(Observer::Early), late].into_iter().flatten().map(|observer| kept::file(*kind, observer))
    });
    let missing: Vec<_> = wanted.filter(|file| !file.exists()).collect();
    assert!(missing.is_empty(), "make them with cargo xtask bless --record --matrix: {missing:#?}");
}

/// The cause first, with its culprit, severity and exit code, and nobody else, in text as well; and what the command reads of the file is
/// what the pipeline makes of its records.
#[test]
fn each_is_named() {
    for (case, stream) in cases() {
        let snapshot = stream.end();
        let named = check(&case, &report(&snapshot));
        assert!(named.after <= named_within(case.kind), "{case:?}: {named:?}");
        let text = text_of(&snapshot, false).unwrap();
        said::check_text(&case, &text);
        let file = kept::recording(&kept::file(case.kind, case.observer)).unwrap();
        let replayed = commands::replay(file.as_slice()).unwrap();
        assert_eq!(text_of(&replayed.snapshot, false).unwrap(), text, "{case:?}");
    }
}

/// When each is named first, with certainty, after it could be: half a second more or less is a change that somebody has to accept.
#[test]
fn each_is_named_in_time() {
    let mut table = String::from(
        "fault, observer: seconds from the moment at which it could be named to the report that does\n",
    );
    for (case, stream) in cases() {
        let id = case.kind.root_cause().unwrap();
        let is_it = |_: &Snapshot, diagnosis: &plegtrace::diagnose::Diagnosis| {
            diagnosis.first().is_some_and(|finding| finding.rule.id == id)
        };
        let named = stream.first(is_it).unwrap_or_else(|| panic!("{case:?} is never named"));
        let possible =
            plegtrace_tests::faults::check::possible_ns(case.kind, &report(&stream.end()), &case.injected);
        let after = named.0.saturating_sub(possible) as f64 / 1e9;
        let Case { kind, observer, .. } = &case;
        let _ = writeln!(table, "{} {observer:?}: {after:.1}", kind.name());
        let needed = if *observer == Observer::Early { needed_s(*kind) } else { needed_late_s(*kind) };
        assert!(needed.is_some() || after <= 10.0, "{kind:?} {observer:?}: {after:.1} s");
    }
    golden::check("faults/named.txt", &table);
}

/// Without one sort of record, whichever: no panic, every report can be written, and nobody else is accused with certainty.
#[test]
fn less_evidence_accuses_nobody_else() {
    for (case, stream) in cases() {
        for sort in stream.sorts().into_keys() {
            let about = format!("{:?} {:?} without {sort}", case.kind, case.observer);
            is_nobody_else(&case, &stream.without(&sort).end(), &about);
        }
    }
}

/// With each record of a sort twice, or after its successor: the same.
#[test]
fn repeated_and_late_records_accuse_nobody_else() {
    for (case, stream) in cases() {
        for sort in stream.sorts().into_keys() {
            let about = format!("{:?} {:?} with {sort}", case.kind, case.observer);
            is_nobody_else(&case, &stream.twice(&sort).end(), &format!("{about} twice"));
            is_nobody_else(&case, &stream.late(&sort).end(), &format!("{about} late"));
        }
    }
}

fn is_nobody_else(case: &Case, snapshot: &Snapshot, about: &str) {
    text_of(snapshot, true).unwrap();
    json_of(snapshot).unwrap();
    let known = [&case.facts.victims[..], &case.facts.culprits, &[case.tester]].concat();
    for finding in diagnose(snapshot).accused() {
        let pid = finding.culprit.as_ref().and_then(|culprit| culprit.pid);
        let is_other = pid.is_some_and(|pid| !known.contains(&pid));
        assert!(
            !is_other || finding.confidence != Confidence::High,
            "{about}: {} {}",
            finding.rule.id,
            finding.headline
        );
    }
}
