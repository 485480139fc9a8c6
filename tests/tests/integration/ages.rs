//! Ages of requests that only the census has seen: lower bounds, whatever happens in whatever order.

use plegtrace::correlate::{Age, Request, Snapshot};
use plegtrace::diagnose::diagnose;
use plegtrace::input::{
    Armed, CensusFact, Component, Fact, GoroutineGroup, GoroutinesFact, HookCounters, Layer, ProcessFact,
    RefusedFact,
};
use plegtrace::render::json;
use plegtrace::render::text::{self, TextOptions};
use plegtrace_tests::found::{group, lists, process};
use plegtrace_tests::story::{CONTAINERD, KUBELET, MS, PLEG, S, Story, at};
use proptest::prelude::*;

const RELIST: &str = "k8s.io/kubernetes/pkg/kubelet/pleg.(*GenericPLEG).Relist";
const LIST: &str = "k8s.io/cri-api/pkg/apis/runtime/v1._RuntimeService_ListContainers_Handler";
const WORKER: &str = "google.golang.org/grpc.(*Server).serverWorker";

/// A node whose relists are probed from time 0 on, without anything that happened on it.
fn probed() -> Story {
    let mut story = Story::blank();
    story.start().target(Component::Kubelet, KUBELET, "1.20.2").hook(Layer::Relist, "Relist");
    story.fact(0, &armed(None));
    story
}

fn armed(hooks: Option<Vec<u32>>) -> Fact {
    Fact::Armed(Armed { mode: "uprobe_multi".into(), sites: 4, took_ns: 0, hooks })
}

/// As the kernel side tells it: hooks that were never hit are left out.
fn hits(story: &mut Story, ns: u64, hits: u64) {
    let hooks = (hits > 0).then(|| HookCounters { hook: 0, hits, ..HookCounters::default() });
    let hooks = hooks.into_iter().collect();
    story.fact(ns, &Fact::Counters { hooks });
}

/// A look at this process that began at `ns` and took so long.
fn look(story: &mut Story, pid: u32, (ns, took_ns): (u64, u64), groups: Vec<GoroutineGroup>) {
    let component = if pid == KUBELET { Component::Kubelet } else { Component::Containerd };
    let seen = ProcessFact { at_ns: at(ns).0, ..process(component, pid, 1, 0) };
    story.fact(ns, &Fact::Process(seen));
    let fact = GoroutinesFact {
        at_ns: at(ns).0,
        took_ns,
        pid,
        component,
        go_version: "go1.19.8".into(),
        total: 1,
        unread: 0,
        groups,
        groups_left_out: 0,
        last_list_ns: None,
    };
    story.fact(ns + took_ns, &Fact::Goroutines(fact));
}

fn end_of_round(story: &mut Story, began: u64, ended: u64) {
    let round =
        CensusFact { began_ns: at(began).0, ended_ns: at(ended).0, cut: true, ..CensusFact::default() };
    story.fact(ended, &Fact::Census(round));
}

/// The age of the one relist after looks at these moments, and after `tell`.
fn relist_age(looks: &[u64], now: u64, tell: impl FnOnce(&mut Story)) -> Age {
    let mut story = probed();
    tell(&mut story);
    for ns in looks {
        look(&mut story, KUBELET, (*ns, 0), vec![group(&[PLEG], "select", &[RELIST])]);
        end_of_round(&mut story, *ns, *ns);
    }
    let snapshot = story.snapshot(now);
    let [relist] = &snapshot.census.requests[..] else { panic!("{:?}", snapshot.census.requests) };
    relist.since
}

/// Relists are all on one goroutine, so looks alone say nothing of their ages. That no probe was hit meanwhile does.
#[test]
fn a_relist_from_before_the_probes() {
    let at_least = |ns| Age { ns, at_least: true };
    let quiet = |story: &mut Story| hits(story, 5 * S, 0);
    assert_eq!(relist_age(&[S, 5 * S], 5 * S, |_| ()), at_least(0));
    assert_eq!(relist_age(&[S, 5 * S], 5 * S, quiet), at_least(5 * S));
    assert_eq!(
        relist_age(&[S, 6 * S], 6 * S, quiet),
        at_least(0),
        "another one may have begun since the counters were read"
    );
    assert_eq!(relist_age(&[6 * S], 6 * S, quiet), at_least(0), "nobody saw it while probes saw nothing");
    assert_eq!(
        relist_age(&[S, 5 * S], 5 * S, |story| hits(story, 5 * S, 1)),
        at_least(0),
        "one began or ended"
    );
    let off = |story: &mut Story| {
        let gone = RefusedFact {
            source: "uprobes".into(),
            component: Some(Component::Kubelet),
            what: "/usr/bin/kubelet".into(),
            why: "its probes were detached".into(),
            matters: false,
        };
        story.fact(2 * S, &Fact::Refused(gone));
        hits(story, 5 * S, 0);
    };
    assert_eq!(relist_age(&[S, 5 * S], 5 * S, off), at_least(0), "without probes nothing is hit");
    let planned = |story: &mut Story| {
        story.fact(0, &armed(Some(Vec::new())));
        hits(story, 5 * S, 0);
    };
    assert_eq!(relist_age(&[S, 5 * S], 5 * S, planned), at_least(0), "the probes were never on");
    let unwatched = |story: &mut Story| {
        let refused = RefusedFact {
            source: "processes".into(),
            component: Some(Component::Kubelet),
            what: format!("process {KUBELET}"),
            why: "the table is full".into(),
            matters: true,
        };
        story.fact(0, &Fact::Refused(refused));
        hits(story, 5 * S, 0);
    };
    assert_eq!(relist_age(&[S, 5 * S], 5 * S, unwatched), at_least(0), "only watched processes are counted");
    // The kubelet before had relists; this one was hit by none between two readings.
    let earlier = |story: &mut Story| [S, 2 * S, 5 * S].into_iter().for_each(|ns| hits(story, ns, 70));
    assert_eq!(relist_age(&[2 * S, 5 * S], 5 * S, earlier), at_least(3 * S));
}

/// A look lasts, and a relist that it finds may have begun after the counters were read for the last time.
#[test]
fn a_look_across_the_last_reading() {
    let age = |look_at: (u64, u64)| {
        let mut story = probed();
        hits(&mut story, 5 * S, 0);
        look(&mut story, KUBELET, look_at, vec![group(&[PLEG], "select", &[RELIST])]);
        end_of_round(&mut story, look_at.0, look_at.0 + look_at.1);
        story.snapshot(6 * S).census.requests[0].since
    };
    assert_eq!(age((4 * S, S)), Age { ns: 5 * S, at_least: true });
    assert_eq!(age((4 * S, S + 1)), Age { ns: 0, at_least: true });
}

/// What was in flight before the probes is open, and is told with the open calls: with a lower bound, and only once.
#[test]
fn older_calls_are_open_calls() {
    let text = |snapshot: &Snapshot| {
        let mut out = Vec::new();
        text::report(
            snapshot,
            &diagnose(snapshot),
            &TextOptions { verbose: true, ..TextOptions::default() },
            &mut out,
        )
        .unwrap();
        let text = String::from_utf8(out).unwrap();
        text.split("\n\n").find(|part| part.starts_with("Open calls")).unwrap().to_owned()
    };
    let untraced = |snapshot: &Snapshot| {
        let mut out = Vec::new();
        json::report(snapshot, &diagnose(snapshot), &mut out).unwrap();
        let document: serde_json::Value = serde_json::from_slice(&out).unwrap();
        document["open"]["untraced"].clone()
    };
    let mut story = Story::node();
    story.census(S, &[], &[lists()], &[]).census(5 * S, &[], &[lists()], &[]).read_open(6 * S);
    let snapshot = story.snapshot(6 * S);
    let told = text(&snapshot);
    assert!(told.starts_with("Open calls   3 open, oldest first"), "{told}");
    assert!(told.contains(&format!("≥ 4.0 s  containerd {CONTAINERD}  3 × ListContainers")), "{told}");
    let untraced_now = untraced(&snapshot);
    assert_eq!((&untraced_now[0]["count"], &untraced_now[0]["age_ns"]), (&3.into(), &(4 * S).into()));
    assert_eq!(
        (&untraced_now[0]["operation"], &untraced_now[0]["at_least"]),
        (&"ListContainers".into(), &true.into())
    );
    // One of them is traced: it has an exact age of its own.
    let traced = lists().goids[0];
    story.begin(Layer::Handler, "ListContainers", traced, 10, 0).read_open(6 * S);
    let snapshot = story.snapshot(6 * S);
    assert!(text(&snapshot).contains("2 × ListContainers"), "{}", text(&snapshot));
    assert_eq!((&untraced(&snapshot)[0]["count"], &untraced(&snapshot)[0]["age_ns"]), (&2.into(), &0.into()));
    // All have ended.
    story
        .end(Layer::Handler, "ListContainers", traced, 7 * S, 0)
        .census(8 * S, &[], &[], &[])
        .read_open(9 * S);
    let told = text(&story.snapshot(9 * S));
    assert_eq!(told, "Open calls   none older than 1 s (0 in progress)");
}

/// A request on a goroutine.
#[derive(Clone, Debug)]
struct Truth {
    pid: u32,
    goid: u64,
    from: u64,
    to: u64,
    frames: Vec<&'static str>,
}

/// Requests one after the other on one goroutine: each begins so long after the last one, and takes so long.
fn in_turn(pid: u32, goid: u64, frames: &[&'static str], times: &[(u64, u64)]) -> Vec<Truth> {
    let mut now = 0;
    let mut all = Vec::new();
    for (pause, takes) in times {
        let from = now + pause;
        now = from + takes;
        all.push(Truth { pid, goid, from, to: now, frames: frames.to_vec() });
    }
    all
}

/// A look: when, how long, where in it a goroutine is read, and how much of its wait a collection has seen.
type Look = (u64, u64, u64, Option<u64>);

fn seen(truth: &Truth, (ns, took, share, parked): Look) -> Option<GoroutineGroup> {
    let moment = ns + took * share / 100;
    let parked = parked.filter(|_| truth.from < ns).map(|share| truth.from + (ns - truth.from) * share / 100);
    let found = (truth.from..truth.to).contains(&moment);
    found.then(|| GoroutineGroup {
        parked_by_ns: parked.map(|ns| at(ns).0),
        ..group(&[truth.goid], "select", &truth.frames)
    })
}

/// What happens on the node, as the stream tells it, up to `now`.
fn told(all: &[Truth], looks: &[Look], reads: &[u64], now: u64) -> Story {
    let mut story = probed();
    let mut reads = reads.iter().filter(|read| **read <= now).peekable();
    for each in looks.iter().filter(|look| look.0 + look.1 <= now) {
        while let Some(read) = reads.next_if(|read| **read <= each.0 + each.1) {
            let relists =
                all.iter().filter(|truth| truth.pid == KUBELET).flat_map(|truth| [truth.from, truth.to]);
            hits(
                &mut story,
                *read,
                relists.filter(|moment| (0..=*read).contains(moment) && *moment > 0).count() as u64,
            );
        }
        for pid in [KUBELET, CONTAINERD] {
            let groups = all.iter().filter(|truth| truth.pid == pid).filter_map(|truth| seen(truth, *each));
            look(&mut story, pid, (each.0, each.1), groups.collect());
        }
        end_of_round(&mut story, each.0, each.0 + each.1);
    }
    story
}

fn times() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let takes = prop_oneof![3 => 0..2 * S, 1 => 0..100 * S];
    prop::collection::vec((0..8 * S, takes), 1..12)
}

fn a_look() -> impl Strategy<Value = Look> {
    (100 * MS..80 * S, 0..700 * MS, 0..100u64, prop::option::of(0..100u64))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// No age that is "at least" exceeds the truth: of relists, of handlers, of workers that serve one after the other.
    #[test]
    fn no_age_exceeds_the_truth(
        relists in times(),
        workers in times(),
        handlers in prop::collection::vec((0..60 * S, 0..60 * S), 1..10),
        mut looks in prop::collection::vec(a_look(), 1..8),
        mut reads in prop::collection::vec(0..80 * S, 0..8),
        nows in prop::collection::vec(0..90 * S, 3),
    ) {
        let mut all = in_turn(KUBELET, PLEG, &[RELIST], &relists);
        all.extend(in_turn(CONTAINERD, 7, &[LIST, WORKER], &workers));
        for (goid, one) in (100..).zip(&handlers) {
            all.extend(in_turn(CONTAINERD, goid, &[LIST], std::slice::from_ref(one)));
        }
        // Rounds come one after the other.
        looks.sort_unstable();
        let mut free = 0;
        for look in &mut looks {
            look.0 = look.0.max(free);
            free = look.0 + look.1 + 1;
        }
        reads.sort_unstable();
        for now in nows {
            let Some(last) = looks.iter().rfind(|look| look.0 + look.1 <= now) else { continue };
            let snapshot = told(&all, &looks, &reads, now).snapshot(now);
            for Request { pid, goids, since, .. } in &snapshot.census.requests {
                let moment = last.0 + last.1 * last.2 / 100;
                let of = |truth: &&Truth| (truth.pid, truth.goid) == (*pid, goids[0]);
                let truth = all.iter().filter(of).find(|truth| (truth.from..truth.to).contains(&moment)).unwrap();
                prop_assert!(since.at_least);
                prop_assert!(since.ns <= truth.to.min(now) - truth.from, "{since:?} of {truth:?} at {now}");
            }
        }
    }
}
