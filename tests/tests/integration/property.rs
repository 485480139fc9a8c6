//! What holds for every input stream: no panic, sound trees, sums that add up, lines that fit, bounded state.

use std::collections::HashSet;

use plegtrace::{
    correlate::{Caller, Correlator, LastList, Limits, RequestTree, Side, Snapshot, TimeTable},
    decode::{Call, Event, Meta, MonoNs, ParkEvent, Parked, Process, Step, decode},
    diagnose::{Verdict, diagnose},
    input::{
        Command, CommandFact, Component, Fact, Frame, HookFact, InFlight, Layer, Liveness, LossCount,
        OpenCallFact, ParkerFact, ProcessesFact, TargetGone, WatchedFact, next_frame,
    },
    render::{
        json,
        text::{self, TextOptions},
    },
    span::{Span, account, leaves, self_time_ns, violation},
};
use plegtrace_common::{
    ABI_VERSION,
    kind::RecKind,
    rec::{CALL_OK, PROCESS_EXECED},
    role::Role,
};
use plegtrace_tests::life::Life as _;
use plegtrace_tests::story::{CONTAINERD, KUBELET, MS, PLEG, S, Story, at};
use proptest::prelude::*;

/// Events from nowhere: any hook, any nesting, any flags, on few goroutines so that they meet.
fn call() -> impl Strategy<Value = Call> {
    let depth = prop_oneof![Just(0u32), Just(100), Just(300), Just(900), Just(1000)];
    let tgid = prop_oneof![4 => Just(KUBELET), 2 => Just(CONTAINERD), 1 => Just(3u32)];
    let stream = proptest::option::of(prop_oneof![Just(1u32), Just(3), Just(5)]);
    let times = (0u64..4000, 0u64..2000, any::<bool>());
    (tgid, 1u64..4, 0u32..30, depth, 0u32..32, times, parked(), stream).prop_map(
        |(tgid, goid, hook, depth, flags, (start, len, marked), parked, stream)| {
            let (start, end) = (at(start * MS), at((start + len) * MS));
            let mark = marked.then_some(MonoNs((start.0 + end.0) / 2));
            Call { tgid, goid, hook, depth, flags, start, end, mark, parked, stream }
        },
    )
}

fn parked() -> impl Strategy<Value = Option<Parked>> {
    let sums = (0u64..2000, 0u64..500).prop_map(|(ns, short)| (ns * MS, short * MS));
    proptest::option::of(sums.prop_map(|(ns, short_ns)| Parked { ns, short_ns, count: 1 }))
}

/// Parks of the same goroutines, wherever and however long.
fn park() -> impl Strategy<Value = Event> {
    let tgid = prop_oneof![4 => Just(KUBELET), 2 => Just(CONTAINERD)];
    let stack = proptest::collection::vec(0u64..9, 0..30);
    (tgid, 1u64..4, 0u64..4000, 0u64..2000, stack).prop_map(|(tgid, goid, start, len, stack)| {
        let (start, end) = (at(start * MS), at((start + len) * MS));
        Event::Park(ParkEvent { tgid, goid, hook: 0, reason: 0, start, end, stack })
    })
}

fn parker() -> impl Strategy<Value = ParkerFact> {
    let sums = (0u64..2000, 0u64..500, 0u64..6000);
    (1u64..4, sums, proptest::collection::vec(0u64..9, 0..30)).prop_map(
        |(goid, (ns, short, since), stack)| {
            let (parked_ns, short_ns) = (ns * MS, short * MS);
            let since_ns = if since < 1000 { 0 } else { at(since * MS).0 };
            ParkerFact { tgid: KUBELET, goid, parked_ns, short_ns, since_ns, stack, ..ParkerFact::default() }
        },
    )
}

fn open_call() -> impl Strategy<Value = OpenCallFact> {
    let liveness = prop_oneof![Just(Liveness::Alive), Just(Liveness::Over), Just(Liveness::Unknown)];
    (call(), liveness).prop_map(|(call, liveness)| OpenCallFact {
        tgid: call.tgid,
        goid: call.goid,
        hook: call.hook,
        start_ns: call.start.0,
        mark_ns: call.mark.map_or(0, |mark| mark.0),
        depth: call.depth,
        flags: call.flags,
        liveness,
        parked_ns: 0,
        short_ns: 0,
        parks: 0,
        stream: call.stream.unwrap_or(0),
    })
}

pub(crate) fn event() -> impl Strategy<Value = Event> {
    let parkers = proptest::collection::vec(parker(), 0..5);
    let reading = (proptest::collection::vec(open_call(), 0..12), 0u64..6000, any::<bool>(), parkers)
        .prop_map(|(calls, ms, complete, parkers)| {
            let fact = Fact::InFlight(InFlight { at_ns: at(ms * MS).0, calls, complete, parkers });
            Event::Fact { at: at(ms * MS), fact: Box::new(fact) }
        });
    prop_oneof![20 => call().prop_map(Event::Call), 5 => park(), 1 => reading]
}

/// Steps of few processes, what they were told, and readings of the map, all without rhyme or reason.
pub(crate) fn process_event() -> impl Strategy<Value = Event> {
    let moment = || (0u64..6000).prop_map(|ms| at(ms * MS));
    let role = || (0u32..12).prop_map(Role::from_u32);
    let step = prop_oneof![Just(Step::Fork), Just(Step::Exec), (0u32..600).prop_map(Step::Exit)];
    let pids = (900u32..912, proptest::option::of(900u32..912), proptest::option::of(900u32..912));
    let process = (moment(), proptest::option::of(moment()), step, pids, role(), role(), 0u32..16).prop_map(
        |(at, since, step, (pid, parent, creator), role, parent_role, flags)| {
            let (meta, comm) = (Meta { at, tgid: pid, tid: pid }, "a\u{202e}b".to_owned());
            let old_role = Role::None;
            Event::Process(Process {
                meta,
                step,
                parent,
                creator,
                role,
                old_role,
                parent_role,
                since,
                flags,
                comm,
            })
        },
    );
    let text = || proptest::option::of("[a-z\u{0}-\u{ff}]{0,40}");
    let told = prop_oneof![
        ("[a-z]{0,3}", text(), text()).prop_map(|(sub, container, bundle)| Command::Runc {
            sub,
            container,
            bundle
        }),
        (text(), text()).prop_map(|(action, id)| Command::Shim { action, namespace: None, id }),
        ("[a-z]{1,2}", text(), text()).prop_map(|(plugin, action, container)| Command::Cni {
            plugin,
            action,
            container
        }),
        "[a-z]{1,2}".prop_map(|program| Command::Other { program }),
    ];
    let command = (900u32..912, moment(), told).prop_map(|(pid, since, command)| {
        let fact = CommandFact { pid, since_ns: since.0, unread: false, command };
        Event::Fact { at: since, fact: Box::new(Fact::Command(fact)) }
    });
    let entry = (900u32..916, 0u32..12, 0u32..12, moment(), 895u32..912, 0u32..16).prop_map(
        |(pid, role, parent_role, since, parent, flags)| WatchedFact {
            pid,
            role,
            parent_role,
            since_ns: since.0,
            parent,
            flags,
            known: None,
        },
    );
    let reading = (proptest::collection::vec(entry, 0..12), moment(), any::<bool>()).prop_map(
        |(processes, moment, complete)| {
            let fact = Fact::Processes(ProcessesFact { at_ns: moment.0, processes, complete });
            Event::Fact { at: moment, fact: Box::new(fact) }
        },
    );
    prop_oneof![10 => process, 4 => command, 1 => reading]
}

/// A node as it is told, then events from nowhere.
pub(crate) fn pushed(limits: Limits, events: Vec<Event>) -> Correlator {
    let mut correlator = Correlator::new(limits);
    let mut story = Story::node();
    story.follows_parks().names(0, &["sync.(*Mutex).Lock", "main.\u{1b}[31m", "runtime.x"]);
    frames(story).iter().for_each(|frame| correlator.push(decode(frame).unwrap()));
    events.into_iter().for_each(|event| correlator.push(event));
    correlator
}

pub(crate) fn frames(mut story: Story) -> Vec<Frame> {
    std::mem::take(story.frames_mut())
}

fn json_of(snapshot: &Snapshot) -> String {
    let mut out = Vec::new();
    json::report(snapshot, &diagnose(snapshot), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Every call is in exactly one place.
fn sums_add_up(snapshot: &Snapshot) {
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

fn sound(snapshot: &Snapshot) {
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
fn table_adds_up(table: &TimeTable) {
    assert_eq!(table.rows.iter().map(|row| row.sum_ns).sum::<u64>(), table.wall_ns, "{table:#?}");
    for row in &table.rows {
        let quantiles = [0.5, 0.99, 1.0].map(|q| table.quantile_ns(row, q));
        assert!(quantiles.is_sorted() && quantiles[2] <= row.sum_ns, "{row:#?}");
    }
}

/// Every nanosecond of every relist is in one row.
fn time_adds_up(snapshot: &Snapshot) {
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

fn sound_tree(root: &Span, snapshot: &Snapshot) {
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
fn pulse_agrees(correlator: &Correlator) {
    [4, 5, 7, 12, 40, 200].into_iter().for_each(|seconds| pulse_agrees_at(correlator, at(seconds * S)));
}

fn pulse_agrees_at(correlator: &Correlator, now: MonoNs) {
    let (pulse, snapshot) = (correlator.pulse(now), correlator.snapshot(now));
    let diagnosis = diagnose(&snapshot);
    assert!(!pulse.calm || diagnosis.verdict != Verdict::Stall, "{pulse:?}: {diagnosis:#?}");
    assert_eq!(pulse.open, snapshot.open.len() as u64);
    assert_eq!(pulse.relists, snapshot.relists.len() as u64);
}

/// Calls that may be open for long, or may not.
const OPEN: [(Layer, &str); 6] = [
    (Layer::Relist, "Relist"),
    (Layer::KubeletCall, "ListContainers"),
    (Layer::KubeletCall, "ExecSync"),
    (Layer::KubeletClient, "ListPodSandbox"),
    (Layer::Handler, "ListContainers"),
    (Layer::Handler, "RunPodSandbox"),
];

/// A pulse is calm while lists come and nothing is old, and only then.
#[test]
fn a_pulse_is_calm_on_a_healthy_node() {
    let mut story = Story::node();
    for n in 0..8 {
        story.relist(n * S, 0);
    }
    let mut correlator = pushed(Limits::default(), Vec::new());
    for frame in frames(story) {
        correlator.push(decode(&frame).unwrap());
    }
    let calm = |seconds| correlator.pulse(at(seconds * S)).calm;
    assert_eq!([8, 16, 18].map(calm), [true, true, false], "the last list is of second 7");
    assert_eq!(correlator.pulse(at(8 * S)).last_list, LastList::At(at(7 * S)), "the start of its relist");
}

/// It tells when something that is open will be late: each operation has a time of its own.
#[test]
fn a_pulse_tells_what_will_be_late() {
    let mut story = Story::node();
    story.begin(Layer::Handler, "RunPodSandbox", 7, 10, S).begin(
        Layer::Handler,
        "ListContainers",
        8,
        10,
        2 * S,
    );
    story.read_open(3 * S);
    let mut correlator = pushed(Limits::default(), Vec::new());
    for frame in frames(story) {
        correlator.push(decode(&frame).unwrap());
    }
    let left = |seconds: u64| correlator.pulse(at(seconds * S)).until_late_ns;
    assert_eq!([3, 11, 13, 40].map(left), [Some(9 * S), Some(S), Some(18 * S), None]);
}

/// There is one verdict, and all that is said beside it agrees.
fn one_verdict(snapshot: &Snapshot) {
    let diagnosis = diagnose(snapshot);
    let said = (diagnosis.reasons.is_empty() && diagnosis.accused().is_empty(), diagnosis.doubts.is_empty());
    let expected = match diagnosis.verdict {
        Verdict::Stall => (false, true),
        Verdict::Slow => (diagnosis.accused().is_empty(), true),
        Verdict::Healthy => (true, true),
        Verdict::CannotTell => (true, false),
    };
    assert_eq!(said, expected, "{:?}", diagnosis.verdict);
    assert_eq!(diagnosis.verdict == Verdict::Slow, !diagnosis.slow.is_empty());
    let stall = diagnosis.verdict == Verdict::Stall;
    assert!(stall || diagnosis.since.is_none() && diagnosis.unknown_cause.is_none());
    assert!(stall || diagnosis.reasons.is_empty());
    assert_eq!(stall && diagnosis.accused().is_empty(), diagnosis.unknown_cause.is_some());
}

fn lines_fit(snapshot: &Snapshot) {
    for (verbose, width) in [(false, 80), (true, 80), (true, 120)] {
        let mut out = Vec::new();
        text::report(snapshot, &diagnose(snapshot), &TextOptions { verbose, colour: false, width }, &mut out)
            .unwrap();
        for line in String::from_utf8(out).unwrap().lines() {
            assert!(line.chars().count() <= width, "{width}: {line}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Any stream gives a sound snapshot whose sums add up and whose reports can be written.
    #[test]
    fn any_stream(events in proptest::collection::vec(event(), 0..150)) {
        let correlator = pushed(Limits::default(), events);
        pulse_agrees(&correlator);
        let snapshot = correlator.snapshot(at(7 * S));
        sound(&snapshot);
        sums_add_up(&snapshot);
        one_verdict(&snapshot);
        lines_fit(&snapshot);
        let document: serde_json::Value = serde_json::from_str(&json_of(&snapshot)).unwrap();
        prop_assert_eq!(&document["schema_version"], 2);
    }

    /// On a node that lists every second, one call that is open for any time: the pulse is calm only where it may be.
    #[test]
    fn calm_hides_nothing(call in 0..OPEN.len(), tenths in 0u64..400) {
        let (layer, operation) = OPEN[call];
        let mut story = Story::node();
        for n in 0..41 {
            story.relist(n * S, 0);
        }
        story.begin(layer, operation, 50, 900, 41 * S - tenths * 100 * MS).read_open(41 * S);
        let mut correlator = pushed(Limits::default(), Vec::new());
        frames(story).iter().for_each(|frame| correlator.push(decode(frame).unwrap()));
        pulse_agrees_at(&correlator, at(41 * S));
    }

    /// A snapshot in between changes nothing.
    #[test]
    fn looking_changes_nothing(events in proptest::collection::vec(event(), 0..60)) {
        let mut looked = pushed(Limits::default(), Vec::new());
        for event in events.clone() {
            looked.push(event);
            let _ = looked.snapshot(at(7 * S));
        }
        let calm = pushed(Limits::default(), events);
        prop_assert_eq!(json_of(&looked.snapshot(at(7 * S))), json_of(&calm.snapshot(at(7 * S))));
    }

    /// However small the limits, they hold, and what does not fit is counted.
    #[test]
    fn limits_hold(events in proptest::collection::vec(event(), 0..300)) {
        let limits = Limits {
            reorder_ns: 100 * MS, relists: 3, relist_calls: 20, loose_calls: 5, recent_calls: 7,
            open_calls: 4, rows: 6, facts: 8,
            processes: 5, process_rows: 4, process_list: 3, census: 4,
            kept_ns: S, gone_ns: S, ended_processes: 4, requests: 3, open_requests: 2,
            parks: 20, stacks: 3, symbols: 5,
        };
        let snapshot = pushed(limits, events).snapshot(at(7 * S));
        sound(&snapshot);
        sums_add_up(&snapshot);
        let finished = snapshot.relists.iter().filter(|relist| !relist.root().is_open());
        prop_assert!(finished.clone().count() <= limits.relists);
        let parts: usize = finished.map(|relist| relist.root().walk().count()).sum();
        prop_assert!(parts <= 2 * limits.relist_calls + limits.relists);
        prop_assert!(snapshot.open.len() <= limits.open_calls);
        let open = snapshot.requests.iter().filter(|request| request.root().is_open()).count();
        prop_assert!(open <= limits.open_requests);
        prop_assert!(snapshot.requests.len() - open <= limits.requests);
        // Bare calls that still wait for their partner may add rows of their own.
        prop_assert!(snapshot.rows.len() <= limits.rows + limits.recent_calls);
    }

    /// Whatever processes do: the reports can be written, looking changes nothing, and limits hold.
    #[test]
    fn any_processes(events in proptest::collection::vec(process_event(), 0..200), small: bool) {
        let few = Limits { processes: 5, process_rows: 4, process_list: 3, ..Limits::default() };
        let limits = if small { few } else { Limits::default() };
        let mut correlator = pushed(limits, Vec::new());
        for event in events.clone() {
            correlator.push(event);
            let _ = correlator.snapshot(at(7 * S));
        }
        pulse_agrees(&correlator);
        let snapshot = correlator.snapshot(at(7 * S));
        lines_fit(&snapshot);
        prop_assert_eq!(json_of(&snapshot), json_of(&pushed(limits, events).snapshot(at(7 * S))));
        let processes = &snapshot.processes;
        prop_assert!(processes.open.len() + processes.workloads.len() <= limits.processes);
        prop_assert!(processes.rows.len() <= limits.process_rows);
        for list in [processes.slowest.len(), processes.failed.len(), processes.workloads_ended.len()] {
            prop_assert!(list <= limits.process_list);
        }
        prop_assert!(processes.open.is_sorted_by_key(|process| (process.start, process.pid)));
        prop_assert!(processes.slowest.is_sorted_by_key(|process| std::cmp::Reverse(process.duration_ns())));
    }

    /// Whatever runs when: a program is in one tree at most and the trees stay sound. What is in none although it may
    /// have run for a request is counted.
    #[test]
    fn programs_of_requests(
        requests in proptest::collection::vec((0u64..3000, 1u64..2000, 0usize..3), 0..12),
        programs in proptest::collection::vec((0u64..4000, 1u64..1500, 0usize..4, "[a-c]"), 0..30),
    ) {
        let mut story = Story::node();
        story.follows_parks().found(CONTAINERD, Role::Containerd).found(900, Role::Shim);
        for (n, (from, len, kind)) in requests.iter().enumerate() {
            let operation = ["RunPodSandbox", "ExecSync", "UpdateContainerResources"][*kind];
            story.rpc(operation, PLEG + 1 + n as u64, from * MS, (from + len) * MS);
        }
        for (n, (from, len, kind, container)) in programs.iter().enumerate() {
            let (pid, container) = (3000 + u32::try_from(n).unwrap(), Some(container.clone()));
            let (parent, role, command) = match kind {
                0 => (CONTAINERD, Role::Helper, Command::Cni {
                    plugin: "bridge".into(), action: Some("ADD".into()), container,
                }),
                kind => (900, Role::Runc, Command::Runc {
                    sub: ["create", "exec", "update"][kind - 1].into(), container, bundle: None,
                }),
            };
            story.fork(parent, pid, from * MS).exec(pid, role, PROCESS_EXECED, from * MS).told(pid, &command);
            story.exit((from + len) * MS, pid, 0);
        }
        let snapshot = story.read_open(6 * S).snapshot(6 * S);
        sound(&snapshot);
        lines_fit(&snapshot);
        let spans = snapshot.requests.iter().flat_map(|request| request.root().walk());
        let mut pids: Vec<u32> =
            spans.filter(|span| span.layer() == Layer::Process).map(|span| span.id.tgid).collect();
        let all = pids.len();
        pids.sort_unstable();
        pids.dedup();
        prop_assert_eq!(pids.len(), all, "each is in one tree");
        for request in &snapshot.requests {
            let inside = request.root().walk().filter(|span| span.layer() == Layer::Process);
            prop_assert!(request.container.is_some() || inside.count() == 0);
        }
    }

    /// The order in which the CPUs hand over records of the same moment does not matter.
    #[test]
    fn order_does_not_matter(
        pods in proptest::collection::vec(0u64..3, 1..5),
        rpcs in proptest::collection::vec((0u64..1500, 1u64..400, 1u64..5), 0..20),
        hangs: bool,
        seed: u64,
    ) {
        let mut story = Story::node();
        for (n, pods) in pods.iter().enumerate() {
            story.relist(n as u64 * 200 * MS, *pods);
        }
        for (n, (from, len, kind)) in rpcs.iter().enumerate() {
            let operation = ["ListContainers", "ExecSync", "PodSandboxStatus", "ListPodSandbox"][*kind as usize - 1];
            story.rpc(operation, PLEG + 1 + n as u64, from * MS, (from + len) * MS);
        }
        for (n, (from, len, kind)) in rpcs.iter().enumerate() {
            story.park(KUBELET, PLEG + n as u64 % 2, from * MS, (from + len) * MS, &[*kind, 2, 3]);
        }
        if hangs {
            story.relist_hangs(1200 * MS);
        }
        story.read_open(1950 * MS);
        let expected = json_of(&story.snapshot(2 * S));
        let frames = story.frames_mut();
        let first = frames.iter().position(|frame| frame.kind == RecKind::Call).unwrap();
        shuffle(&mut frames[first..], seed);
        prop_assert_eq!(json_of(&story.snapshot(2 * S)), expected);
    }

    /// Any bytes are frames or errors, any frame is an event or an error.
    #[test]
    fn reading_is_total(bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0usize..RecKind::ALL.len()) {
        let mut record = bytes;
        if record.len() >= 16 {
            let len = u32::try_from(record.len()).unwrap();
            record[8..12].copy_from_slice(&len.to_le_bytes());
            record[12..14].copy_from_slice(&(RecKind::ALL[kind] as u16).to_le_bytes());
            record[14..16].copy_from_slice(&ABI_VERSION.to_le_bytes());
        }
        if let Ok(frame) = next_frame(&mut record.into()) {
            let _ = decode(&frame);
        }
    }
}

/// Fisher-Yates with a small generator of its own, so that a failure can be repeated from its seed.
fn shuffle<T>(items: &mut [T], mut seed: u64) {
    for last in (1..items.len()).rev() {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        items.swap(last, (seed >> 33) as usize % (last + 1));
    }
}

/// What made room is not forgotten where it matters: when the last list was.
#[test]
fn the_last_list_outlives_its_relist() {
    let mut story = Story::node();
    story.relist(0, 0);
    for n in 1..5 {
        story.relist_hangs(n * S).list_times_out(n * S + 500 * MS);
    }
    let snapshot = story.snapshot_within(Limits { relists: 2, ..Limits::default() }, 6 * S);
    assert_eq!((snapshot.relists.len(), snapshot.last_list), (2, LastList::At(at(0))));
}

/// A handler that the kubelet has given up is a stall before it is old: then the pulse is not calm.
#[test]
fn a_handler_that_was_given_up_is_not_calm() {
    let mut story = Story::node();
    for n in 0..9 {
        story.relist(n * S, 0);
    }
    story.begin(Layer::Handler, "ExecSync", 70, 900, 8 * S + 200 * MS);
    story.call(Layer::KubeletCall, "ExecSync", (50, 1000), 8 * S + 199 * MS, 8 * S + 300 * MS, 0);
    story.relist(9 * S, 0).read_open(9 * S + 900 * MS);
    let mut correlator = pushed(Limits::default(), Vec::new());
    frames(story).iter().for_each(|frame| correlator.push(decode(frame).unwrap()));
    let now = at(10 * S);
    assert_eq!(diagnose(&correlator.snapshot(now)).verdict, Verdict::Stall);
    pulse_agrees_at(&correlator, now);
}

/// An abandoned handler stays one when the call that it answered is no longer kept.
#[test]
fn abandoned_stays_abandoned() {
    let mut story = Story::node();
    story.relist_hangs(0).list_times_out(S).read_open(2 * S);
    for n in 3..20 {
        story.relist(n * S, 0);
    }
    story.read_open(20 * S);
    let snapshot = story.snapshot_within(Limits { recent_calls: 4, ..Limits::default() }, 20 * S);
    assert_eq!(snapshot.open[0].caller, Caller::Gone(at(S)));
}

/// A bare call inside a counted call that stays open is no row of its own, however long that lasts.
#[test]
fn bare_calls_of_open_calls_are_covered() {
    let mut story = Story::node();
    story.begin(Layer::KubeletCall, "ExecSync", 7, 900, 0);
    story.call(Layer::KubeletClient, "ExecSync", (7, 1000), MS, 2 * MS, CALL_OK).read_open(S);
    story.relist(2 * S, 0).relist(5 * S, 0);
    let snapshot = story.snapshot(6 * S);
    assert!(snapshot.rows.iter().all(|row| row.key.side != Side::Bare));
    sums_add_up(&snapshot);
}

/// The rows of a process that went long ago are given up, and their calls are counted; the last kubelet stays a target.
#[test]
fn the_gone_are_forgotten() {
    let none = Fact::Loss { counts: Vec::new() };
    let mut story = Story::node();
    story.relist(0, 0);
    let gone = TargetGone { component: Component::Kubelet, pid: KUBELET, how: "ended".to_owned() };
    story.fact(S, &Fact::TargetGone(gone)).fact(200 * S, &none);
    let kubelet = |snapshot: &Snapshot| snapshot.rows.iter().filter(|row| row.key.tgid == KUBELET).count();
    let early = story.snapshot(200 * S);
    assert_ne!((kubelet(&early), early.tally.forgotten), (0, 0));
    story.target_at(250 * S, Component::Kubelet, KUBELET + 1, "v1").fact(400 * S, &none);
    let late = story.snapshot(400 * S);
    assert_eq!(kubelet(&late), 0);
    assert_ne!(late.tally.forgotten, 0);
    assert!(late.targets.iter().all(|target| target.fact.pid != KUBELET));
    sums_add_up(&late);
}

/// A loss makes what is said of the minute after it uncertain, and not of the rest of the run; it stays in the report.
#[test]
fn a_loss_counts_for_a_while() {
    let (stage, reason) = ("kernel".to_owned(), "ring_full".to_owned());
    let lost = LossCount { stage, reason, sentence: "lost".to_owned(), count: 3, is_loss: true };
    let mut story = Story::node();
    story.fact(S, &Fact::Loss { counts: vec![lost.clone()] });
    let fresh = |story: &Story, seconds| story.snapshot(seconds * S).fresh_losses().count();
    assert_eq!([2, 60].map(|seconds| fresh(&story, seconds)), [1, 1]);
    story.fact(70 * S, &Fact::Loss { counts: vec![lost.clone()] });
    assert_eq!((fresh(&story, 70), story.snapshot(70 * S).real_losses().count()), (0, 1));
    story.fact(80 * S, &Fact::Loss { counts: vec![LossCount { count: 4, ..lost }] });
    assert_eq!(fresh(&story, 90), 1, "it grows again");
}

/// When the index of a hook stands for something else, calls of what it stood for are not taken for that: they are given
/// up, with the relists that would miss one. Their rows stay.
#[test]
fn a_hook_stands_for_something_else() {
    let mut story = Story::node();
    for n in 0..3 {
        story.relist(n * S, 1);
    }
    let before = story.snapshot(10 * S);
    let lists = |snapshot: &Snapshot| {
        let row = snapshot.rows.iter().find(|row| row.key.operation == "ListContainers");
        row.map(|row| row.latency.count())
    };
    let of = before
        .hooks
        .iter()
        .find(|state| state.hook.layer == Layer::KubeletCall && state.hook.operation == "ListContainers");
    let old = of.map(|state| HookFact::clone(&state.hook)).unwrap();
    // The same once more changes nothing.
    story.fact(10 * S, &Fact::Hook(old.clone()));
    assert_eq!(json_of(&story.snapshot(10 * S))[..100], json_of(&before)[..100]);
    assert_eq!(story.snapshot(10 * S).relists.len(), 3);
    let other = HookFact { operation: "StopContainer".to_owned(), symbol: "other".to_owned(), ..old };
    story.fact(11 * S, &Fact::Hook(other));
    let after = story.snapshot(12 * S);
    assert_eq!(after.relists.len(), 0);
    assert!(after.rows.iter().all(|row| row.key.operation != "StopContainer"), "{:#?}", after.rows);
    assert_eq!((lists(&after), lists(&before)), (Some(3), Some(3)));
    sums_add_up(&after);
}
