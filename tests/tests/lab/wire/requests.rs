//! gRPC requests to a real containerd, read from their connections: exact by containerd's own count, and named when it does
//! not answer. This process is the client that is traced, in the place of a kubelet.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use plegtrace::correlate::thresholds::CALL_OPEN_NS;
use plegtrace::decode::RequestEnd;
use plegtrace::diagnose::{Peer, Reason, Verdict, diagnose};
use plegtrace::input::{Component, OpenMessageFact};
use plegtrace::render::text::{self, TextOptions};
use plegtrace_lab::cri::{Call, Client, Error};
use plegtrace_lab::{Containerd, Generation, Knobs, fault, host, process};
use plegtrace_tests::recordings::text_of;
use plegtrace_tests::watching::Watching;

use super::{LIMIT, assert_nothing_is_lost};

const ROUNDS: u64 = 20;
/// What a client waits that gives up: longer than it takes to be shown as open.
const HASTY: Duration = Duration::from_secs(4);
/// Requests on a connection that is older than the probes.
const OLD: u64 = 5;

pub(super) fn start(generation: Generation) -> Containerd {
    host::require_root().unwrap();
    Containerd::start(&Knobs { pods: 0, generation, ..Knobs::default() }).unwrap()
}

pub(super) fn watch(containerd: &Containerd) -> Watching {
    let (client, runtime) = (std::process::id().to_string(), containerd.pid().to_string());
    let about = ["--kubelet-pid", &client, "--runtime-pid", &runtime, "--sources", "wire"];
    let watching = Watching::start(&[&["-d", "600"], &about[..]].concat()).unwrap();
    watching.wait_until_armed().unwrap();
    watching
}

/// How often containerd has handled each method.
pub(super) fn handled(containerd: &Containerd) -> BTreeMap<String, u64> {
    let page = containerd.metrics(LIMIT).unwrap();
    let mut counts = BTreeMap::new();
    for sample in page.find("grpc_server_handled_total", &[]).filter(|sample| sample.value > 0.0) {
        let label = |name| sample.label(name).unwrap_or_default();
        if label("grpc_service").starts_with("runtime.") {
            *counts.entry(label("grpc_method").to_owned()).or_default() += sample.value as u64;
        }
    }
    counts
}

pub(super) fn since(before: &BTreeMap<String, u64>, after: BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let grown = |(method, count): (String, u64)| {
        let count = count - before.get(&method).unwrap_or(&0);
        (count > 0).then_some((method, count))
    };
    after.into_iter().filter_map(grown).collect()
}

pub(super) fn ask(client: &Client) -> Result<(), Error> {
    client.version(LIMIT)?;
    client.status(LIMIT)?;
    client.list_pod_sandbox(LIMIT)?;
    client.list_images(LIMIT)?;
    client.container_status("there-is-none", LIMIT).map(drop).unwrap_err();
    Ok(())
}

/// Asks for containers, and waits for so long.
fn lists(client: &Client, deadline: Duration) -> Call {
    Call::start(client, "ListContainers", move |client| client.list_containers(deadline).map(drop)).unwrap()
}

/// Each request is counted once, by its name. The client of the lab keeps its paths out of the header table, so those on a
/// connection that is older than the probes have names too.
pub(crate) fn requests_are_exact(containerd: &Containerd) {
    let old = containerd.client();
    old.list_containers(LIMIT).unwrap();
    let watching = watch(containerd);
    let before = handled(containerd);
    let client = containerd.client_of(old.api()).unwrap();
    for _ in 0..ROUNDS {
        ask(&client).unwrap();
    }
    for _ in 0..OLD {
        old.list_containers(LIMIT).unwrap();
    }
    let counted = since(&before, handled(containerd));
    process::wait_for("all ends", LIMIT, || {
        let seen = watching.seen();
        Ok((seen.requests.len() as u64 >= 5 * ROUNDS + OLD).then_some(()))
    })
    .unwrap();
    let (snapshot, seen) = watching.interrupt().unwrap();

    assert_nothing_is_lost(&snapshot);
    assert_eq!((seen.undecoded, snapshot.grpc.open.len()), (0, 0), "{:?}", snapshot.grpc.open);
    let mut named: BTreeMap<String, u64> = BTreeMap::new();
    for row in &snapshot.grpc.rows {
        assert_eq!((row.unanswered, row.open), (0, 0), "{row:?}");
        assert!(row.service.starts_with("runtime."), "{row:?}");
        named.insert(row.method.clone(), row.latency.count());
    }
    assert_eq!(named, counted, "ours, and those of containerd");
    assert_eq!((named.len(), named.remove("ListContainers")), (6, Some(OLD)));
    assert!(named.values().all(|count| *count == ROUNDS), "{named:?}");
    for request in &seen.requests {
        let message = &request.message;
        assert_eq!((message.asker, message.answerer), (std::process::id(), containerd.pid()));
        assert!(message.end >= message.id.start && request.end == RequestEnd::Answered, "{request:?}");
    }
    let answers = |method: &str| {
        let of = seen.requests.iter().filter(|request| request.message.method == method);
        of.map(|request| request.answer_bytes).collect::<Vec<_>>()
    };
    assert!(answers("Version").iter().all(|bytes| *bytes > 5), "a message and its prefix");
    assert!(answers("ContainerStatus").iter().all(|bytes| *bytes == 0), "an error has no message");
}

#[test]
fn requests_to_containerd_1_4_are_exact() {
    requests_are_exact(&start(Generation::V1_4));
}

#[test]
fn requests_to_containerd_1_6_are_exact() {
    requests_are_exact(&start(Generation::V1_6));
}

#[test]
fn requests_to_containerd_1_7_are_exact() {
    requests_are_exact(&start(Generation::V1_7));
}

#[test]
fn requests_to_containerd_2_1_are_exact() {
    requests_are_exact(&start(Generation::V2_1));
}

/// A runtime that does not run is named by the request that it does not answer; what the client gives up is not open.
#[test]
fn a_stopped_runtime_is_named() {
    let containerd = start(Generation::default());
    let watching = watch(&containerd);
    let client = containerd.client_of(containerd.client().api()).unwrap();
    ask(&client).unwrap();
    let stopped = fault::stop_process(containerd.pid()).unwrap();
    let began = Instant::now();
    let (mut patient, mut hasty) = (lists(&client, LIMIT), lists(&client, HASTY));
    let open_now = |count: usize| {
        process::wait_for("requests without an answer", LIMIT, || {
            let seen = watching.seen();
            let reading = &seen.open_requests;
            let is_old =
                |open: &&OpenMessageFact| reading.at_ns.saturating_sub(open.start_ns) > 1_000_000_000;
            let old: Vec<_> = reading.open.iter().filter(is_old).cloned().collect();
            let all = old.len() == count && reading.open.len() == count;
            Ok(all.then_some((old, reading.at_ns)))
        })
        .unwrap()
    };
    let (open, at_ns) = open_now(2);
    for open in &open {
        assert_eq!((open.asker, open.answerer), (std::process::id(), containerd.pid()), "{open:?}");
        assert_eq!((open.method.as_str(), open.over), ("ListContainers", false), "{open:?}");
        assert!(open.service.starts_with("runtime."), "{open:?}");
        assert!(Duration::from_nanos(at_ns - open.start_ns) <= began.elapsed(), "no age above the truth");
    }
    assert!(hasty.wait(LIMIT).unwrap().unwrap_err().is_deadline());
    let (left, _) = open_now(1);

    drop(stopped);
    patient.wait(LIMIT).unwrap().unwrap();
    process::wait_for("the end of both", LIMIT, || {
        let ended =
            watching.seen().requests.iter().filter(|it| it.message.method == "ListContainers").count();
        Ok((ended == 2).then_some(()))
    })
    .unwrap();
    let (snapshot, seen) = watching.interrupt().unwrap();
    assert_nothing_is_lost(&snapshot);
    let ends: Vec<_> = seen.requests.iter().filter(|it| it.message.method == "ListContainers").collect();
    assert_eq!([ends[0].end, ends[1].end], [RequestEnd::ResetByClient, RequestEnd::Answered]);
    assert_eq!(ends[1].message.id.start.0, left[0].start_ns);
    let page = text_of(&snapshot, true).unwrap();
    assert!(page.contains("CRI calls on the wire (gRPC)"), "{page}");
    assert!(page.contains("RuntimeService/ListContainers"), "{page}");
    let row = snapshot.grpc.rows.iter().find(|row| row.method == "ListContainers").unwrap();
    assert_eq!((row.latency.count(), row.unanswered, row.open), (1, 1, 0));
}

/// Without a probe in any program the connection alone tells that the runtime does not answer.
#[test]
fn the_wire_alone_is_enough_for_a_verdict() {
    let containerd = start(Generation::default());
    let watching = watch(&containerd);
    let client = containerd.client_of(containerd.client().api()).unwrap();
    ask(&client).unwrap();
    let stopped = fault::stop_process(containerd.pid()).unwrap();
    let began = Instant::now();
    let mut call = lists(&client, LIMIT);
    process::wait_for("a request that is late", LIMIT, || {
        let seen = watching.seen();
        let reading = &seen.open_requests;
        let is_late = |open: &OpenMessageFact| reading.at_ns - open.start_ns > CALL_OPEN_NS;
        Ok(reading.open.iter().any(is_late).then_some(()))
    })
    .unwrap();
    let (snapshot, _) = watching.interrupt().unwrap();
    let most = began.elapsed();
    drop(stopped);
    call.wait(LIMIT).unwrap().unwrap();

    assert_nothing_is_lost(&snapshot);
    let diagnosis = diagnose(&snapshot);
    let mut page = Vec::new();
    text::report(&snapshot, &diagnosis, &TextOptions { verbose: true, ..TextOptions::default() }, &mut page)
        .unwrap();
    println!("{}", String::from_utf8(page).unwrap());
    assert_eq!(diagnosis.verdict, Verdict::Stall, "{diagnosis:#?}");
    let [Reason::RequestsOpen { method, count: 1, oldest_ns, asker, answerer }] = &diagnosis.reasons[..]
    else {
        panic!("{:#?}", diagnosis.reasons)
    };
    assert_eq!((method.as_str(), asker.pid), ("ListContainers", std::process::id()));
    assert_eq!(*answerer, Some(Peer { pid: containerd.pid(), component: Some(Component::Containerd) }));
    assert!(Duration::from_nanos(*oldest_ns) <= most, "no age above the truth");
}
