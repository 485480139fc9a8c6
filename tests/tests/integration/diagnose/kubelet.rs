//! Causes in the kubelet itself.

use plegtrace::correlate::Snapshot;
use plegtrace::diagnose::{Confidence, Severity, Verdict, diagnose};
use plegtrace::input::{CallError, CensusFact, Component, Fact, Layer, OwnCall, Pressure, RuntimeSays};
use plegtrace_common::rec::CALL_FAILED;
use plegtrace_common::role::Role;
use plegtrace_tests::found::{group, process, relist, stopped};
use plegtrace_tests::life::Life as _;
use plegtrace_tests::story::{CONTAINERD, KUBELET, MS, PLEG, S, Story, at};

use super::{culprit, none, only, seen_twice};

/// A relist in a channel send is the kubelet's own affair; in a call it is not.
#[test]
fn k1_needs_the_channel() {
    let frames = ["runtime.chansend", "k8s.io/kubernetes/pkg/kubelet/pleg.(*GenericPLEG).relist"];
    let sends = group(&[142], "chan send", &frames);
    let mut story = Story::node();
    story.relist(S, 0).relist_sends(3 * S).read_open(12 * S);
    story.census(8 * S, &[], &[], std::slice::from_ref(&sends)).census(12 * S, &[], &[], &[sends]);
    let finding = only(&story.snapshot(12 * S), "K1");
    assert_eq!((culprit(&finding), finding.confidence), (Some(KUBELET), Confidence::High));
    let in_call = seen_twice(12 * S, &[], &[], &[relist()]);
    none(&in_call);
}

/// Many quick status calls, or one slow one.
#[test]
fn k3_needs_many_and_quick() {
    let long = |pods: u64, call: u64| {
        let mut story = Story::node();
        story.relist(S, 0).relist_of(3 * S, pods, call).read_open(20 * S).census(20 * S, &[], &[], &[]);
        story.snapshot(20 * S)
    };
    let finding = only(&long(60, 30 * MS), "K3");
    assert_eq!(finding.severity, Severity::Notice, "it is over");
    assert_eq!(finding.confidence, Confidence::High);
    none(&long(60, 2 * MS));
    none(&long(3, 900 * MS));
    none(&long(21, 1_100 * MS));
    // A runtime that answers each call in a third of a second is starved.
    none(&long(25, 200 * MS));
}

/// Where processors are scarce, the calls may be as many as ever, and the relist long all the same.
#[test]
fn k3_is_doubted_under_pressure() {
    let mut story = Story::node();
    story.relist(S, 0).relist_of(3 * S, 60, 30 * MS).read_open(20 * S);
    let pressure = Some(Pressure { cpu_some_avg10: 8_000, ..Pressure::default() });
    let ns = at(20 * S).0;
    story.fact(
        20 * S,
        &Fact::Census(CensusFact { began_ns: ns, ended_ns: ns, pressure, ..CensusFact::default() }),
    );
    let finding = only(&story.snapshot(20 * S), "K3");
    assert_eq!(finding.confidence, Confidence::Medium);
    assert!(finding.doubts[0].contains("80.00 %"), "{:?}", finding.doubts);
}

/// A kubelet that is stopped after a long relist is stopped: that comes first, whoever waited for the relist.
#[test]
fn k3_takes_no_place_of_k7() {
    let mut story = Story::node();
    story.relist(S, 0).relist_of(3 * S, 60, 30 * MS).read_open(20 * S);
    let kubelet = stopped(process(Component::Kubelet, KUBELET, 1, 0));
    story.census(15 * S, std::slice::from_ref(&kubelet), &[], &[]).census(20 * S, &[kubelet], &[], &[]);
    let finding = only(&story.snapshot(20 * S), "K7");
    assert_eq!((finding.severity, finding.also.as_slice()), (Severity::Stall, &["K3"][..]));
}

/// Of two such relists the one that is open is the stall, though the one before it was longer.
#[test]
fn k3_tells_the_open_one() {
    let mut story = Story::node();
    story.relist(S, 0).relist_of(3 * S, 100, 30 * MS).relist_asks(20 * S, 25, 30 * MS);
    story.read_open(24_500 * MS).census(24_500 * MS, &[], &[], &[]);
    let finding = only(&story.snapshot(24_500 * MS), "K3");
    assert_eq!(finding.severity, Severity::Stall, "{finding:#?}");
    assert!(finding.headline.contains("25 changed pods"), "{}", finding.headline);
}

/// A node whose relists fail from the first second on, and a runtime that answers our own `method` with this error.
fn refused(method: &str, error: Option<(i32, &str)>, fails: bool) -> Snapshot {
    let mut story = Story::node();
    story.relist(0, 0);
    for from in [S, 2 * S, 3 * S] {
        let flags = if fails { CALL_FAILED } else { 0 };
        story.begin(Layer::Relist, "Relist", PLEG, 100, from);
        story.call(Layer::KubeletCall, "ListPodSandbox", (PLEG, 900), from + 10, from + 20, 0);
        story.call(Layer::KubeletCall, "ListContainers", (PLEG, 900), from + 30, from + MS, flags);
        story.end(Layer::Relist, "Relist", PLEG, from + 2 * MS, 0);
    }
    let error = error.map(|(code, message)| CallError { code, message: message.into() });
    let call = |operation: &str, error| {
        let (began_ns, ended_ns) = (at(3 * S).0, Some(at(3 * S + MS).0));
        OwnCall { operation: operation.into(), began_ns, ended_ns, error }
    };
    let calls = vec![call("ListPodSandbox", None), call(method, error)];
    story.says = Some(RuntimeSays { pid: CONTAINERD, calls, ..RuntimeSays::default() });
    story.census(3 * S, &[], &[], &[]).read_open(4 * S);
    story.snapshot(4 * S)
}

/// A list that is too large: relists fail at once, and the runtime says the same to us.
#[test]
fn k2_needs_a_list_that_is_refused_for_its_size() {
    let large = "grpc: trying to send message larger than max (17835685 vs. 16777216)";
    let finding = only(&refused("ListContainers", Some((8, large)), true), "K2");
    assert_eq!((finding.severity, finding.confidence), (Severity::Stall, Confidence::High));
    assert_eq!((culprit(&finding), finding.since.unwrap().ns), (Some(CONTAINERD), 4 * S));
    let evidence: Vec<&str> = finding.evidence.iter().map(|seen| seen.text.as_str()).collect();
    assert!(evidence[0].contains("17835685 vs. 16777216"), "{evidence:?}");
    assert!(
        evidence[1].starts_with("the last 3 relists failed, none after more than 2.0 ms"),
        "{evidence:?}"
    );
    let pods = only(&refused("ListPodSandbox", Some((8, large)), true), "K2");
    assert!(pods.headline.contains("list of pods"), "{}", pods.headline);
    // The limit of the client has the same code, and other words.
    let received = "grpc: received message larger than max (5000000 vs. 4194304)";
    only(&refused("ListContainers", Some((8, received)), true), "K2");
    none(&refused("ListContainers", Some((8, "too many requests")), true));
    none(&refused("ListContainers", Some((13, large)), true));
    none(&refused("Version", Some((8, large)), true));
    none(&refused("ListContainers", None, true));
    none(&refused("ListContainers", Some((8, large)), false));
}

/// A list that still fits is a notice when it is close to the limit, by the last answer on the socket.
#[test]
fn k2_warns_before_the_limit() {
    let listed = |sizes: &[u64]| {
        let mut story = Story::node();
        for (second, size) in (1..).zip(sizes) {
            story.relist(second * S, 0);
            let stream = 2 * u32::try_from(second).unwrap() + 1;
            let path = "runtime.v1.RuntimeService/ListContainers";
            story.request_of(stream, path, second * S, second * S + MS, *size);
        }
        story.census(3 * S, &[], &[], &[]).read_open(4 * S);
        story.snapshot(4 * S)
    };
    let finding = only(&listed(&[11 << 20, 13 << 20]), "K2");
    assert_eq!(finding.severity, Severity::Notice);
    assert!(finding.headline.ends_with("13 MiB of 16 MiB"), "{}", finding.headline);
    none(&listed(&[13 << 20, 11 << 20]));
    none(&listed(&[]));
}

/// A kubelet that was killed is down, until the census has found one that was started since: that is only not traced yet, and
/// whether it lists is not known.
#[test]
fn k7_is_not_said_of_a_kubelet_that_has_a_successor() {
    let found = |pid, started| {
        let mut story = Story::node();
        story.found(KUBELET, Role::Kubelet).relist(S, 0).exit(3 * S, KUBELET, 9);
        story.census(8 * S, &[process(Component::Kubelet, pid, 1, started)], &[], &[]).read_open(9 * S);
        diagnose(&story.snapshot(9 * S))
    };
    let back = found(KUBELET + 1, 3 * S - 10 * MS);
    assert_eq!((back.verdict, back.findings.len()), (Verdict::CannotTell, 0), "{back:#?}");
    let of_another_node = found(KUBELET + 1, 0);
    assert_eq!(of_another_node.findings[0].rule.id, "K7");
    assert_eq!(found(KUBELET, 3 * S).findings[0].rule.id, "K7", "the same that has ended");
}
