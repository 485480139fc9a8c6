//! What the pipeline makes of stories about nodes: who is held up, who is not, and when that cannot be told.

use plegtrace::{
    correlate::{Caller, Joins, LastList, ListOutcome, Side, Snapshot},
    decode::MonoNs,
    diagnose::{Doubt, Reason as Why, Verdict, diagnose},
    input::{
        Armed, CensusFact, Command, Component, Fact, GoroutineGroup, GoroutinesFact, InFlight, Layer,
        Liveness, ProcessFact, RefusedFact, Unanswered,
    },
    render::text,
    span::violation,
};
use plegtrace_common::{
    reason::Reason,
    rec::{CALL_FAILED, CALL_OK, CALL_RESTARTED, CALL_UNWOUND, PROCESS_EXECED, PROCESS_INIT},
    role::Role,
};
use plegtrace_tests::found::{group, process, stopped};
use plegtrace_tests::life::Life as _;
use plegtrace_tests::story::{CONTAINERD, KUBELET, MS, PLEG, S, Story, at};

pub(super) fn reasons(snapshot: &Snapshot) -> Vec<&'static str> {
    let diagnosis = diagnose(snapshot);
    assert_eq!(diagnosis.verdict, Verdict::Stall, "{:?}", diagnosis.doubts);
    diagnosis.reasons.iter().map(Why::name).collect()
}

fn doubts(snapshot: &Snapshot) -> Vec<&'static str> {
    let diagnosis = diagnose(snapshot);
    assert_eq!(diagnosis.verdict, Verdict::CannotTell, "{:?}", diagnosis.reasons);
    diagnosis.doubts.iter().map(Doubt::name).collect()
}

pub(super) fn healthy(snapshot: &Snapshot) -> bool {
    diagnose(snapshot).verdict == Verdict::Healthy
}

fn count(snapshot: &Snapshot, side: Side, operation: &str) -> (u64, u64) {
    let mine = snapshot.rows.iter().filter(|row| row.key.side == side && row.key.operation == operation);
    mine.fold((0, 0), |(all, failed), row| (all + row.latency.count(), failed + row.failed))
}

/// A healthy node is healthy, and its tables, phases and trees have the figures of the story.
#[test]
fn healthy_node() {
    let mut story = Story::node();
    story.relist(0, 0).relist(S, 2).relist(2 * S, 0).read_open(3 * S);
    let snapshot = story.snapshot(3 * S);
    assert!(healthy(&snapshot));
    assert_eq!(snapshot.window.ns(), 3 * S);
    assert_eq!(snapshot.last_list, LastList::At(at(2 * S)));
    assert_eq!(count(&snapshot, Side::Counted, "ListContainers"), (3, 0));
    assert_eq!(count(&snapshot, Side::Server, "PodSandboxStatus"), (2, 0));
    assert_eq!(count(&snapshot, Side::Bare, "ListContainers"), (0, 0), "they lie in counted calls");
    let busy = &snapshot.relists[1];
    assert_eq!((busy.calls, busy.status_pods, busy.interval_ns), (6, 2, Some(S)));
    assert_eq!((busy.list, busy.list_ns), (ListOutcome::Ok, Some(3 * MS - 10_000)));
    assert_eq!(busy.root().walk().count(), 1 + 1 + 2 + 3 * 6);
    assert_eq!(snapshot.joins, Joins { joined: 10, ..Joins::default() });
    assert!(
        snapshot.relists.iter().all(|relist| violation(relist.root()).is_none() && relist.tree.misfits == 0)
    );
}

/// A list that hangs is named while it hangs; given up, it leaves a failed relist and an abandoned handler, and the age
/// of the last successful list grows.
#[test]
fn hanging_list() {
    let mut story = Story::node();
    story.relist(0, 0).relist_hangs(S).read_open(32 * S);
    let during = story.snapshot(32 * S);
    assert_eq!(reasons(&during), ["relist_open", "list_stale", "calls_open"]);
    let why = diagnose(&during).reasons;
    assert_eq!(
        why[0],
        Why::RelistOpen { age_ns: 31 * S, waiting_in: Some("ListContainers".into()), of_pod: false }
    );
    assert_eq!(during.relists[1].list, ListOutcome::Pending);
    let handler = during.open.iter().find(|call| call.span.layer() == Layer::Handler).unwrap();
    assert_eq!(handler.caller, Caller::Waiting);
    assert_eq!(during.relists[1].root().walk().last().unwrap().component(), Component::Containerd);

    story.list_times_out(121 * S).read_open(123 * S);
    let after = story.snapshot(125 * S);
    assert_eq!(reasons(&after), ["list_stale", "abandoned_handlers"]);
    assert_eq!((after.relists[1].list, after.relists[1].failed_calls), (ListOutcome::Failed, 1));
    assert_eq!(after.open.len(), 1);
    assert_eq!(after.open[0].caller, Caller::Gone(at(121 * S)));
    assert!(after.open[0].is_abandoned(after.now));
    assert_eq!(
        after.last_list.age(after.now).unwrap().ns - during.last_list.age(during.now).unwrap().ns,
        93 * S
    );
}

/// Operations that take long by nature are no stall.
#[test]
fn slow_by_nature() {
    let mut story = Story::node();
    story.begin(Layer::KubeletCall, "PullImage", 5, 900, 0).begin(Layer::KubeletCall, "ExecSync", 6, 900, 0);
    story.begin(Layer::KubeletCall, "RunPodSandbox", 7, 900, 30 * S).relist(50 * S, 0).read_open(51 * S);
    assert!(healthy(&story.snapshot(51 * S)));
    story.relist(199 * S, 0).read_open(200 * S);
    let late = story.snapshot(200 * S);
    let reasons = diagnose(&late).reasons;
    assert_eq!(reasons.len(), 1, "RunPodSandbox, not PullImage nor ExecSync: {reasons:?}");
}

/// A hook without a time-out, and a pod that drains for ten minutes: listed, and no stall, whatever their age.
#[test]
fn no_deadline_is_over() {
    let mut story = Story::node();
    for layer in [Layer::KubeletCall, Layer::KubeletClient, Layer::Handler] {
        story.hook(layer, "StopContainer");
    }
    for (goid, operation) in [(5, "ExecSync"), (6, "StopContainer")] {
        story.begin(Layer::KubeletClient, operation, goid, 900, 0);
        story.begin(Layer::Handler, operation, 70 + goid, 700, MS);
    }
    story.relist(599 * S, 0).read_open(600 * S);
    let snapshot = story.snapshot(600 * S);
    assert!(healthy(&snapshot), "{:?}", diagnose(&snapshot));
    assert_eq!(snapshot.open.len(), 4);
    // The kubelet gives up the stop: then it is held up, by whatever.
    story.end(Layer::KubeletClient, "StopContainer", 6, 720 * S, CALL_FAILED);
    story.relist(721 * S, 0).read_open(722 * S);
    assert_eq!(reasons(&story.snapshot(722 * S)), ["abandoned_handlers"]);
}

/// A kubelet that follows events keeps a stream open and, before 1.37, lists every five minutes. That is no stall, and no health
/// either before such an interval was seen. A list that is due and does not come is a stall, and so it is when lists follow each
/// other beside a stream of somebody else, and since 1.37, when a kubelet lists each second all the same.
#[test]
fn a_kubelet_that_follows_events() {
    let mut story = Story::node();
    story.hook(Layer::Handler, "GetContainerEvents").hook(Layer::KubeletClient, "GetContainerEvents");
    story.begin(Layer::Handler, "GetContainerEvents", 70, 700, 0).read_open(8 * S);
    // Anybody can ask for events, as `crictl events` does: without a relist nothing is known of the kubelet.
    assert_eq!(doubts(&story.snapshot(8 * S)), ["no_relist"]);
    story.begin(Layer::KubeletClient, "GetContainerEvents", 9, 900, 0).read_open(8 * S);
    let waiting = story.snapshot(8 * S);
    assert_eq!(doubts(&waiting), ["pace_unknown"]);
    let page = headline(&waiting);
    assert!(page.contains("in 8.0 s") && page.contains("before Kubernetes 1.37"), "{page}");
    story.relist(10 * S, 0).read_open(15 * S);
    assert!(healthy(&story.snapshot(15 * S)));
    assert_eq!(doubts(&story.read_open(300 * S).snapshot(300 * S)), ["pace_unknown"]);
    assert_eq!(reasons(&story.snapshot(330 * S)), ["list_stale"], "not even every five minutes");
    story.relist(310 * S, 0).read_open(600 * S);
    assert!(healthy(&story.snapshot(600 * S)), "it lists seldom, as was seen");
    let late = story.snapshot(630 * S);
    assert_eq!(reasons(&late), ["list_stale"]);
    assert_eq!(late.pace().threshold_ns, 600 * S);
    story.relist(631 * S, 0).relist(632 * S, 0).read_open(645 * S);
    assert_eq!(reasons(&story.snapshot(645 * S)), ["list_stale"], "it has gone back to lists");
    let mut always = Story::blank();
    always.start().target(Component::Kubelet, KUBELET, "1.37.1").target(
        Component::Containerd,
        CONTAINERD,
        "2.4.0",
    );
    let armed = Armed { mode: "uprobe_multi".into(), sites: 112, took_ns: 9 * MS, hooks: None };
    always.hooks().fact(0, &Fact::Armed(armed));
    always.hook(Layer::KubeletClient, "GetContainerEvents");
    always.begin(Layer::KubeletClient, "GetContainerEvents", 9, 900, 0).read_open(8 * S);
    assert_eq!(doubts(&always.snapshot(8 * S)), ["no_relist"]);
    always.relist(10 * S, 0).read_open(25 * S);
    assert_eq!(reasons(&always.snapshot(25 * S)), ["list_stale"]);
    let mut other = Story::node();
    other.hook(Layer::Handler, "GetContainerEvents").begin(Layer::Handler, "GetContainerEvents", 70, 700, 0);
    other.relist(S, 0).relist(2 * S, 0).read_open(20 * S);
    assert_eq!(reasons(&other.snapshot(20 * S)), ["list_stale"]);
}

fn headline(snapshot: &Snapshot) -> String {
    text::headline(snapshot, &diagnose(snapshot))
}

/// A kubelet that does not run, on a node that has one, is a stall; without a trace of one nothing can be told.
#[test]
fn stopped_kubelet() {
    let mut story = Story::blank();
    story
        .start()
        .target(Component::Containerd, CONTAINERD, "1.6.20")
        .presence(Component::Dockerd, "/var/lib/docker");
    assert_eq!(doubts(&story.snapshot(5 * S))[0], "no_kubelet");
    story.presence(Component::Kubelet, "/var/lib/kubelet");
    let snapshot = story.snapshot(5 * S);
    assert_eq!(
        reasons(&snapshot),
        ["down"],
        "the directory Docker left behind is no stall while a runtime runs"
    );
}

/// A runtime that is restarted takes its open calls with it and is not down; one that stays away is.
#[test]
fn restarted_containerd() {
    let mut story = Story::node();
    story.relist(0, 0).relist_hangs(S).read_open(2 * S).exit(3 * S, CONTAINERD, 9);
    let down = story.snapshot(3 * S);
    assert!(reasons(&down).contains(&"down"));
    assert!(down.open.iter().all(|call| call.span.id.tgid != CONTAINERD));
    assert_eq!(down.closed_unseen.process_exited, 1);
    story.gone(3 * S, Component::Containerd, CONTAINERD, "restarted as pid 999 from the same binary");
    story
        .target(Component::Containerd, 999, "1.6.20")
        .list_times_out(4 * S)
        .relist(5 * S, 0)
        .read_open(6 * S);
    assert!(healthy(&story.snapshot(6 * S)));
}

/// Lost records forbid "healthy", but not to name what is open; what is merely counted forbids nothing.
#[test]
fn lost_events() {
    let mut story = Story::node();
    story.relist(0, 0).counted(S, Reason::StartRepeated, 5).read_open(S);
    assert!(healthy(&story.snapshot(S)));
    story.counted(S, Reason::RingFull, 7);
    let snapshot = story.snapshot(20 * S);
    assert_eq!(doubts(&snapshot), ["lost"], "the last list may be among the lost");
    story.relist_hangs(21 * S).read_open(30 * S);
    assert_eq!(reasons(&story.snapshot(30 * S))[0], "relist_open");
}

/// Without a relist there is no verdict, nor without the open calls.
#[test]
fn nothing_to_judge_by() {
    let mut story = Story::node();
    assert_eq!(doubts(&story.snapshot(S)), ["no_relist", "open_unread"]);
    story.relist(0, 0);
    assert_eq!(doubts(&story.snapshot(S)), ["open_unread"]);
    story.fact(
        S,
        &Fact::InFlight(InFlight { at_ns: at(S).0, calls: Vec::new(), complete: false, parkers: Vec::new() }),
    );
    assert_eq!(doubts(&story.snapshot(S)), ["open_unread"]);
}

/// A call that a panic skipped is no finished call and no open one; it is counted.
#[test]
fn unwound_by_a_panic() {
    let mut story = Story::node();
    story.begin(Layer::KubeletCall, "ContainerStatus", PLEG, 900, 100).relist(1000, 0).read_open(S);
    let open = story.snapshot(S);
    assert_eq!((open.open.len(), open.closed_unseen.unwound), (0, 1));
    story.end(Layer::KubeletCall, "ContainerStatus", PLEG, 2 * S, CALL_UNWOUND);
    let ended = story.snapshot(2 * S);
    assert_eq!((ended.tally.unwound, ended.closed_unseen.unwound), (1, 0));
    assert_eq!(count(&ended, Side::Counted, "ContainerStatus"), (0, 0));
}

/// An entry whose goroutine is gone is neither open nor finished.
#[test]
fn end_that_was_never_seen() {
    let mut story = Story::node();
    story.relist(0, 0).begin(Layer::Handler, "ExecSync", 7, 700, 0);
    story.open_mut()[0].liveness = Liveness::Over;
    story.read_open(S);
    let snapshot = story.snapshot(S);
    assert_eq!((snapshot.open.len(), snapshot.closed_unseen.ended_unseen), (0, 1));
}

/// A start that fires twice because the stack grows is one call.
#[test]
fn double_start() {
    let mut story = Story::node();
    story.call(Layer::KubeletCall, "ListContainers", (7, 900), 0, MS, CALL_OK | CALL_RESTARTED);
    let snapshot = story.snapshot(S);
    assert_eq!((count(&snapshot, Side::Counted, "ListContainers"), snapshot.tally.restarted), ((1, 0), 1));
}

/// A handler that fits into two client calls is shown below neither.
#[test]
fn ambiguous_handlers() {
    let mut story = Story::node();
    story.call(Layer::KubeletClient, "ListContainers", (7, 1000), 0, 10 * MS, CALL_OK).relist(MS, 0);
    let snapshot = story.snapshot(S);
    assert_eq!(snapshot.joins, Joins { joined: 1, ambiguous: 1, ..Joins::default() });
    let handlers = snapshot.relists[0].root().walk().filter(|span| span.layer() == Layer::Handler);
    assert_eq!(handlers.map(plegtrace::span::Span::operation).collect::<Vec<_>>(), ["ListPodSandbox"]);
    assert_eq!(count(&snapshot, Side::Bare, "ListContainers"), (1, 0), "the one outside a counted call");
}

/// Records that arrive out of order give the same trees and tables.
#[test]
fn out_of_order() {
    let mut story = Story::node();
    story.relist(0, 3).relist(S, 1).relist(2 * S, 0).read_open(3 * S);
    let expected = story.snapshot(3 * S);
    let frames = story.frames_mut();
    let first = frames.iter().position(|frame| frame.kind != plegtrace_common::kind::RecKind::Fact).unwrap();
    frames[first..].reverse();
    let actual = story.snapshot(3 * S);
    assert_eq!(actual.relists, expected.relists);
    assert_eq!(actual.joins, expected.joins);
    assert_eq!(diagnose(&actual).reasons, diagnose(&expected).reasons);
    assert_eq!(diagnose(&actual).verdict, diagnose(&expected).verdict);
}

/// Fast errors count as a stall: the kubelet's timestamp does not move.
#[test]
fn failing_lists() {
    let mut story = Story::node();
    story.relist(0, 0);
    for n in 1..5 {
        let from = n * S;
        story.begin(Layer::Relist, "Relist", PLEG, 100, from);
        story.call(Layer::KubeletCall, "ListPodSandbox", (PLEG, 900), from + 10, from + 20, CALL_FAILED);
        story.end(Layer::Relist, "Relist", PLEG, from + 30, 0);
    }
    story.read_open(5 * S);
    let snapshot = story.snapshot(5 * S);
    assert_eq!(reasons(&snapshot), ["list_stale"]);
    assert_eq!((snapshot.last_list, snapshot.relists.len()), (LastList::At(at(0)), 5));
    assert!(snapshot.relists[1..].iter().all(|relist| relist.list == ListOutcome::Failed));
}

/// A kubelet whose file answers late is probed late: of relists before that, nothing is said.
#[test]
fn relists_are_judged_from_their_probes_on() {
    let mut story = Story::blank();
    story.start().target(Component::Kubelet, KUBELET, "1.20.2");
    story.fact(0, &Fact::Armed(Armed { mode: "uprobe_multi".into(), sites: 0, took_ns: 0, hooks: None }));
    assert_eq!(story.snapshot(19 * S).last_list, LastList::Untraced);
    let hooks =
        [(Layer::Relist, "Relist"), (Layer::ListPhase, "GetPods"), (Layer::KubeletCall, "ListPodSandbox")];
    for (layer, operation) in hooks {
        story.hook_at(20 * S, layer, operation);
    }
    let on = Some(vec![0, 1, 2]);
    story.fact(20 * S, &Fact::Armed(Armed { mode: "uprobe_multi".into(), sites: 12, took_ns: 0, hooks: on }));
    let doubt = Doubt::NoRelist { window_ns: S / 2, period_ns: S };
    let why = diagnose(&story.snapshot(20 * S + S / 2)).doubts;
    assert!(why.contains(&doubt), "{why:?}");
    story.begin(Layer::Relist, "Relist", PLEG, 100, 21 * S);
    story.call(Layer::KubeletCall, "ListPodSandbox", (PLEG, 900), 21 * S + 10, 21 * S + 20, CALL_FAILED);
    story.end(Layer::Relist, "Relist", PLEG, 21 * S + 30, 0).read_open(22 * S);
    let snapshot = story.snapshot(22 * S);
    assert_eq!(
        (reasons(&snapshot), snapshot.last_list),
        (vec!["list_stale"], LastList::NotSince(at(20 * S)))
    );
    assert_eq!((snapshot.window.ns(), snapshot.relist_window.ns()), (22 * S, 2 * S));
}

/// A relist in its status phase already has its list, as the kubelet reckons.
#[test]
fn status_phase_counts_as_listed() {
    let mut story = Story::node();
    story.relist(0, 0).begin(Layer::Relist, "Relist", PLEG, 100, S);
    story.call(Layer::ListPhase, "GetPods", (PLEG, 300), S + 10, S + MS, CALL_OK);
    story.begin(Layer::StatusPhase, "updateCache", PLEG, 300, S + 2 * MS);
    story.begin(Layer::KubeletCall, "PodSandboxStatus", PLEG, 900, S + 3 * MS).read_open(9 * S);
    let snapshot = story.snapshot(9 * S);
    assert_eq!(snapshot.last_list, LastList::At(at(S)));
    let reasons = diagnose(&snapshot).reasons;
    assert_eq!(
        reasons[..],
        [Why::RelistOpen { age_ns: 8 * S, waiting_in: Some("PodSandboxStatus".into()), of_pod: false }]
    );
}

/// A call of a hook that nobody announced is counted as lost, not dropped in silence.
#[test]
fn unknown_hooks_are_counted() {
    let mut story = Story::node();
    story.relist(0, 0).begin(Layer::KubeletCall, "ExecSync", 7, 900, 0);
    let mut call = story.open_mut().pop().unwrap();
    call.hook = 400;
    story.record(&call, MS, CALL_OK).read_open(S);
    let snapshot = story.snapshot(S);
    assert_eq!(doubts(&snapshot), ["lost"]);
    assert_eq!(snapshot.real_losses().map(|loss| loss.reason.as_str()).collect::<Vec<_>>(), ["unknown_hook"]);
    assert_eq!(snapshot.window.from, Some(MonoNs(at(0).0)));
    assert!(snapshot.targets.iter().any(|target| target.fact.pid == KUBELET));
}

/// Without a census, with one that never comes to its end, or without the goroutines of the runtime, nobody knows what
/// was stuck before the probes: the node is not called healthy.
#[test]
fn nobody_looked_at_what_was_stuck_before() {
    let told = |facts: &[Fact]| {
        let mut story = Story::node();
        story.relist(0, 0).relist(S, 0).read_open(2 * S);
        for fact in facts {
            story.fact(2 * S, fact);
        }
        story.snapshot(2 * S)
    };
    let census = |cut, unanswered: &[Unanswered]| {
        Fact::Census(CensusFact { cut, unanswered: unanswered.to_vec(), ..CensusFact::default() })
    };
    let refused = Fact::Refused(RefusedFact {
        source: "census".into(),
        component: None,
        what: "census".into(),
        why: "left out by --sources".into(),
        matters: true,
    });
    assert_eq!(doubts(&told(&[refused])), ["no_census"]);
    let late = RefusedFact {
        source: "uprobes".into(),
        component: Some(Component::Kubelet),
        what: "/usr/bin/kubelet".into(),
        why: "its file was not read within 5 s".into(),
        matters: true,
    };
    let other = RefusedFact { component: Some(Component::Containerd), ..late.clone() };
    let left = |admitted: &RefusedFact| {
        told(&[Fact::Refused(late.clone()), Fact::Admitted(admitted.clone())]).refused.len()
    };
    assert_eq!((left(&late), left(&other)), (0, 1), "what is probed late is refused no longer");
    assert_eq!(doubts(&told(&[census(true, &[])])), ["census_cut"]);
    assert!(healthy(&told(&[census(false, &[]), census(true, &[])])), "what the whole one found is kept");
    let late = |pid| Unanswered {
        pid,
        comm: "containerd".into(),
        what: "goroutines".into(),
        why: "no answer within 900 ms".into(),
    };
    assert_eq!(doubts(&told(&[census(false, &[late(CONTAINERD)])])), ["goroutines_unread"]);
    assert_eq!(doubts(&told(&[census(false, &[late(KUBELET)])])), ["goroutines_unread"]);
    assert!(healthy(&told(&[census(false, &[late(CONTAINERD + 1)])])), "another program");
    let looked = |pid, total, unread, groups_left_out| {
        let component = if pid == KUBELET { Component::Kubelet } else { Component::Containerd };
        let version = "go1.19.8".to_owned();
        Fact::Goroutines(GoroutinesFact {
            at_ns: at(2 * S).0,
            took_ns: 0,
            pid,
            component,
            go_version: version,
            total,
            unread,
            groups: Vec::new(),
            groups_left_out,
            last_list_ns: None,
        })
    };
    let read = |total, unread, left| {
        let looks = [looked(KUBELET, total, unread, left), looked(CONTAINERD, 90, 0, 0), census(false, &[])];
        diagnose(&told(&looks)).doubts.iter().map(Doubt::name).collect::<Vec<_>>()
    };
    assert_eq!(read(300_000, 150_000, 0), ["goroutines_unread"], "half of them is not read");
    assert_eq!(read(5_000, 0, 1), ["goroutines_unread"], "whatever is in that group");
    assert_eq!((read(20, 5, 0), read(5_000, 40, 0)), (vec![], vec![]), "some always run");
}

/// A kubelet keeps when its last list succeeded. Read from its memory it tells of a stall that began before any probe, to the
/// second; what is seen later counts more, what was read earlier never less.
#[test]
fn the_kubelets_own_clock() {
    let before = at(0).0 - S;
    let read = |list: Option<u64>| {
        Fact::Goroutines(GoroutinesFact {
            at_ns: at(S).0,
            took_ns: 0,
            pid: KUBELET,
            component: Component::Kubelet,
            go_version: "go1.24.4".to_owned(),
            total: 90,
            unread: 0,
            groups: Vec::new(),
            groups_left_out: 0,
            last_list_ns: list,
        })
    };
    let mut story = Story::node();
    story.relist_hangs(0).read_open(119 * S);
    assert_eq!(story.snapshot(119 * S).last_list, LastList::NotSince(at(0)));
    story.fact(2 * S, &read(Some(before)));
    let snapshot = story.snapshot(119 * S);
    assert_eq!(snapshot.last_list, LastList::At(MonoNs(before)));
    let coming = diagnose(&snapshot).predictions;
    assert!(
        coming.iter().any(|text| text.contains("PLEG is not healthy") && text.contains("in 60.0 s")),
        "{coming:?}"
    );
    story.fact(3 * S, &read(None));
    assert_eq!(story.snapshot(120 * S).last_list, LastList::At(MonoNs(before)), "once read, it is known");
    let mut seen = Story::node();
    seen.relist(0, 0).fact(2 * S, &read(Some(before)));
    assert_eq!(seen.snapshot(3 * S).last_list, LastList::At(at(0)));
}

/// A stream of events that is older than the probes is the kubelet's when its own goroutine says so. It stays known when
/// goroutines are no longer looked at, and a relist that hangs is told all the same.
#[test]
fn an_old_stream_of_events() {
    let client = ["k8s.io/cri-client/pkg.(*remoteRuntimeService).GetContainerEvents"];
    let stream = group(&[9], "IO wait", &client);
    let handler = group(
        &[70],
        "select",
        &["k8s.io/cri-api/pkg/apis/runtime/v1._RuntimeService_GetContainerEvents_Handler"],
    );
    let told = |kubelet: &[GoroutineGroup]| {
        let mut story = Story::node();
        story.census(S, &[], std::slice::from_ref(&handler), kubelet).read_open(20 * S);
        story
    };
    assert_eq!(doubts(&told(&[]).snapshot(20 * S)), ["no_relist"], "somebody else's");
    let mut own = told(std::slice::from_ref(&stream));
    assert_eq!(doubts(&own.snapshot(20 * S)), ["pace_unknown"]);
    own.fact(15 * S, &Fact::Census(CensusFact { began_ns: at(15 * S).0, ..CensusFact::default() }));
    assert_eq!(doubts(&own.snapshot(20 * S)), ["pace_unknown"]);
    let relist = group(&[PLEG], "select", &["k8s.io/kubernetes/pkg/kubelet/pleg.(*GenericPLEG).Relist"]);
    assert_eq!(doubts(&told(&[stream, relist]).snapshot(20 * S)), ["pace_unknown"]);
}

/// What a person typed is shown, and is nothing that holds up the node, however long it lasts and whoever stopped it.
#[test]
fn typed_by_hand() {
    let exec = Command::Runc { sub: "exec".into(), container: Some("c1".into()), bundle: None };
    let typed = |by_hand: Option<&str>, births: bool| {
        let runc = ProcessFact { command: Some(exec.clone()), ..process(Component::Runc, 77, 4_000, 0) };
        let runc = ProcessFact { by_hand: by_hand.map(str::to_owned), ..runc };
        let init = ProcessFact { pid: 78, parent: 77, command: None, ..stopped(runc.clone()) };
        let mut story = Story::node();
        for second in 0..30 {
            story.relist(second * S, 0);
        }
        story.census(S, &[runc.clone(), init.clone()], &[], &[]).census(29 * S, &[runc, init], &[], &[]);
        if births {
            story.found(77, Role::Runc).exec(77, Role::Runc, PROCESS_EXECED, 4 * S).told(77, &exec);
            story.fork(77, 78, 4 * S).exec(78, Role::Runc, PROCESS_EXECED | PROCESS_INIT, 4 * S);
            story.read_processes(30 * S);
        }
        story.read_open(30 * S);
        story.snapshot(30 * S)
    };
    assert!(!reasons(&typed(None, false)).is_empty(), "the node's own is late");
    assert!(healthy(&typed(Some("bash"), true)), "{:?}", diagnose(&typed(Some("bash"), true)));
    let by_hand = typed(Some("bash"), false);
    assert!(healthy(&by_hand), "{:?}", diagnose(&by_hand));
    let mut page = Vec::new();
    text::report(
        &by_hand,
        &diagnose(&by_hand),
        &text::TextOptions { verbose: true, ..text::TextOptions::default() },
        &mut page,
    )
    .unwrap();
    let page = String::from_utf8(page).unwrap();
    assert!(page.contains("\nTyped by hand   2 running, not the node's own\n"), "{page}");
    assert!(page.contains("  77  runc exec of c1  bash"), "{page}");
}
