//! Stories of requests that only the sockets show: of kubelets and runtimes in which no probe can be set.

use plegtrace::diagnose::{Diagnosis, Doubt, Peer, Reason, Verdict, diagnose};
use plegtrace::input::{ClientFact, Component, Fact, Layer, MessagesFact, OpenMessageFact, OtherClientsFact};
use plegtrace::render::{json, text};
use plegtrace_common::reason::Reason as Loss;
use plegtrace_tests::story::{CONTAINERD, KUBELET, S, Story, at};

/// A node of which only the sockets are read.
fn node() -> Story {
    let mut story = Story::blank();
    let runtime = (Component::Containerd, CONTAINERD);
    story.start().target(Component::Kubelet, KUBELET, "1.20.2").target(runtime.0, runtime.1, "1.6.20");
    story
}

fn request(stream: u32, service: &str, method: &str, sent_ns: u64) -> OpenMessageFact {
    OpenMessageFact {
        socket: 7,
        stream,
        start_ns: at(sent_ns).0,
        asker: KUBELET,
        answerer: CONTAINERD,
        service: service.into(),
        method: method.into(),
        ..OpenMessageFact::default()
    }
}

fn cri(stream: u32, method: &str, sent_ns: u64) -> OpenMessageFact {
    request(stream, "runtime.v1.RuntimeService", method, sent_ns)
}

fn read(story: &mut Story, ns: u64, open: &[OpenMessageFact]) {
    let open = open.to_vec();
    story.fact(ns, &Fact::Requests(MessagesFact { at_ns: at(ns).0, open, complete: true }));
}

fn diagnosis(story: &Story, ns: u64) -> Diagnosis {
    diagnose(&story.snapshot(ns))
}

fn by_wire(diagnosis: &Diagnosis) -> Vec<&Reason> {
    diagnosis.reasons.iter().filter(|reason| matches!(reason, Reason::RequestsOpen { .. })).collect()
}

/// Lists that nobody answers are a stall after 10 s, told with who asked and who is to answer.
#[test]
fn requests_without_an_answer_are_a_stall() {
    let mut story = node();
    let open = [cri(5, "ListContainers", 2 * S), cri(7, "ListContainers", S)];
    read(&mut story, 3 * S, &open);
    let young = diagnosis(&story, 11 * S);
    assert_eq!((young.verdict, young.reasons.len()), (Verdict::CannotTell, 0), "{:?}", young.reasons);
    assert!(young.doubts.contains(&Doubt::NotArmed), "{:?}", young.doubts);
    read(&mut story, 13 * S, &open);
    let snapshot = story.snapshot(13 * S);
    let stall = diagnose(&snapshot);
    let [Reason::RequestsOpen { method, count: 2, oldest_ns, asker, answerer }] = &stall.reasons[..] else {
        panic!("{:?}", stall.reasons)
    };
    assert_eq!((method.as_str(), *oldest_ns), ("ListContainers", 12 * S));
    assert_eq!(*asker, Peer { pid: KUBELET, component: Some(Component::Kubelet) });
    assert_eq!(*answerer, Some(Peer { pid: CONTAINERD, component: Some(Component::Containerd) }));
    assert_eq!((stall.verdict, stall.since.unwrap().at), (Verdict::Stall, at(S)));
    let mut page = Vec::new();
    text::report(
        &snapshot,
        &stall,
        &text::TextOptions { verbose: true, ..text::TextOptions::default() },
        &mut page,
    )
    .unwrap();
    let page = String::from_utf8(page).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
    let expected = "2 calls of ListContainers without an answer, oldest 12.0 s: sent by kubelet (pid 23871) to containerd (pid 812)";
    assert!(page.contains(expected), "{page}");
    assert!(page.contains("RuntimeService/ListContainers kubelet 23871 containerd 812"), "{page}");
    let mut document = Vec::new();
    json::report(&snapshot, &stall, &mut document).unwrap();
    let document: serde_json::Value = serde_json::from_slice(&document).unwrap();
    let reason = &document["diagnosis"]["reasons"][0];
    assert_eq!((&reason["kind"], &reason["pid"]), (&"requests_open".into(), &CONTAINERD.into()), "{reason}");
    assert_eq!((&reason["component"], &reason["count"]), (&"containerd".into(), &2.into()), "{reason}");
}

/// Each method has its own time, and some last for ever; one without a name may be any of them.
#[test]
fn only_what_should_have_ended() {
    let mut story = node();
    let health = request(11, "grpc.health.v1.Health", "Watch", S);
    let open = [
        cri(1, "RunPodSandbox", S),
        cri(3, "GetContainerEvents", S),
        cri(5, "PullImage", S),
        request(7, "", "unknown#3", S),
        request(9, "", "", S),
        health,
    ];
    read(&mut story, 25 * S, &open);
    assert!(by_wire(&diagnosis(&story, 25 * S)).is_empty(), "a network plugin may take so long");
    read(&mut story, 32 * S, &open);
    let late = diagnosis(&story, 32 * S);
    let [Reason::RequestsOpen { method, count: 1, .. }] = by_wire(&late)[..] else {
        panic!("{:?}", late.reasons)
    };
    assert_eq!(method, "RunPodSandbox");
    read(&mut story, 33 * S, &open[1..]);
    assert!(by_wire(&diagnosis(&story, 33 * S)).is_empty(), "it has ended");
}

/// What a probe shows is told once; of other methods the sockets still speak.
#[test]
fn a_probe_goes_first() {
    let mut story = Story::node();
    story.begin(Layer::KubeletCall, "PodSandboxStatus", 500, 900, S).read_open(12 * S);
    read(&mut story, 12 * S, &[cri(1, "PodSandboxStatus", S), cri(3, "ContainerStatus", S)]);
    let both = diagnosis(&story, 12 * S);
    let [Reason::RequestsOpen { method, .. }] = by_wire(&both)[..] else { panic!("{:?}", both.reasons) };
    assert_eq!(method, "ContainerStatus");
    let by_probe = |reason: &&Reason| matches!(reason, Reason::CallsOpen { operation, .. } if operation == "PodSandboxStatus");
    assert!(both.reasons.iter().any(|reason| by_probe(&reason)), "{:?}", both.reasons);
}

/// After a loss nobody knows whether an answer was lost: the request is shown, and is no verdict.
#[test]
fn no_verdict_after_a_loss() {
    let mut story = node();
    story.counted(2 * S, Loss::RingFull, 3);
    read(&mut story, 13 * S, &[cri(1, "ListContainers", S)]);
    let snapshot = story.snapshot(13 * S);
    let unsure = diagnose(&snapshot);
    assert_eq!((unsure.verdict, unsure.reasons.len()), (Verdict::CannotTell, 0), "{:?}", unsure.reasons);
    assert_eq!(snapshot.grpc.open.len(), 1);
    assert!(unsure.doubts.iter().any(|doubt| matches!(doubt, Doubt::Lost { .. })), "{:?}", unsure.doubts);
    // What was sent later is not concerned, however long one observes.
    read(&mut story, 14 * S, &[cri(3, "ListContainers", 3 * S)]);
    let later = diagnosis(&story, 14 * S);
    assert_eq!((later.verdict, by_wire(&later).len()), (Verdict::Stall, 1), "{:?}", later.reasons);
}

/// Who does not read is told beside what is open: the kubelet, the runtime, or a client that is nobody's business but its own.
#[test]
fn who_does_not_read_is_told() {
    let answered = OpenMessageFact { unread: Some(65_562), ..cri(5, "ListContainers", S) };
    let asked = OpenMessageFact { unread_by_answerer: Some(1_234), ..cri(7, "Version", S) };
    let others = |unread| OtherClientsFact {
        clients: vec![ClientFact { pid: 4711, name: "crictl".into() }],
        requests: MessagesFact {
            at_ns: at(13 * S).0,
            open: vec![OpenMessageFact { asker: 4711, unread, ..answered.clone() }],
            complete: true,
        },
    };
    let page = |unread| {
        let mut story = node();
        read(&mut story, 13 * S, &[answered.clone(), asked.clone()]);
        story.fact(13 * S, &Fact::OtherClients(others(unread)));
        let snapshot = story.snapshot(13 * S);
        let mut page = Vec::new();
        text::report(
            &snapshot,
            &diagnose(&snapshot),
            &text::TextOptions { verbose: true, ..text::TextOptions::default() },
            &mut page,
        )
        .unwrap();
        String::from_utf8(page).unwrap()
    };
    let deaf = "crictl 4711 has left 65,562 bytes unread";
    let told = page(Some(65_562));
    for words in ["asker: 65,562 B unread", "answerer: 1,234 B unread", deaf] {
        assert!(told.contains(words), "no {words:?} in\n{told}");
    }
    assert!(!page(Some(0)).contains(deaf), "all is read");
}
