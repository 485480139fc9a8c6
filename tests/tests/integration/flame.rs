//! Folded stacks add up: to the relists and requests they are made of, whatever the stream, and to the calls of real
//! recordings, which are summed a second time without trees.

use std::{collections::BTreeMap, fs};

use plegtrace::{
    commands,
    correlate::{Correlator, Limits, Relist, RequestTree, Snapshot},
    decode::{Event, decode},
    flame::Flame,
    input::{Fact, Layer},
    recording::Recording,
    render::flame::{Caption, Per, Saved, folded, svg},
};
use plegtrace_lab::fault::Kind;
use plegtrace_tests::{
    golden,
    recordings::{self, FAULTS},
    story::{S, at},
};
use proptest::prelude::*;

use super::property::{event, process_event, pushed};

/// Where the kubelet waits for a containerd that does not run.
const STUCK: &str = "ListContainers, open;kubelet ListContainers;[waiting];";

/// What two looks of the census found in flight, and no probe has seen the beginning of.
fn early(snapshot: &Snapshot) -> u64 {
    let traced = |pid: u32, goid: u64| {
        snapshot.open.iter().any(|call| (call.span.id.tgid, call.span.id.goid) == (pid, goid))
    };
    let found = snapshot.census.requests.iter().filter(|request| request.stays);
    let untraced = found.filter(|request| !request.goids.iter().any(|goid| traced(request.pid, *goid)));
    untraced.map(|request| request.since.ns).sum()
}

/// What all that has ended and all that is open took, summed without folding.
fn summed(correlator: &mut Correlator, snapshot: &Snapshot) -> u64 {
    let mut sum = 0;
    correlator.take_finished(true, &mut |finished| sum += finished.root().duration_ns(snapshot.now));
    let relists = snapshot.relists.iter().map(Relist::root);
    let roots = relists.chain(snapshot.requests.iter().map(RequestTree::root));
    sum + roots.filter(|root| root.is_open()).map(|root| root.duration_ns(snapshot.now)).sum::<u64>()
}

fn text(flame: &Flame, per: Per) -> String {
    let mut out = Vec::new();
    folded(flame, per, None, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn picture(flame: &Flame, per: Per, before: Option<&Saved>) -> String {
    let mut out = Vec::new();
    svg(flame, per, before, &Caption { about: "<b>&\"".to_owned() }, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Microseconds by root.
fn roots(text: &str) -> BTreeMap<&str, u64> {
    let mut roots = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with("# ")) {
        let (stack, us) = line.rsplit_once(' ').unwrap();
        *roots.entry(stack.split(';').next().unwrap()).or_default() += us.parse::<u64>().unwrap();
    }
    roots
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Any stream, folded with any room: the leaves add up to what was folded, and so does the text.
    #[test]
    fn any_stream_adds_up(
        events in proptest::collection::vec(prop_oneof![3 => event(), 1 => process_event()], 0..150),
        room in prop_oneof![Just(0_usize), 1..40_usize, Just(10_000)],
    ) {
        let now = at(7 * S);
        let mut other = pushed(Limits::default(), events.clone());
        let mut correlator = pushed(Limits::default(), events);
        let snapshot = correlator.snapshot(now);
        let mut flame = Flame::with_room_for(room);
        flame.collect(&mut correlator, true);
        flame.add_open(&snapshot);
        let sum = summed(&mut other, &snapshot);
        prop_assert_eq!(flame.total_ns(), sum);
        prop_assert_eq!(flame.stacks().iter().map(|stack| stack.ns).sum::<u64>(), sum);
        let text = text(&flame, Per::Whole);
        prop_assert_eq!(roots(&text).values().sum::<u64>(), sum / 1000);
        Saved::read(text.as_bytes()).unwrap();
        let svg = picture(&flame, Per::Whole, None);
        prop_assert!(svg.contains("</svg>") && !svg.contains("<b>") && !svg.contains('\u{1b}'), "{}", svg);
    }
}

/// The calls of a recording by what they are a root of: relists, without any tree.
fn relists_of(bytes: &[u8]) -> (u64, u64) {
    let mut recording = Recording::open(bytes).unwrap();
    let (mut hooks, mut sum, mut count) = (BTreeMap::new(), 0, 0);
    while recording.next_block(&mut |frame| match decode(&frame).unwrap() {
        Event::Fact { fact, .. } => {
            if let Fact::Hook(hook) = *fact {
                hooks.insert(hook.index, hook.layer);
            }
        }
        Event::Call(call) if hooks.get(&call.hook) == Some(&Layer::Relist) && !call.unwound() => {
            sum += call.end.since(call.start);
            count += 1;
        }
        _ => {}
    }) {}
    (count, sum)
}

/// Real stalls: relists add up to the calls, requests to their trees, the open relist to its age; and the stack on which
/// a handler is parked is there.
#[test]
fn recordings_add_up() {
    let mut waiting = String::new();
    for kind in FAULTS {
        let name = recordings::name(kind);
        let bytes = fs::read(recordings::folder().join(recordings::file(kind))).unwrap();
        let replayed = commands::replay_and_fold(bytes.as_slice()).unwrap();
        let (flame, snapshot) = (replayed.flame.unwrap(), replayed.snapshot);
        assert!(flame.is_complete() && flame.folded_away() == 0, "{name}");
        let mut all = Correlator::new(Limits::default());
        let mut recording = Recording::open(bytes.as_slice()).unwrap();
        while recording.next_block(&mut |frame| all.push(decode(&frame).unwrap())) {}
        assert_eq!(flame.total_ns(), summed(&mut all, &snapshot) + early(&snapshot), "{name}");
        let text = text(&flame, Per::Whole);
        let roots = roots(&text);
        let (count, sum) = relists_of(&bytes);
        assert_eq!(flame.relists(), count, "{name}");
        let told = roots.get("relist").copied().unwrap_or_default();
        assert!(told.abs_diff(sum / 1000) <= 1, "{name}: {told} of {sum}");
        let open = snapshot.relists.iter().find(|relist| relist.root().is_open());
        let age = open.map_or(0, |relist| relist.root().duration_ns(snapshot.now));
        let told = roots.get("relist, open").copied().unwrap_or_default();
        assert!(told.abs_diff(age / 1000) <= 1, "{name}: {told} of {age}");
        waiting.push_str(&text);
    }
    let stuck = waiting.lines().find(|line| line.starts_with(STUCK));
    assert!(stuck.is_some_and(|line| line.contains("transport.(*Stream).waitOnHeader;")), "{waiting}");
    // Who came too late for the beginning sees the lock that the list waits for all the same.
    let list = "ListContainers, open since before the probes;containerd ListContainers;[waiting];";
    let lock = ";container.(*statusStorage).Get;sync.runtime_SemacquireMutex;";
    assert!(waiting.lines().any(|line| line.starts_with(list) && line.contains(lock)), "{waiting}");
    // The deepest chain of a recording: down to the shim, and with the functions that wait for it.
    let deep = "ListContainerStats;kubelet ListContainerStats;containerd ListContainerStats;[waiting];";
    assert!(
        waiting.lines().any(|line| line.starts_with(deep) && line.contains(";ttrpc.(*Client).dispatch;"))
    );
}

fn fold(kind: Kind) -> Flame {
    let bytes = fs::read(recordings::folder().join(recordings::file(kind))).unwrap();
    commands::replay_and_fold(bytes.as_slice()).unwrap().flame.unwrap()
}

/// The mean relist is the whole of them divided by their number; nothing else is in it.
#[test]
fn the_mean_relist() {
    for kind in FAULTS {
        let flame = fold(kind);
        let (whole, mean) = (text(&flame, Per::Whole), text(&flame, Per::Relist));
        let whole = roots(&whole).get("relist").copied().unwrap_or_default();
        let mean = roots(&mean);
        assert!(mean.len() <= 1 && mean.keys().all(|root| *root == "relist"), "{mean:?}");
        let mean = mean.get("relist").copied().unwrap_or_default();
        assert!(mean.abs_diff(whole / flame.relists().max(1)) <= 1, "{mean} of {whole}");
    }
}

/// The first frame of this name, with its title.
fn title<'a>(svg: &'a str, name: &str) -> &'a str {
    let from = svg.find(&format!("<title>{name} (")).unwrap_or_else(|| panic!("{name}: {svg}"));
    &svg[from..from + svg[from..].find("/>").unwrap()]
}

/// Titles tell milliseconds, how often, and the share; waiting and running have colours of their own.
#[test]
fn a_picture_of_a_stall() {
    let svg = picture(&fold(Kind::ContainerdStopped), Per::Whole, None);
    let open = title(&svg, "ListContainers, open");
    assert!(open.contains(" s, 1 time, ") && open.contains("%)</title>"), "{open}");
    assert!(title(&svg, "[waiting]").contains("rgb(116,173,229)"));
    assert!(svg.contains("&lt;b&gt;&amp;"), "what stands above it is escaped");
    assert!(!svg.contains(" us, "), "all titles are ours");
    let healthy = picture(&fold(Kind::Cni), Per::Whole, None);
    assert!(title(&healthy, "[running, ready or in a syscall]").contains("rgb(230,97,1)"));
    // The legend has the colours that are there: a runtime that is stopped answers nothing.
    for (svg, answers) in [(&svg, false), (&healthy, true)] {
        assert!(svg.contains("<tspan fill=\"rgb(116,173,229)\">\u{25a0}</tspan> waiting "), "{svg}");
        assert_eq!(
            svg.contains("<tspan fill=\"rgb(166,206,145)\">\u{25a0}</tspan> runtime "),
            answers,
            "{svg}"
        );
    }
}

/// Against itself nothing has changed; against another time the stall has grown, in text and picture.
#[test]
fn a_difference() {
    let (flame, before) = (fold(Kind::ContainerdStopped), fold(Kind::Cni));
    let saved = |flame: &Flame, per| Saved::read(text(flame, per).as_bytes()).unwrap();
    let change = |before: &Saved, per| {
        let mut out = Vec::new();
        folded(&flame, per, Some(before), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    let pairs = |text: &str| -> Vec<(u64, u64)> {
        let lines = text.lines().filter(|line| !line.starts_with("# "));
        let pair = |line: &str| {
            let (rest, now) = line.rsplit_once(' ').unwrap();
            (rest.rsplit_once(' ').unwrap().1.parse().unwrap(), now.parse().unwrap())
        };
        lines.map(pair).collect()
    };
    let same = pairs(&change(&saved(&flame, Per::Whole), Per::Whole));
    assert!(!same.is_empty() && same.iter().all(|(then, now)| then == now), "{same:?}");
    let per_relist = pairs(&change(&saved(&flame, Per::Whole), Per::Relist));
    assert!(per_relist.iter().all(|(then, now)| then.abs_diff(*now) <= 1), "{per_relist:?}");
    let grown = change(&saved(&before, Per::Whole), Per::Whole);
    let stall = grown.lines().find(|line| line.starts_with(STUCK)).unwrap();
    assert!(stall.rsplit(' ').nth(1) == Some("0"), "{stall}");
    let svg = picture(&flame, Per::Whole, Some(&saved(&before, Per::Whole)));
    assert!(svg.contains("red has grown") && svg.contains("rgb(255,"), "{svg}");
    assert!(folded(&flame, Per::Whole, Some(&saved(&before, Per::Relist)), &mut Vec::new()).is_err());
}

/// The picture of a real stall that the README begins with: two lists behind a lock, and who has it behind a stopped shim.
#[test]
fn the_picture_of_the_readme() {
    let caption = Caption { about: "a stall that began before plegtrace was started".to_owned() };
    let mut out = Vec::new();
    svg(&fold(Kind::LockHostage), Per::Whole, None, &caption, &mut out).unwrap();
    let svg = String::from_utf8(out).unwrap();
    for frame in ["ListContainers, open since before the probes", "container.(*statusStorage).Get"] {
        assert!(svg.contains(&format!("<title>{frame} (")), "{frame}: {svg}");
    }
    golden::check("flame/lock-hostage.svg", &svg);
    let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md");
    assert!(fs::read_to_string(readme).unwrap().contains("(tests/golden/flame/lock-hostage.svg)"));
}

/// Nothing seen is a picture, too, and says so.
#[test]
fn a_picture_of_nothing() {
    let svg = picture(&Flame::default(), Per::Whole, None);
    assert!(svg.contains("no relist and no request was seen"), "{svg}");
    assert!(roots(&text(&Flame::default(), Per::Relist)).is_empty());
}

/// The stacks of these nodes while nothing was held up: what has ended, in microseconds.
fn healthy() -> Saved {
    let mut flame = Flame::default();
    for kind in FAULTS {
        let bytes = fs::read(recordings::folder().join(recordings::file(kind))).unwrap();
        let (mut all, mut recording) =
            (Correlator::new(Limits::default()), Recording::open(bytes.as_slice()).unwrap());
        while recording.next_block(&mut |frame| all.push(decode(&frame).unwrap())) {}
        flame.collect(&mut all, true);
    }
    assert!(flame.relists() > 10 && flame.open() == 0);
    Saved::read(text(&flame, Per::Whole).as_bytes()).unwrap()
}

/// Against a healthy time, what has grown most is what waits for the culprit: the holder of the lock for the shim (R1), the
/// sandbox for the network plugin (N1), the create for the shim whose runc waits for its hook (U10).
#[test]
fn what_has_grown_most_is_the_culprit() {
    let healthy = healthy();
    for (kind, root, culprit) in [
        (
            Kind::LockHostage,
            "UpdateContainerResources, ",
            ";v2.(*shimTask).Update;task.(*taskClient).Update;",
        ),
        (Kind::Cni, "RunPodSandbox, ", ";go-cni.(*libcni).Setup;go-cni.(*libcni).attachNetworks;"),
        (Kind::Hook, "StartContainer, ", ";v2.(*shimTask).Create;task.(*taskClient).Create;"),
    ] {
        let mut out = Vec::new();
        folded(&fold(kind), Per::Whole, Some(&healthy), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let grown = text.lines().filter(|line| !line.starts_with("# ")).map(|line| {
            let mut parts = line.rsplitn(3, ' ');
            let mut us = || parts.next().unwrap().parse::<i64>().unwrap();
            (us() - us(), parts.next().unwrap())
        });
        let (grown, stack) = grown.max().unwrap();
        assert!(stack.starts_with(root) && stack.contains(culprit), "{kind:?}: {stack}");
        assert!(grown > 3_000_000, "{kind:?}: {grown} us");
    }
}
