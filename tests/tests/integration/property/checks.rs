//! What holds of every snapshot.

use std::collections::HashSet;

use plegtrace::{
    correlate::{Correlator, RequestTree, Snapshot, TimeTable},
    decode::MonoNs,
    diagnose::{Verdict, diagnose},
    render::{
        json,
        text::{self, TextOptions},
    },
    span::{Span, account, leaves, self_time_ns, violation},
};
use plegtrace_tests::story::{S, at};

pub(super) fn json_of(snapshot: &Snapshot) -> String {
    let mut out = Vec::new();
    json::report(snapshot, &diagnose(snapshot), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Every call is in exactly one place.
pub(super) fn sums_add_up(snapshot: &Snapshot) {
    let rows: u64 = snapshot.rows.iter().map(|row| row.latency.count() + row.unwound).sum();
    let elsewhere = |reason: &str| {
        let loss = snapshot.losses.iter().find(|loss| loss.stage == "correlate" && loss.reason == reason);
        loss.map_or(0, |loss| loss.count)
    };
    let tally = snapshot.tally;
    let placed = rows
        + tally.covered
        + tally.marks
        + tally.forgotten
        + elsewhere("unknown_hook")
        + elsewhere("rows_full");
    assert_eq!(placed, tally.calls);
}

pub(super) fn sound(snapshot: &Snapshot) {
    time_adds_up(snapshot);
    snapshot.relists.iter().for_each(|relist| sound_tree(relist.root(), snapshot));
    snapshot.requests.iter().for_each(|request| sound_tree(request.root(), snapshot));
    assert!(snapshot.open.is_sorted_by_key(|call| call.span.start()));
    assert!(snapshot.relists.is_sorted_by_key(|relist| relist.root().start()));
    let (open, finished): (Vec<_>, Vec<_>) =
        snapshot.requests.iter().map(RequestTree::root).partition(|root| root.is_open());
    assert!(open.is_sorted_by_key(|root| root.start()));
    assert!(finished.is_sorted_by_key(|root| std::cmp::Reverse(root.duration_ns(snapshot.now))));
    assert!(snapshot.requests.iter().map(|request| request.root().is_open()).is_sorted_by_key(|open| !open));
    let roots: HashSet<_> = snapshot.requests.iter().map(|request| request.root().id).collect();
    assert_eq!(roots.len(), snapshot.requests.len(), "each has one tree");
    let inside = snapshot.relists.iter().flat_map(|relist| relist.root().walk());
    assert!(inside.into_iter().all(|span| !roots.contains(&span.id)), "what is in a relist is no request");
}

/// The parts of a table are the whole.
pub(super) fn table_adds_up(table: &TimeTable) {
    assert_eq!(table.rows.iter().map(|row| row.sum_ns).sum::<u64>(), table.wall_ns, "{table:#?}");
    for row in &table.rows {
        let quantiles = [0.5, 0.99, 1.0].map(|q| table.quantile_ns(row, q));
        assert!(quantiles.is_sorted() && quantiles[2] <= row.sum_ns, "{row:#?}");
    }
}

/// Every nanosecond of every relist is in one row.
pub(super) fn time_adds_up(snapshot: &Snapshot) {
    table_adds_up(&snapshot.relist_time);
    snapshot.request_time.iter().for_each(|time| table_adds_up(&time.table));
    let kept = snapshot.relists.iter().map(|relist| relist.root().duration_ns(snapshot.now));
    let (count, wall) = (kept.len() as u64, kept.sum::<u64>());
    let table = &snapshot.relist_time;
    assert!(table.count >= count && table.wall_ns >= wall, "{table:#?}");
    if !snapshot.losses.iter().any(|loss| loss.reason == "relists_evicted") {
        assert_eq!((table.count, table.wall_ns), (count, wall));
    }
}

pub(super) fn sound_tree(root: &Span, snapshot: &Snapshot) {
    assert_eq!(violation(root), None);
    let selves: u64 = root.walk().map(|span| self_time_ns(span, snapshot.now)).sum();
    assert_eq!(selves, root.duration_ns(snapshot.now), "self times add up to the whole");
    assert_eq!(account(root, snapshot.now).total_ns(), selves, "and so do their leaves");
    let leaves = root.walk().flat_map(|span| leaves(span, snapshot.now));
    let mut intervals: Vec<_> = leaves.filter_map(|leaf| leaf.interval).collect();
    intervals.sort();
    assert!(intervals.windows(2).all(|pair| pair[0].1 <= pair[1].0), "none of which overlap");
}

/// A calm pulse hides no stall, and its figures are those of the whole picture.
pub(super) fn pulse_agrees(correlator: &Correlator) {
    [4, 5, 7, 12, 40, 200].into_iter().for_each(|seconds| pulse_agrees_at(correlator, at(seconds * S)));
}

pub(super) fn pulse_agrees_at(correlator: &Correlator, now: MonoNs) {
    let (pulse, snapshot) = (correlator.pulse(now), correlator.snapshot(now));
    let diagnosis = diagnose(&snapshot);
    assert!(!pulse.calm || diagnosis.verdict != Verdict::Stall, "{pulse:?}: {diagnosis:#?}");
    assert_eq!(pulse.open, snapshot.open.len() as u64);
    assert_eq!(pulse.relists, snapshot.relists.len() as u64);
}

/// There is one verdict, and all that is said beside it agrees.
pub(super) fn one_verdict(snapshot: &Snapshot) {
    let diagnosis = diagnose(snapshot);
    let said = (diagnosis.reasons.is_empty() && diagnosis.accused().is_empty(), diagnosis.doubts.is_empty());
    let expected = match diagnosis.verdict {
        Verdict::Stall => (false, true),
        Verdict::Slow | Verdict::Failing => (diagnosis.accused().is_empty(), true),
        Verdict::Healthy => (true, true),
        Verdict::CannotTell => (true, false),
    };
    assert_eq!(said, expected, "{:?}", diagnosis.verdict);
    assert_eq!(diagnosis.verdict == Verdict::Slow, !diagnosis.slow.is_empty());
    assert_eq!(diagnosis.verdict == Verdict::Failing, !diagnosis.failing.is_empty());
    let stall = diagnosis.verdict == Verdict::Stall;
    assert!(stall || diagnosis.since.is_none() && diagnosis.unknown_cause.is_none());
    assert!(stall || diagnosis.reasons.is_empty());
    assert_eq!(stall && diagnosis.accused().is_empty(), diagnosis.unknown_cause.is_some());
}

pub(super) fn lines_fit(snapshot: &Snapshot) {
    for (verbose, width) in [(false, 80), (true, 80), (true, 120)] {
        let mut out = Vec::new();
        text::report(
            snapshot,
            &diagnose(snapshot),
            &TextOptions { verbose, width, ..TextOptions::default() },
            &mut out,
        )
        .unwrap();
        for line in String::from_utf8(out).unwrap().lines() {
            assert!(line.chars().count() <= width, "{width}: {line}");
        }
    }
}
