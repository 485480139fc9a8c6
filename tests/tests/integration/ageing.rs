//! What has ended is given up by age, and nothing that a report still needs.

use plegtrace::{
    correlate::{Correlator, Limits, Snapshot},
    decode::decode,
    input::{Command, Fact, Layer},
};
use plegtrace_common::{
    rec::{CALL_FAILED, CALL_OK, PROCESS_EXECED},
    role::Role,
};
use plegtrace_tests::life::Life as _;
use plegtrace_tests::story::{CONTAINERD, KUBELET, MS, PLEG, S, Story, at};
use proptest::prelude::*;

/// How long the stories of the property keep what has ended.
const SHORT: u64 = 2 * S;
/// The maps are read, and losses counted, so often.
const TICK: u64 = 250 * MS;
/// When those stories end.
const END: u64 = 12 * S;

/// The maps are read, as an observation does every second.
fn tick(story: &mut Story, ns: u64) {
    story.read_open(ns).read_processes(ns).fact(ns, &Fact::Loss { counts: Vec::new() });
}

fn push(correlator: &mut Correlator, story: &mut Story) {
    for frame in std::mem::take(story.frames_mut()) {
        correlator.push(decode(&frame).unwrap());
    }
}

/// `runc exec` of a shim, which lasts for 20 ms.
fn program(story: &mut Story, pid: u32, ns: u64) {
    story.fork(900, pid, ns).exec(pid, Role::Runc, PROCESS_EXECED, ns);
    story.told(pid, &Command::Runc { sub: "exec".into(), container: Some("c".into()), bundle: None });
    story.exit(ns + 20 * MS, pid, 0);
}

/// What is kept after each of some minutes: a relist every `period` seconds, an exec and a park every second.
fn kept_by_minute(period: u64, minutes: u64) -> (Vec<usize>, Snapshot) {
    let (mut correlator, mut story) = (Correlator::new(Limits::default()), Story::node());
    story.follows_parks().found(CONTAINERD, Role::Containerd).found(900, Role::Shim);
    let mut kept = Vec::new();
    for second in 0..60 * minutes {
        let now = second * S;
        if second.is_multiple_of(period) {
            story.relist(now, 2);
        }
        story.rpc("ExecSync", 5000 + second, now + 100 * MS, now + 150 * MS);
        program(&mut story, 3000 + u32::try_from(second).unwrap(), now + 110 * MS);
        story.park(CONTAINERD, 77, now + 200 * MS, now + 300 * MS, &[1, 2]);
        tick(&mut story, now + S - 1);
        push(&mut correlator, &mut story);
        if (second + 1).is_multiple_of(60) {
            kept.push(correlator.kept());
        }
    }
    (kept, correlator.snapshot(at(60 * minutes * S)))
}

/// After the third minute, and the time until things are looked through once more, a node with few calls is kept in as
/// little memory as after twenty, long before any count is reached; nothing of that counts as lost.
#[test]
fn flat_after_the_third_minute() {
    let (kept, snapshot) = kept_by_minute(1, 20);
    let most = *kept[..4].iter().max().unwrap();
    assert!(kept[4..].iter().all(|now| *now <= most + most / 20), "{kept:?}");
    assert!(kept[2] > 2 * kept[0], "nothing goes before that: {kept:?}");
    let losses: Vec<&str> = snapshot.losses.iter().map(|loss| loss.reason.as_str()).collect();
    assert_eq!(losses, ["relists_evicted"]);
}

/// A kubelet with EventedPLEG lists every five minutes: what ran beside a relist that is kept stays, and nothing else.
#[test]
fn an_old_relist_stays_whole() {
    let (kept, snapshot) = kept_by_minute(300, 21);
    assert!(kept[20] <= kept[5] + 200, "{kept:?}");
    let spans: Vec<usize> = snapshot.relists.iter().map(|relist| relist.root().walk().count()).collect();
    assert_eq!(spans, [spans[4]; 5], "its handlers are there");
    let handlers = snapshot.relists[0].root().walk().filter(|span| span.layer() == Layer::Handler);
    assert_ne!(handlers.count(), 0);
}

/// A request of a story: its operation, when the kubelet asks, how long the handler lasts, and for how long the kubelet waits
/// for it; `None`: for ever.
type Asked = (usize, u64, Option<u64>, Option<u64>);

fn asked() -> impl Strategy<Value = Asked> {
    let lasts = || prop_oneof![8 => (1u64..3000).prop_map(Some), 1 => Just(None)];
    (0usize..3, 0u64..11_000, lasts(), lasts())
}

/// What happens at one moment.
type Act = (u64, Box<dyn Fn(&mut Story)>);

fn act(ns: u64, what: impl Fn(&mut Story) + 'static) -> Act {
    (ns, Box::new(what))
}

/// The moments of a request. The kubelet gives up a handler that lasts longer than it waits. No two last equally long, to the nanosecond:
/// of such, the report may show any.
fn acts_of(number: usize, (operation, from, handler, waits): Asked) -> Vec<Act> {
    let operation = ["ExecSync", "RunPodSandbox", "ContainerStatus"][operation];
    let (goid, served, from) = (1000 + number as u64, 50_000 + number as u64, from * MS);
    let longer = number as u64;
    let over = handler.map(|ms| from + (ms + 1) * MS + longer);
    let gives_up = waits.map(|ms| from + (ms + 2) * MS + longer);
    let mut acts = vec![
        act(from, move |story| {
            story.begin(Layer::KubeletCall, operation, goid, 900, from);
            story.begin(Layer::KubeletClient, operation, goid, 1000, from + 1000);
        }),
        act(from + MS, move |story| {
            story.begin(Layer::Handler, operation, served, 700, from + MS);
        }),
    ];
    acts.extend(over.map(|ns| {
        act(ns, move |story| {
            story.park(CONTAINERD, served, from + MS + 1000, ns - 1000, &[7, 8]);
            story.end(Layer::Handler, operation, served, ns, CALL_OK);
        })
    }));
    let answered = over.filter(|over| gives_up.is_none_or(|at| over < &at));
    if let Some(end) = answered.map(|ns| ns + 10_000).or(gives_up) {
        let flags = if answered.is_some() { CALL_OK } else { CALL_FAILED };
        acts.push(act(end, move |story| {
            story.end(Layer::KubeletClient, operation, goid, end, flags);
            story.end(Layer::KubeletCall, operation, goid, end + 1000, flags);
        }));
    }
    acts
}

/// Everything that happens on a node, in order, with a reading of the maps every [`TICK`].
fn told(asked: &[Asked], relists: &[u64], hangs: bool) -> Story {
    let mut acts: Vec<Act> =
        asked.iter().enumerate().flat_map(|(number, asked)| acts_of(number, *asked)).collect();
    for (number, ms) in relists.iter().enumerate() {
        let from = number as u64 * 500 * MS + ms * MS;
        acts.push(act(from, move |story| {
            story.park(KUBELET, PLEG, from + 200_000, from + 400_000, &[1, 2]).relist(from, 2);
        }));
    }
    if hangs {
        let from = relists.len() as u64 * 500 * MS + 600 * MS;
        acts.push(act(from, move |story| {
            story.relist_hangs(from);
        }));
    }
    acts.extend((1..END / TICK).map(|n| act(n * TICK, move |story| tick(story, n * TICK))));
    acts.sort_by_key(|(ns, _)| *ns);
    let mut story = Story::node();
    story.follows_parks();
    acts.iter().for_each(|(_, act)| act(&mut story));
    story
}

/// What a report must have, however long ago it ended.
fn needed(snapshot: &Snapshot) -> String {
    let slow = snapshot.requests.iter().filter(|request| {
        let root = request.root();
        root.is_open() || root.duration_ns(snapshot.now) >= 100 * MS
    });
    let slow: Vec<_> = slow.collect();
    let Snapshot { open, relists, rows, closed_unseen, last_list, tally, .. } = snapshot;
    format!("{open:#?} {relists:#?} {rows:#?} {closed_unseen:#?} {last_list:#?} {tally:#?} {slow:#?}")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever happens on a node: what is open, what open calls refer to, relists with all that ran for them, rows and slow
    /// requests are as if nothing had ever been given up; and what can go goes.
    #[test]
    fn what_is_needed_stays(
        asked in proptest::collection::vec(asked(), 0..40),
        relists in proptest::collection::vec(0u64..400, 0..12),
        hangs: bool,
    ) {
        let mut story = told(&asked, &relists, hangs);
        let limits = Limits { reorder_ns: 100 * MS, ..Limits::default() };
        let [mut aged, mut whole] =
            [SHORT, u64::MAX].map(|kept_ns| Correlator::new(Limits { kept_ns, ..limits }));
        let frames = std::mem::take(story.frames_mut());
        for frame in &frames {
            aged.push(decode(frame).unwrap());
            whole.push(decode(frame).unwrap());
        }
        let [left, right] = [&aged, &whole].map(|correlator| needed(&correlator.snapshot(at(END))));
        prop_assert!(left == right, "{}", difference(&left, &right));
        let open = hangs || asked.iter().any(|(.., handler, _)| handler.is_none());
        let long_ago = asked.iter().any(|(_, from, ..)| *from < 1000);
        if long_ago && !open && relists.is_empty() {
            prop_assert!(aged.kept() < whole.kept());
        }
    }
}

/// The first lines in which two texts differ.
fn difference(left: &str, right: &str) -> String {
    let mut pairs = left.lines().zip(right.lines()).enumerate();
    let differs = pairs.find(|(_, (left, right))| left != right);
    format!("{differs:#?}")
}
