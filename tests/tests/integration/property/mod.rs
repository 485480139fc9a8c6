//! What holds for every input stream: no panic, sound trees, sums that add up, lines that fit, bounded state.

mod checks;
mod events;
mod kept;
mod pulse;

use plegtrace::{
    correlate::{Correlator, Limits},
    decode::{Event, decode},
    input::{Command, Frame, Layer, next_frame},
};
use plegtrace_common::{ABI_VERSION, kind::RecKind, rec::PROCESS_EXECED, role::Role};
use plegtrace_tests::life::Life as _;
use plegtrace_tests::story::{CONTAINERD, KUBELET, MS, PLEG, S, Story, at};
use proptest::prelude::*;

use checks::{json_of, lines_fit, one_verdict, pulse_agrees, pulse_agrees_at, sound, sums_add_up};
pub(crate) use events::{event, process_event};

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

/// Calls that may be open for long, or may not.
const OPEN: [(Layer, &str); 6] = [
    (Layer::Relist, "Relist"),
    (Layer::KubeletCall, "ListContainers"),
    (Layer::KubeletCall, "ExecSync"),
    (Layer::KubeletClient, "ListPodSandbox"),
    (Layer::Handler, "ListContainers"),
    (Layer::Handler, "RunPodSandbox"),
];

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
            parks: 20, stacks: 3, symbols: 5, fact_bytes: 1 << 20,
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
