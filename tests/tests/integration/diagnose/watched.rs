//! "Healthy" is said of what probes that are on have seen. What was only planned, what came off, and what the process before saw is no
//! evidence.

use plegtrace::correlate::{HookState, Snapshot};
use plegtrace::diagnose::{Doubt, Reason, Verdict, diagnose};
use plegtrace::input::{
    Armed, CensusFact, Component, Fact, GoroutineGroup, GoroutinesFact, Layer, MessagesFact, ProcessFact,
    RefusedFact, TargetGone,
};
use plegtrace_common::rec::CALL_FAILED;
use plegtrace_tests::found::{group, process};
use plegtrace_tests::recordings::text_of;
use plegtrace_tests::story::{CONTAINERD, KUBELET, PLEG, S, Story, at};

/// The kernel did not let the probes of this executable be attached.
fn refused(component: Component) -> Fact {
    Fact::Refused(RefusedFact {
        source: "uprobes".into(),
        component: Some(component),
        what: format!("/usr/bin/{}", component.name()),
        why: "the file changed since it was analysed".into(),
        matters: true,
    })
}

/// The goroutine of a kubelet that follows events.
fn stream() -> [GoroutineGroup; 1] {
    [group(&[9], "IO wait", &["k8s.io/cri-client/pkg.(*remoteRuntimeService).GetContainerEvents"])]
}

fn doubts(snapshot: &Snapshot) -> Vec<&'static str> {
    let diagnosis = diagnose(snapshot);
    assert_eq!(diagnosis.verdict, Verdict::CannotTell, "{diagnosis:#?}");
    diagnosis.doubts.iter().map(Doubt::name).collect()
}

fn is_healthy(snapshot: &Snapshot) -> bool {
    diagnose(snapshot).verdict == Verdict::Healthy
}

/// A kubelet that follows events may list seldom, so that none was seen says little, and nothing where none would have been.
#[test]
fn a_kubelet_without_probes_is_not_healthy() {
    let told = |facts: &[Fact]| {
        let mut story = Story::node();
        for fact in facts {
            story.fact(0, fact);
        }
        story.census(S, &[], &[], &stream()).read_open(20 * S).snapshot(20 * S)
    };
    assert_eq!(doubts(&told(&[])), ["pace_unknown"]);
    assert_eq!(doubts(&told(&[refused(Component::Kubelet)])), ["relist_untraced"]);
    let no_site = Fact::Armed(Armed { mode: "uprobe_multi".into(), sites: 0, took_ns: 0, hooks: None });
    assert_eq!(doubts(&told(&[no_site])), ["relist_untraced", "calls_untraced"]);
    assert_eq!(
        doubts(&told(&[refused(Component::Kubelet), refused(Component::Containerd)])),
        ["relist_untraced", "calls_untraced"]
    );
}

/// A program that is newer than the catalogue: none of its functions shows a kind of calls. Nobody is healthy because of that, and the
/// report says so; nor is it said of a successor that has them.
#[test]
fn a_program_that_is_newer_than_the_catalogue() {
    let told = |what: &str, armed: Option<Vec<u32>>| {
        let mut story = Story::node();
        let why = "newer than this plegtrace knows: none found in /usr/bin/kubelet";
        let newer = RefusedFact {
            source: "catalogue".into(),
            component: Some(Component::Kubelet),
            what: what.into(),
            why: why.into(),
            matters: true,
        };
        let armed = Armed { mode: "uprobe_multi".into(), sites: 9, took_ns: 0, hooks: armed };
        story.fact(0, &Fact::Refused(newer)).fact(0, &Fact::Armed(armed));
        story.relist(S, 0).relist(2 * S, 0).census(2 * S, &[], &[], &[]).read_open(3 * S).snapshot(3 * S)
    };
    let probe = |snapshot: &Snapshot, layer: Layer| {
        let of = |state: &&HookState| state.hook.layer != layer || state.hook.component != Component::Kubelet;
        snapshot.hooks.iter().filter(of).map(|state| state.hook.index).collect::<Vec<u32>>()
    };
    let counted = "calls that the kubelet counts";
    let known = told(counted, None);
    assert!(is_healthy(&known), "what is seen is known");
    let others = probe(&known, Layer::KubeletCall);
    let newer = told(counted, Some(others));
    assert_eq!(doubts(&newer), ["newer_than_known"]);
    let text = text_of(&newer, true).unwrap();
    let said = "this kubelet is newer than this plegtrace knows: no calls that the kubelet counts found";
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains(said), "{text}");
}

/// Relists alone, whose lists succeed, do not tell that no pod is held up. A handler of the runtime would, and so would the kubelet's
/// own connection.
#[test]
fn without_cri_calls_nobody_is_healthy() {
    let told = |tell: &dyn Fn(&mut Story)| {
        let mut story = Story::blank();
        story.start().target(Component::Kubelet, KUBELET, "1.20.2");
        story.target(Component::Containerd, CONTAINERD, "1.6.20");
        let layers =
            [(Layer::Relist, "Relist"), (Layer::ListPhase, "GetPods"), (Layer::StatusPhase, "updateCache")];
        for (layer, operation) in layers {
            story.hook(layer, operation);
        }
        tell(&mut story);
        story.fact(0, &Fact::Armed(Armed { mode: "uprobe_multi".into(), sites: 8, took_ns: 0, hooks: None }));
        for n in 0..5 {
            story.begin(Layer::Relist, "Relist", PLEG, 100, n * S);
            story.call(Layer::ListPhase, "GetPods", (PLEG, 300), n * S + 1, n * S + 9, 0);
            story.call(Layer::StatusPhase, "updateCache", (PLEG, 300), n * S + 10, n * S + 19, 0);
            story.end(Layer::Relist, "Relist", PLEG, n * S + 20, 0);
        }
        story.read_open(5 * S).snapshot(5 * S)
    };
    let wire = |story: &mut Story| {
        story.request(3, "runtime.v1.RuntimeService/ListContainers", S, S + 9);
        let reading = MessagesFact { at_ns: at(5 * S).0, open: Vec::new(), complete: true };
        story.fact(5 * S, &Fact::Requests(reading));
    };
    let came_off = |story: &mut Story| {
        wire(story);
        let why = "the node makes more system calls than are allowed".into();
        let source = "wire".to_owned();
        let fact = RefusedFact { source: source.clone(), component: None, what: source, why, matters: true };
        story.fact(5 * S, &Fact::Refused(fact));
    };
    assert_eq!(doubts(&told(&|_| ())), ["calls_untraced"]);
    assert_eq!(doubts(&told(&came_off)), ["calls_untraced"]);
    let seen = |tell: &dyn Fn(&mut Story)| {
        let snapshot = told(tell);
        assert!(is_healthy(&snapshot), "{:#?}", diagnose(&snapshot));
        text_of(&snapshot, true).unwrap()
    };
    for text in [
        seen(&|story| {
            story.hook(Layer::Handler, "ListContainers");
        }),
        seen(&wire),
    ] {
        assert!(text.contains("\n  watched   relists, CRI calls\n"), "{text}");
    }
}

/// Which hooks are on is told each time that it changes. Those of a story's node: the relist, two of its phases, three for each method.
fn on(hooks: &[u32]) -> Fact {
    let sites = hooks.len() as u32;
    Fact::Armed(Armed { mode: "uprobe_multi".into(), sites, took_ns: 0, hooks: Some(hooks.to_vec()) })
}

/// What was only planned is neither watched, nor is it said to be.
#[test]
fn what_is_on_is_told() {
    let told = |on: Fact| {
        let mut story = Story::node();
        story.fact(0, &on);
        for n in 0..5 {
            story.relist(n * S, 0);
        }
        story.read_open(5 * S).snapshot(5 * S)
    };
    let all: Vec<u32> = (0..27).collect();
    assert!(is_healthy(&told(on(&all))));
    assert_eq!(doubts(&told(on(&all[1..]))), ["relist_untraced"]);
    assert_eq!(doubts(&told(on(&all[..3]))), ["calls_untraced"]);
    assert_eq!(doubts(&told(on(&[]))), ["relist_untraced", "calls_untraced"]);
}

/// A kubelet was replaced by one in which no probe can be set: what the first one did says nothing of the second, be it good or bad.
#[test]
fn the_relists_of_another_kubelet_are_no_evidence() {
    let all: Vec<u32> = (0..27).collect();
    let told = |fails: bool, after: &[u32], now: u64| {
        let mut story = Story::node();
        story.fact(0, &on(&all));
        for n in 0..5 {
            if fails {
                story.begin(Layer::Relist, "Relist", PLEG, 100, n * S);
                story.call(
                    Layer::KubeletCall,
                    "ListPodSandbox",
                    (PLEG, 900),
                    n * S + 1,
                    n * S + 2,
                    CALL_FAILED,
                );
                story.end(Layer::Relist, "Relist", PLEG, n * S + 3, 0);
            } else {
                story.relist(n * S, 0);
            }
        }
        let how = "ended".to_owned();
        let gone = TargetGone { component: Component::Kubelet, pid: KUBELET, how };
        story.fact(6 * S, &Fact::TargetGone(gone));
        story.target_at(6 * S, Component::Kubelet, KUBELET + 1, "1.20.2");
        story.fact(6 * S, &on(&all[1..])).fact(7 * S, &on(after));
        story.read_open(now).snapshot(now)
    };
    for fails in [false, true] {
        assert_eq!(doubts(&told(fails, &all[1..], 100 * S)), ["relist_untraced"], "{fails}");
        assert_eq!(doubts(&told(fails, &all, 8 * S)), ["no_relist"], "{fails}");
    }
    let again = told(false, &all, 8 * S);
    assert_eq!((again.relist_window.ns(), again.relists_now().count()), (S, 0));
}

/// A look at the memory of this kubelet began then: when its last list was, which its health check goes by.
fn look(story: &mut Story, pid: u32, ns: u64, list: i64) {
    let seen = ProcessFact { at_ns: at(ns).0, ..process(Component::Kubelet, pid, 1, 0) };
    let fact = GoroutinesFact {
        at_ns: at(ns).0,
        took_ns: 0,
        pid,
        component: Component::Kubelet,
        go_version: "go1.24.4".into(),
        total: 90,
        unread: 0,
        groups: Vec::new(),
        groups_left_out: 0,
        last_list_ns: at(0).0.checked_add_signed(list),
    };
    let round = CensusFact { began_ns: at(ns).0, ended_ns: at(ns).0, ..CensusFact::default() };
    story.fact(ns, &Fact::Process(seen)).fact(ns, &Fact::Goroutines(fact)).fact(ns, &Fact::Census(round));
}

/// The kubelet itself has not got a list for an hour: that it says so is enough, whether or not a relist was seen to end, or can be.
#[test]
fn the_kubelets_own_clock_is_believed() {
    let hour = 3_600 * S.cast_signed();
    let told = |probed: bool, list: i64, tell: &dyn Fn(&mut Story)| {
        let mut story = Story::node();
        if !probed {
            story.fact(0, &refused(Component::Kubelet));
        }
        look(&mut story, KUBELET, 2 * S, list);
        tell(&mut story);
        story.read_open(5 * S).snapshot(5 * S)
    };
    for probed in [true, false] {
        let snapshot = told(probed, -hour, &|_| ());
        let diagnosis = diagnose(&snapshot);
        let [Reason::ListStale { age, failing: false }] = diagnosis.reasons[..] else {
            panic!("{diagnosis:#?}")
        };
        assert_eq!((diagnosis.verdict, age.ns, age.at_least), (Verdict::Stall, 3_605 * S, false));
        let text = text_of(&snapshot, true).unwrap();
        assert!(text.contains("\nSTALL  last successful list 1 h 0 min ago"), "{text}");
    }
    // A young one, one that has got its list since, one that is gone.
    assert_eq!(doubts(&told(true, -5 * S.cast_signed(), &|_| ())), ["no_relist"]);
    assert!(is_healthy(&told(true, -hour, &|story| {
        story.relist(3 * S, 0);
    })));
    let successor = |story: &mut Story| {
        let gone = TargetGone { component: Component::Kubelet, pid: KUBELET, how: "ended".into() };
        story.fact(3 * S, &Fact::TargetGone(gone)).target_at(
            3 * S,
            Component::Kubelet,
            KUBELET + 1,
            "1.20.2",
        );
    };
    assert_eq!(doubts(&told(true, -hour, &successor)), ["no_relist"]);
}

/// A look says how it was then: after a while without another one nobody knows.
#[test]
fn an_old_look_is_no_stall() {
    let at_the_end = |probed: bool, now: u64| {
        let mut story = Story::node();
        if !probed {
            story.fact(0, &refused(Component::Kubelet));
        }
        look(&mut story, KUBELET, 2 * S, -3_600 * S.cast_signed());
        diagnose(&story.read_open(now).snapshot(now)).verdict
    };
    assert_eq!(at_the_end(false, 60 * S), Verdict::Stall);
    assert_eq!(at_the_end(false, 90 * S), Verdict::CannotTell);
    assert_eq!(at_the_end(true, 90 * S), Verdict::Stall, "a list would have been seen");
}
