//! Where the time of a relist goes, and how the wire splits the way between kubelet and runtime.

use plegtrace::{
    correlate::{Doing, Snapshot},
    diagnose::diagnose,
    input::Layer,
    render::text,
    span::{Account, Leg, account},
};
use plegtrace_common::rec::{CALL_OK, CALL_PARKS, CALL_REPLIED};
use plegtrace_tests::story::{CONTAINERD, KUBELET, MS, PLEG, S, Story};

/// A list that waits for a lock in containerd, in a relist of 100 ms.
fn a_list_behind_a_lock() -> Story {
    const OK: u32 = CALL_OK | CALL_PARKS;
    let mut story = Story::node();
    story.follows_parks();
    story.begin(Layer::Relist, "Relist", PLEG, 100, 0);
    story.begin(Layer::KubeletCall, "ListContainers", PLEG, 300, 10 * MS);
    story.begin(Layer::KubeletClient, "ListContainers", PLEG, 400, 11 * MS);
    story.begin(Layer::Handler, "ListContainers", 900, 500, 20 * MS);
    story.park(CONTAINERD, 900, 30 * MS, 70 * MS, &[1, 2, 3, 4]);
    story.end(Layer::Handler, "ListContainers", 900, 80 * MS, OK | CALL_REPLIED);
    story.park(KUBELET, PLEG, 12 * MS, 88 * MS, &[5, 6]);
    story.end(Layer::KubeletClient, "ListContainers", PLEG, 90 * MS, OK);
    story.end(Layer::KubeletCall, "ListContainers", PLEG, 91 * MS, OK);
    story.end(Layer::Relist, "Relist", PLEG, 100 * MS, OK);
    let names = ["runtime.goparkunlock", "sync.runtime_SemacquireMutex", "sync.(*RWMutex).RLock"];
    story.names(S, &[&names[..], &["x/store/container.(*statusStorage).Get"]].concat());
    story
}

fn page_of(snapshot: &Snapshot) -> String {
    let (diagnosis, options) =
        (diagnose(snapshot), text::TextOptions { verbose: true, ..text::TextOptions::default() });
    let mut page = Vec::new();
    text::report(snapshot, &diagnosis, &options, &mut page).unwrap();
    String::from_utf8(page).unwrap()
}

/// Each part of the relist under the name of what was measured.
#[test]
fn a_relist_says_where_its_time_went() {
    let story = a_list_behind_a_lock();
    let snapshot = story.snapshot(2 * S);
    let time = account(snapshot.relists[0].root(), snapshot.now);
    let expected = Account {
        not_parked_ns: 44 * MS,
        parked_ns: 40 * MS,
        transport_ns: 16 * MS,
        short_ns: 0,
        process_ns: 0,
        unexplained_ns: 0,
    };
    assert_eq!(time, expected);
    let page = page_of(&snapshot);
    for wanted in [
        "parked in sync.(*RWMutex).RLock < container.(*statusStorage).Get",
        "between client and handler 2×",
        "explained 100.0 %: running, ready or in a syscall 44.0 ms, parked 40.0 ms",
    ] {
        assert!(page.contains(wanted), "{wanted}\n{page}");
    }
}

/// The request that carried the list splits the way between kubelet and containerd in four, in the tree and in the table;
/// where two can have carried it, nothing is split.
#[test]
fn the_wire_splits_the_way() {
    const PATH: &str = "runtime.v1.RuntimeService/ListContainers";
    let mut story = a_list_behind_a_lock();
    story.request(5, PATH, 14 * MS, 84 * MS);
    let legs = |snapshot: &Snapshot| {
        let rows = snapshot.relist_time.rows.iter();
        let mut legs: Vec<(Leg, u64)> = rows
            .filter_map(|row| match row.place.doing {
                Doing::Transport(leg) => Some((leg, row.sum_ns / MS)),
                _ => None,
            })
            .collect();
        legs.sort_unstable();
        legs
    };
    let snapshot = story.snapshot(2 * S);
    assert_eq!(legs(&snapshot), [(Leg::Send, 2), (Leg::Accept, 6), (Leg::Answer, 4), (Leg::Receive, 4)]);
    assert_eq!(account(snapshot.relists[0].root(), snapshot.now).transport_ns, 16 * MS);
    let page = page_of(&snapshot);
    for wanted in [
        "request waiting for the runtime to take it",
        "answer waiting for the kubelet to take it",
        "request not taken yet by the server",
        "answer not written yet by the server",
        "explained 100.0 %",
    ] {
        assert!(page.contains(wanted), "{wanted}\n{page}");
    }
    story.request(7, PATH, 15 * MS, 83 * MS);
    assert_eq!(legs(&story.snapshot(2 * S)), [(Leg::Whole, 16)]);
}
