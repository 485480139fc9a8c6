//! Every fault of the matrix, replayed: what was lived through once, by one that was there before and by one that came later, is judged
//! anew by the code as it is. Verdict, cause, culprit, nobody else, and when: all of it is a function of the recording.

use std::fmt::Write as _;

use plegtrace::{
    commands,
    correlate::{LoopKind, Snapshot},
    diagnose::{Confidence, Finding, Verdict, diagnose},
    input::{Component, GoroutineGroup},
};
use plegtrace_lab::fault::Kind;
use plegtrace_tests::faults::check::{Report, check};
use plegtrace_tests::faults::stream::Stream;
use plegtrace_tests::faults::{Case, Observer, kept, named_within, needed_s, only_early, said};
use plegtrace_tests::found::still;
use plegtrace_tests::golden;
use plegtrace_tests::packed;
use plegtrace_tests::recordings::{json_of, text_of};
use plegtrace_tests::story::{S, Story};

/// Faults of which there is no recording, with the reason.
const NOT_KEPT: [Kind; 2] = [
    // No fault, a decoy.
    Kind::CniSlow,
    // Hundreds of containers make half a megabyte: it is lived through by `cargo xtask test --all`.
    Kind::ManyChangedPods,
];

fn cases() -> Vec<(Case, Stream)> {
    let open = |(case, file): (Case, std::path::PathBuf)| {
        let stream = packed::stream(&file);
        (case, stream.unwrap_or_else(|error| panic!("{}: {error:#}", file.display())))
    };
    kept::all().unwrap().into_iter().map(open).collect()
}

/// What a program that asked for JSON would have got.
fn report(snapshot: &Snapshot) -> Report {
    let code = match diagnose(snapshot).verdict {
        Verdict::Healthy => 0,
        Verdict::Stall | Verdict::Failing | Verdict::Slow => 1,
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
        assert!(named.after <= named_within(case.kind, case.observer), "{case:?}: {named:?}");
        let text = text_of(&snapshot, false).unwrap();
        said::check_text(&case, &text);
        let file = packed::recording(&kept::file(case.kind, case.observer)).unwrap();
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
        assert!(needed_s(*kind, *observer).is_some() || after <= 10.0, "{kind:?} {observer:?}: {after:.1} s");
    }
    golden::check("faults/named.txt", &table);
}

/// Of each recording every so-manieth sort is tampered with, another one of the next: so each sort is in six faults and more, and the whole
/// takes seconds.
const ONE_IN: usize = 6;
/// Storms have many times the records of other faults, and nothing else in them.
const FEW: usize = 5_000;

/// Records of calls that have ended.
const CALLS: &str = "record 256";

/// The sorts of each recording of this observer that are tampered with.
fn sorts(observer: Observer) -> Vec<(Case, Stream, Vec<String>)> {
    let mine =
        cases().into_iter().filter(|(case, stream)| case.observer == observer && stream.frames().len() < FEW);
    let chosen = |(place, (case, stream)): (usize, (Case, Stream))| {
        let all = stream.sorts().into_keys().enumerate();
        let sorts = all.filter(|(sort, _)| (sort + place) % ONE_IN == 0).map(|(_, sort)| sort).collect();
        (case, stream, sorts)
    };
    mine.enumerate().map(chosen).collect()
}

/// Without one sort of record, whichever: no panic, every report can be written, and nobody else is accused with certainty.
#[test]
fn less_evidence_accuses_nobody_else() {
    let mut wrong = Vec::new();
    for (case, stream, sorts) in sorts(Observer::Early) {
        for sort in sorts {
            wrong.extend(others(&case, &stream.without(&sort).end(), &format!("without {sort}")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// With each record of a sort twice: the same. The cause is still the first, or none is named; and the node is not healthy.
#[test]
fn repeated_records_accuse_nobody_else() {
    let mut wrong = Vec::new();
    for (case, stream, sorts) in sorts(Observer::Late) {
        for sort in sorts {
            let (snapshot, how) = (stream.twice(&sort).end(), format!("with {sort} twice"));
            // No buffer tells of one call twice. Where it does, a relist has a twin without a list.
            wrong.extend(if sort == CALLS {
                others(&case, &snapshot, &how)
            } else {
                tampered(&case, &snapshot, &how)
            });
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// With all records of a sort one place too late: the same.
#[test]
fn late_records_accuse_nobody_else() {
    let mut wrong = Vec::new();
    for (case, stream, sorts) in sorts(Observer::Early) {
        for sort in sorts {
            wrong.extend(tampered(&case, &stream.late(&sort).end(), &format!("with {sort} late")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What is wrong with a report although nothing was left out.
fn tampered(case: &Case, snapshot: &Snapshot, how: &str) -> Vec<String> {
    let diagnosis = diagnose(snapshot);
    let first = diagnosis.first().map(|finding| finding.rule.id);
    let is_healthy = diagnosis.verdict == Verdict::Healthy && said::severity(case.kind) != "notice";
    let mut wrong = others(case, snapshot, how);
    if is_healthy || first.is_some() && first != case.kind.root_cause() {
        wrong.push(format!("{:?} {how}: {:?}, {first:?} first", case.kind, diagnosis.verdict));
    }
    wrong
}

/// What is true as well, where what it is a part of is not seen: the cause, and the fault.
const ALSO_TRUE: [(&str, Kind); 1] = [
    // Status hangs indeed.
    ("L2", Kind::CniReload),
];

/// Who is accused with certainty, and has nothing to do with the fault.
fn others(case: &Case, snapshot: &Snapshot, how: &str) -> Vec<String> {
    text_of(snapshot, true).unwrap();
    json_of(snapshot).unwrap();
    let known = [&case.facts.victims[..], &case.facts.culprits, &[case.tester]].concat();
    let is_other = |finding: &&Finding| {
        let pid = finding.culprit.as_ref().and_then(|culprit| culprit.pid);
        let is_true = ALSO_TRUE.contains(&(finding.rule.id, case.kind));
        finding.confidence == Confidence::High && !is_true && pid.is_some_and(|pid| !known.contains(&pid))
    };
    let diagnosis = diagnose(snapshot);
    let wrong = diagnosis.accused().iter().filter(is_other);
    wrong.map(|finding| format!("{:?} {how}: {} {}", case.kind, finding.rule.id, finding.headline)).collect()
}

/// The loops of the lab's kubelet, 1.20.2, are known by the functions that they really have.
#[test]
fn loops_of_a_kubelet_of_2021() {
    use LoopKind::{Eviction, PluginRegistration, PodWorker, SyncLoop};
    let stream = packed::stream(&kept::file(Kind::Hook, Observer::Late)).unwrap();
    let groups = stream.first_goroutines(Component::Kubelet).unwrap();
    let groups: Vec<GoroutineGroup> = groups.into_iter().map(|group| still(group, 7)).collect();
    let mut story = Story::node();
    story.census(2 * S, &[], &[], &groups).census(13 * S, &[], &[], &groups);
    let snapshot = story.snapshot(13 * S);
    let [loops] = &snapshot.census.loops[..] else { panic!("{:?}", snapshot.census.loops) };
    assert!(snapshot.watches_loops(), "{loops:#?}");
    let volumes = [LoopKind::VolumePopulator, LoopKind::VolumeReconciler];
    let others = [SyncLoop, PodWorker, Eviction, PluginRegistration];
    for kind in others.into_iter().chain(volumes) {
        assert!(loops.found.contains(&kind), "no {kind:?} in {:?}", loops.found);
    }
    // Two are at something, and ask the runtime: that is no hang of theirs.
    let busy: Vec<_> = loops.busy.iter().map(|one| (one.kind, one.wait.name(), one.late_ns())).collect();
    assert_eq!(busy, [(Eviction, "runtime", None), (LoopKind::Probe, "runtime", None)]);
}
