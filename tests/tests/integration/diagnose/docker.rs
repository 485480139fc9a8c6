//! Causes behind dockershim and cri-dockerd, which ask dockerd over HTTP.

use plegtrace::correlate::Snapshot;
use plegtrace::diagnose::{Confidence, Reason, Verdict, diagnose};
use plegtrace::input::{
    Component, ContainerFact, Fact, GoroutineGroup, MessagesFact, OpenMessageFact, ProcessFact,
};
use plegtrace::render::{json, text};
use plegtrace_tests::found::{group, process, stopped};
use plegtrace_tests::story::{CONTAINERD, KUBELET, S, Story, at};

use super::{SHIM, culprit, none, only};

const DOCKERD: u32 = 1_900;
const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const INSPECT: &str = "GET /containers/{id}/json";
const LIST: &str = "GET /containers/json";

fn node() -> Story {
    let mut story = Story::blank();
    story.start().target(Component::Kubelet, KUBELET, "1.20.2").target(
        Component::Dockerd,
        DOCKERD,
        "20.10.24",
    );
    story.target(Component::Containerd, CONTAINERD, "1.6.20").hooks();
    story
}

fn asked(method: &str, container: &str, sent_ns: u64) -> OpenMessageFact {
    OpenMessageFact {
        socket: sent_ns,
        start_ns: at(sent_ns).0,
        asker: KUBELET,
        answerer: DOCKERD,
        method: method.to_owned(),
        container: container.to_owned(),
        ..OpenMessageFact::default()
    }
}

fn open(story: &mut Story, ns: u64, open: &[OpenMessageFact]) {
    let fact = MessagesFact { at_ns: at(ns).0, open: open.to_vec(), complete: true };
    story.fact(ns, &Fact::DockerRequests(fact));
}

/// A node whose lists are answered, and which asks this since then.
fn seen(requests: &[OpenMessageFact], processes: &[ProcessFact]) -> Snapshot {
    let mut story = node();
    story.docker("GET /v1.40/containers/json", DOCKERD, S, S + 1_000_000);
    for round in [12 * S, 15 * S] {
        story.census(round, processes, &[], &[]);
        open(&mut story, round, requests);
    }
    story.snapshot(15 * S)
}

/// The shim of the container is stopped while dockerd kills it: R11 names the shim, who waits, and since when; S10 is the nearer half.
#[test]
fn r11_names_who_holds_the_lock() {
    let container = ContainerFact { id: ID.into(), ..ContainerFact::default() };
    let shim = ProcessFact { container: Some(container), ..stopped(process(Component::Shim, SHIM, 1, 0)) };
    let asks =
        [asked("POST /containers/{id}/kill", ID, S), asked(INSPECT, ID, 2 * S), asked(INSPECT, ID, 3 * S)];
    let snapshot = seen(&asks, std::slice::from_ref(&shim));
    let diagnosis = diagnose(&snapshot);
    let finding = &diagnosis.findings[0];
    assert_eq!((finding.rule.id, culprit(finding), &finding.also[..]), ("R11", Some(SHIM), &["S10"][..]));
    assert_eq!(finding.since.unwrap().ns, 14 * S);
    assert!(finding.victims[0] == format!("2 {INSPECT}, sent by kubelet {KUBELET}"), "{:?}", finding.victims);
    assert!(finding.evidence.iter().any(|it| it.text.contains("/kill")), "{:?}", finding.evidence);
    assert!(finding.next[0].contains("docker ps --filter id=0123456789ab"), "{:?}", finding.next);
    assert!(finding.next[1].contains(&format!("kill -CONT {SHIM}")), "{:?}", finding.next);
    assert_eq!(diagnosis.verdict, Verdict::Stall);
    let mut out = Vec::new();
    text::report(
        &snapshot,
        &diagnosis,
        &text::TextOptions { verbose: true, ..text::TextOptions::default() },
        &mut out,
    )
    .unwrap();
    let out = String::from_utf8(out).unwrap();
    assert!(out.contains("Docker API calls (HTTP)   1 answered"), "{out}");
    assert!(out.contains("container 0123456789ab"), "{out}");
    let mut document = Vec::new();
    json::report(&snapshot, &diagnosis, &mut document).unwrap();
    let document: serde_json::Value = serde_json::from_slice(&document).unwrap();
    let docker = &document["docker"];
    assert_eq!(
        (&docker["open"][0]["container"], docker["methods"].as_array().unwrap().len()),
        (&ID.into(), 3)
    );
}

/// Nobody is seen to hold it: dockerd is blamed, less surely.
#[test]
fn r11_without_a_holder_is_doubted() {
    let finding = only(&seen(&[asked(INSPECT, ID, 2 * S)], &[]), "R11");
    assert_eq!((culprit(&finding), finding.confidence), (Some(DOCKERD), Confidence::Medium));
    assert!(finding.next[1].contains("-USR1"), "{:?}", finding.next);
    let holder = asked("POST /containers/{id}/start", ID, S);
    let finding = only(&seen(&[holder, asked(INSPECT, ID, 2 * S)], &[]), "R11");
    assert_eq!((culprit(&finding), finding.confidence), (Some(DOCKERD), Confidence::High));
}

/// What hangs of another container is another finding.
#[test]
fn r11_blames_nobody_of_another_container() {
    let container = ContainerFact { id: ID.replace('0', "f"), ..ContainerFact::default() };
    let shim = ProcessFact { container: Some(container), ..stopped(process(Component::Shim, SHIM, 1, 0)) };
    let diagnosis = diagnose(&seen(&[asked(INSPECT, ID, 2 * S)], &[shim]));
    let mut named: Vec<_> = diagnosis.findings.iter().map(|it| (it.rule.id, culprit(it))).collect();
    named.sort_unstable();
    assert_eq!(named, [("R11", Some(DOCKERD)), ("S10", Some(SHIM))]);
}

/// Requests that are older than plegtrace are on no socket that it has seen: the goroutines of kubelet and dockerd show the same lock, and
/// what is stuck of one container tells whose it is.
#[test]
fn r11_by_goroutines() {
    let inspect = [
        "runtime.gopark",
        "sync.(*Mutex).lockSlow",
        "github.com/docker/docker/daemon.(*Daemon).ContainerInspectCurrent",
        "github.com/docker/docker/daemon.(*Daemon).ContainerInspect",
    ];
    let kill = [
        "runtime.gopark",
        "github.com/containerd/containerd.(*task).Kill",
        "github.com/docker/docker/daemon.(*Daemon).killWithSignal",
        "github.com/docker/docker/daemon.(*Daemon).ContainerKill",
    ];
    let relist = [
        "google.golang.org/grpc.(*ClientConn).Invoke",
        "k8s.io/cri-api/pkg/apis/runtime/v1alpha2.(*runtimeServiceClient).ContainerStatus",
        "k8s.io/kubernetes/pkg/kubelet/pleg.(*GenericPLEG).relist",
    ];
    let container = ContainerFact { id: ID.into(), ..ContainerFact::default() };
    let shim = ProcessFact { container: Some(container), ..stopped(process(Component::Shim, SHIM, 1, 0)) };
    let seen = |of_dockerd: &[GoroutineGroup], processes: &[ProcessFact], last: u64| {
        let mut story = node();
        for round in [S, last] {
            story.goroutines(round, Component::Dockerd, DOCKERD, of_dockerd);
            let dockerd = process(Component::Dockerd, DOCKERD, 1, 0);
            let relist = GoroutineGroup { parked_by_ns: Some(at(S).0), ..group(&[142], "select", &relist) };
            story.census(round, &[processes, &[dockerd]].concat(), &[], &[relist]);
        }
        story.snapshot(last)
    };
    let both = [group(&[293], "semacquire", &inspect), group(&[513], "select", &kill)];
    let diagnosis = diagnose(&seen(&both, std::slice::from_ref(&shim), 13 * S));
    let finding = &diagnosis.findings[0];
    assert_eq!((finding.rule.id, culprit(finding), &finding.also[..]), ("R11", Some(SHIM), &["S10"][..]));
    assert_eq!((finding.reach, finding.since.unwrap().ns, finding.confidence), (3, 12 * S, Confidence::High));
    let texts: Vec<&str> = finding.evidence.iter().map(|it| it.text.as_str()).collect();
    assert!(texts.iter().any(|text| text.contains("killWithSignal")), "{texts:?}");
    // Whose lock it is, is not known without somebody stuck; who waits only briefly is not named.
    let nameless = only(&seen(&both, &[], 13 * S), "R11");
    assert_eq!((culprit(&nameless), nameless.confidence), (Some(DOCKERD), Confidence::Medium));
    none(&seen(&both, &[], 10 * S));
    // Nobody is seen to hold it.
    assert_eq!(only(&seen(&both[..1], &[], 13 * S), "R11").confidence, Confidence::Low);
    none(&seen(&both[1..], &[], 13 * S));
}

/// A young request, one that lasts by design, one whose client is gone, and one that is about no container are no lock.
#[test]
fn what_is_no_lock() {
    none(&seen(&[asked(INSPECT, ID, 6 * S)], &[]));
    none(&seen(&[asked("POST /containers/{id}/wait", ID, S), asked("GET /events", "", S)], &[]));
    none(&seen(&[OpenMessageFact { over: true, ..asked(INSPECT, ID, S) }], &[]));
    none(&seen(&[asked(INSPECT, "", S)], &[]));
}

/// When lists have no answer either, or dockerd is stopped, it is not the lock of one container.
#[test]
fn dockerd_as_a_whole_is_another_cause() {
    let all = [asked(INSPECT, ID, S), asked(LIST, "", S)];
    none(&seen(&all, &[]));
    let dockerd = stopped(process(Component::Dockerd, DOCKERD, 1, 0));
    let finding = only(&seen(&[asked(INSPECT, ID, S)], &[dockerd]), "R14");
    assert_eq!(culprit(&finding), Some(DOCKERD));
}

/// Where no probe can be set, what dockerd does not answer is a stall all the same, told once for each method.
#[test]
fn requests_to_docker_are_a_reason() {
    let diagnosis = diagnose(&seen(&[asked(LIST, "", S), asked("POST /containers/create", "", S)], &[]));
    assert_eq!(diagnosis.verdict, Verdict::Stall);
    let [Reason::RequestsOpen { method, count: 1, oldest_ns, answerer: Some(peer), .. }] =
        &diagnosis.reasons[..]
    else {
        panic!("{:?}", diagnosis.reasons)
    };
    assert_eq!((method.as_str(), *oldest_ns, peer.pid), (LIST, 14 * S, DOCKERD));
}

/// A record is read as it was written: count, latency, and no query.
#[test]
fn answers_are_counted() {
    let mut story = node();
    for at_ns in [S, 2 * S] {
        story.docker(&format!("GET /v1.40/containers/{ID}/json"), DOCKERD, at_ns, at_ns + 5_000_000);
    }
    open(&mut story, 3 * S, &[]);
    let snapshot = story.snapshot(3 * S);
    let [row] = &snapshot.docker.rows[..] else { panic!("{:?}", snapshot.docker.rows) };
    assert_eq!((row.method.as_str(), row.latency.count(), row.latency.sum_ns()), (INSPECT, 2, 10_000_000));
}
