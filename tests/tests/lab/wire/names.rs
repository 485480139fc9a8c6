//! Names of requests on a connection that is older than plegtrace: learnt from probes in kubelet and runtime, never wrong. And
//! what they tell of the way between the two.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::{Duration, Instant};

use plegtrace::clock::monotonic_ns;
use plegtrace::correlate::{Relist, Snapshot};
use plegtrace::decode::Request;
use plegtrace::input::Layer;
use plegtrace::span::{LeafKind, Leg, Span, leaves};
use plegtrace_lab::{Knobs, Node, host, process};
use plegtrace_tests::watching::{Seen, Watching};

use super::{LIMIT, assert_nothing_is_lost};

/// This long after the probes names are known: what is asked every ten seconds was asked some times, and was alone twice.
const LEARNT: Duration = Duration::from_secs(60);
/// Requests that are looked at then.
const ASKED: usize = 200;

fn is_named(request: &Request) -> bool {
    !request.message.service.is_empty()
}

/// Requests that no handler of their name has served in their time; each handler serves one.
fn without_a_handler<'s>(seen: &'s Seen, requests: &[&'s Request]) -> Vec<&'s Request> {
    let mut handlers: BTreeSet<(u64, usize)> = BTreeSet::new();
    let calls: Vec<_> = seen.of_layer(Layer::Handler).collect();
    handlers.extend(calls.iter().enumerate().map(|(number, (call, _))| (call.start.0, number)));
    let mut left = Vec::new();
    for request in requests {
        let message = &request.message;
        let times = (message.id.start.0, 0)..(message.end.0, usize::MAX);
        let serves = |(_, number): &&(u64, usize)| {
            let hook = calls[*number].1;
            hook.service == message.service && hook.operation == message.method
        };
        match handlers.range(times).find(serves).copied() {
            Some(handler) => _ = handlers.remove(&handler),
            None => left.push(*request),
        }
    }
    left
}

/// What relists that began since then spent on the way between kubelet and runtime.
fn on_the_way(snapshot: &Snapshot, since_ns: u64) -> BTreeMap<Leg, u64> {
    let mut legs = BTreeMap::new();
    let young = snapshot.relists.iter().map(Relist::root).filter(|root| root.start().0 > since_ns);
    for leaf in young.flat_map(Span::walk).flat_map(|span| leaves(span, snapshot.now)) {
        if let LeafKind::Transport(_, leg) = leaf.kind {
            *legs.entry(leg).or_default() += leaf.ns;
        }
    }
    legs
}

/// The kubelet connected long ago, so its paths are entries of a table that nobody saw being filled.
#[test]
fn names_of_an_old_connection_are_learnt() {
    host::require_root().unwrap();
    let node = Node::start(&Knobs { pods: 4, exec_probes: true, ..Knobs::default() }).unwrap();
    node.wait_for_relists(3, LIMIT).unwrap();
    let (kubelet, runtime) = (node.kubelet().pid().to_string(), node.containerd().pid().to_string());
    let about = ["--kubelet-pid", &kubelet, "--runtime-pid", &runtime, "--sources", "uprobes,parks,wire"];
    let watching = Watching::start(&[&["-d", "600"], &about[..]].concat()).unwrap();
    watching.wait_until_armed().unwrap();
    let begun = Instant::now();
    let known = process::wait_for("a minute", LEARNT * 2, || {
        Ok((begun.elapsed() >= LEARNT).then(|| watching.seen().requests.len()))
    })
    .unwrap();
    let since_ns = monotonic_ns();
    process::wait_for("more requests", LEARNT * 2, || {
        Ok((watching.seen().requests.len() >= known + ASKED).then_some(()))
    })
    .unwrap();
    let (snapshot, seen) = watching.interrupt().unwrap();

    assert_nothing_is_lost(&snapshot);
    let ids: HashSet<_> = seen.requests.iter().map(|request| request.message.id).collect();
    assert_eq!(ids.len(), seen.requests.len(), "no request twice");
    let asked = &seen.requests[known..];
    let named = asked.iter().filter(|request| is_named(request)).count();
    let nameless: Vec<_> = asked.iter().filter(|request| !is_named(request)).collect();
    assert!(named * 100 >= asked.len() * 99, "{named} of {} have names: {nameless:#?}", asked.len());
    // In the report also those have their name that had none when they ended.
    let learnt: BTreeSet<&str> = seen.learnt.iter().map(|name| name.unknown.as_str()).collect();
    let nameless = seen.requests.iter().filter(|request| !is_named(request));
    let (late, never): (Vec<&Request>, Vec<&Request>) =
        nameless.partition(|request| learnt.contains(request.message.method.as_str()));
    let unknown = snapshot.grpc.rows.iter().filter(|row| row.method.starts_with("unknown#"));
    let unknown: u64 = unknown.map(|row| row.latency.count() + row.unanswered).sum();
    assert!(!late.is_empty(), "none of {} got its name later: {learnt:?}", never.len());
    assert_eq!(unknown, never.len() as u64, "{:#?}", snapshot.grpc.rows);
    // The last ones may have handlers that had not returned when the probes came off.
    let all: Vec<&Request> = seen.requests.iter().filter(|request| is_named(request)).collect();
    let wrong = without_a_handler(&seen, &all);
    assert!(wrong.is_empty(), "of {} names, wrong: {wrong:#?}", all.len());
    let methods: BTreeSet<&str> = all.iter().map(|request| request.message.method.as_str()).collect();
    assert!(methods.contains("ListPodSandbox") && methods.contains("ListContainers"), "{methods:?}");
    eprintln!("{named} of {} requests have names after a minute: {methods:?}", asked.len());
    let legs = on_the_way(&snapshot, since_ns);
    let (all, whole): (u64, u64) = (legs.values().sum(), legs.get(&Leg::Whole).copied().unwrap_or(0));
    assert!(legs.len() >= 4 && whole * 50 <= all, "the way is not split: {legs:?}");
    eprintln!("between kubelet and runtime, in ns: {legs:?}");
    assert!(!snapshot.losses.iter().any(|loss| loss.reason == "names_contradicted"), "{:?}", snapshot.losses);
}
