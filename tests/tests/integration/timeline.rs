//! The trace for the Perfetto UI: whatever the stream, slices nest on their lanes and flows have both ends; it tells the same
//! slowest path as the report.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::Command,
};

use plegtrace::{
    commands,
    correlate::{Limits, Snapshot},
    render::perfetto,
    timeline::Timeline,
};
use plegtrace_lab::fault::Kind;
use plegtrace_tests::{
    golden, program,
    recordings::{self, FAULTS},
    slowest,
    story::{S, at},
};
use proptest::prelude::*;
use serde_json::Value;

use super::property::{event, process_event, pushed};

fn trace(snapshot: &Snapshot) -> String {
    let mut out = Vec::new();
    perfetto::trace(snapshot, &Timeline::of(snapshot), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn snapshot(kind: Kind) -> Snapshot {
    let bytes = fs::read(recordings::folder().join(recordings::file(kind))).unwrap();
    commands::replay(bytes.as_slice()).unwrap().snapshot
}

/// Process and lane.
type Lane = (u64, u64);

/// A slice as a reader of the trace sees it.
#[derive(Clone, Debug)]
struct Seen {
    lane: Lane,
    from: u64,
    to: u64,
    name: String,
    args: Value,
    /// The slice of the same lane that it lies in.
    inside: Option<usize>,
    /// The slice that it happened for, on another lane.
    because_of: Option<usize>,
}

fn ns(micros: &Value) -> u64 {
    (micros.as_f64().unwrap() * 1000.0).round() as u64
}

/// Reads a trace as Perfetto does: events by time, those of one moment as they stand; a flow belongs to the slice that began
/// last on its lane. Complains of whatever such a reader would.
fn read(text: &str) -> Result<Vec<Seen>, TestCaseError> {
    let document: Value = serde_json::from_str(text).unwrap();
    let mut events: Vec<&Value> = document["traceEvents"].as_array().unwrap().iter().collect();
    events.sort_by_key(|event| event["ts"].as_f64().map_or(0, |_| ns(&event["ts"])));
    let mut named: BTreeSet<Lane> = BTreeSet::new();
    let mut stacks: BTreeMap<Lane, Vec<usize>> = BTreeMap::new();
    let (mut slices, mut flows): (Vec<Seen>, BTreeMap<u64, usize>) = <_>::default();
    let mut processes = BTreeSet::new();
    for event in events {
        let lane = (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap());
        match event["ph"].as_str().unwrap() {
            "M" if event["name"] == "thread_name" => prop_assert!(named.insert(lane), "{}", event),
            "M" if event["name"] == "process_name" => prop_assert!(processes.insert(lane.0), "{}", event),
            "M" => {}
            "X" => {
                prop_assert!(named.contains(&lane) && processes.contains(&lane.0), "{}", event);
                let (from, length) = (ns(&event["ts"]), ns(&event["dur"]));
                let stack = stacks.entry(lane).or_default();
                while stack.last().is_some_and(|top| slices[*top].to <= from && slices[*top].from < from) {
                    stack.pop();
                }
                let inside = stack.last().copied();
                let fits = inside.is_none_or(|top| from + length <= slices[top].to);
                prop_assert!(fits, "{} in {:?}", event, inside.map(|top| &slices[top]));
                stack.push(slices.len());
                let name = event["name"].as_str().unwrap().to_owned();
                let args = event["args"].clone();
                slices.push(Seen { lane, from, to: from + length, name, args, inside, because_of: None });
            }
            "s" => {
                let top = *stacks[&lane].last().unwrap();
                prop_assert!(flows.insert(event["id"].as_u64().unwrap(), top).is_none(), "{}", event);
            }
            "f" => {
                let top = *stacks[&lane].last().unwrap();
                let source = flows.remove(&event["id"].as_u64().unwrap());
                prop_assert!(source.is_some() && slices[top].because_of.is_none(), "{}", event);
                slices[top].because_of = source;
            }
            other => prop_assert!(false, "{}", other),
        }
    }
    prop_assert!(flows.is_empty(), "flows without an end: {:?}", flows);
    Ok(slices)
}

/// The slices directly below one: calls and programs, on its lane or another.
fn below(slices: &[Seen], at: usize) -> Vec<usize> {
    let is_child =
        |it: &Seen| it.inside == Some(at) && !it.args["layer"].is_null() || it.because_of == Some(at);
    (0..slices.len()).filter(|place| is_child(&slices[*place])).collect()
}

/// What decided how long a slice took, by the rule of the report.
fn slowest_path(slices: &[Seen], root: usize) -> Vec<(String, u64)> {
    let length = |at: usize| slices[at].to - slices[at].from;
    let is_open = |at: usize| slices[at].args["open"] == true;
    let (mut path, mut at) = (vec![root], root);
    while let Some(next) = below(slices, at).into_iter().max_by_key(|it| (is_open(*it), length(*it))) {
        if !is_open(next) && length(next) < length(at) / 2 {
            break;
        }
        path.push(next);
        at = next;
    }
    path.into_iter().map(|at| (slices[at].name.replace(", open", ""), length(at))).collect()
}

fn is_root(seen: &Seen) -> bool {
    seen.args["root"] == true && seen.args["at_least"] != true
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Any stream gives a trace that can be read.
    #[test]
    fn any_stream_can_be_read(
        events in proptest::collection::vec(prop_oneof![3 => event(), 1 => process_event()], 0..150),
    ) {
        let snapshot = pushed(Limits::default(), events).snapshot(at(7 * S));
        let text = trace(&snapshot);
        prop_assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'), "{}", text);
        let slices = read(&text)?;
        let shown = slices.iter().filter(|it| is_root(it)).count();
        let left_out = Timeline::of(&snapshot).left_out as usize;
        prop_assert_eq!(shown + left_out, slowest::roots(&snapshot).len());
    }
}

/// Real stalls: each relist and request is there with its length, and the slowest path of each is that of the report.
#[test]
fn recordings_tell_the_same_slowest_path() {
    let mut across = 0;
    for kind in FAULTS {
        let snapshot = snapshot(kind);
        let slices = read(&trace(&snapshot)).unwrap();
        let told = slowest::paths(&snapshot);
        let mut shown: Vec<_> = (0..slices.len())
            .filter(|at| is_root(&slices[*at]))
            .map(|at| slowest_path(&slices, at))
            .collect();
        shown.sort();
        assert_eq!(shown, told, "{}", recordings::name(kind));
        across += slices.iter().filter(|slice| slice.because_of.is_some()).count();
        let flows = slices.iter().filter_map(|slice| Some((slice, &slices[slice.because_of?])));
        for (slice, cause) in flows {
            assert!(slice.lane != cause.lane && cause.from <= slice.from, "{slice:?} for {cause:?}");
        }
    }
    assert!(across > 10, "{across} flows");
}

/// What has not ended says so, up to the lock that it waits for; what is older than the probes, too.
#[test]
fn open_slices_are_marked() {
    let slices = read(&trace(&snapshot(Kind::ContainerdStopped))).unwrap();
    let end = slices.iter().map(|slice| slice.to).max().unwrap();
    let open: Vec<&Seen> = slices.iter().filter(|slice| slice.args["open"] == true).collect();
    let lasts = |slice: &Seen| slice.to == end || slice.args["layer"].is_null();
    assert!(open.iter().all(|slice| lasts(slice) && slice.name.contains(", open")), "{open:#?}");
    assert!(open.iter().any(|slice| slice.name == "ListContainers, open"), "{slices:#?}");
    let waits =
        open.iter().find(|slice| slice.name == "waits in transport.(*Stream).waitOnHeader, open").unwrap();
    assert!(waits.args["stack"].as_array().unwrap().len() > 1, "{waits:?}");
    let slices = read(&trace(&snapshot(Kind::LockHostage))).unwrap();
    let early =
        slices.iter().find(|slice| slice.name == "ListContainers, open since before the probes").unwrap();
    assert!(early.args["at_least"] == true && early.to - early.from >= 3_000_000_000, "{early:?}");
    assert!(early.args["stack"].to_string().contains("statusStorage).Get"), "{early:?}");
}

/// The whole text, of a recording in which a runtime stopped; and the command prints the same.
#[test]
fn the_trace_of_a_recording() {
    let text = trace(&snapshot(Kind::ContainerdStopped));
    golden::check("perfetto/containerd-stopped.json", &text);
    let file = recordings::folder().join(recordings::file(Kind::ContainerdStopped));
    let out =
        Command::new(program::path().unwrap()).args(["report", "-o", "perfetto"]).arg(file).output().unwrap();
    assert_eq!((out.status.code(), String::from_utf8(out.stdout).unwrap() == text), (Some(1), true));
}
