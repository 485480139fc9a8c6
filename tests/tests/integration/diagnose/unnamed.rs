//! A component is down only when nothing shows that it runs: its file can have any name.

use plegtrace::correlate::Snapshot;
use plegtrace::diagnose::{Confidence, Diagnosis, Doubt, Sign, Verdict, diagnose};
use plegtrace::input::{ClientFact, Component, Fact, ListeningFact, MessagesFact, OtherClientsFact};
use plegtrace::render::text;
use plegtrace_tests::story::{CONTAINERD, KUBELET, S, Story, at};

use super::ids;

/// A process of which no name tells that it is a kubelet.
const UNNAMED: u32 = 9_000;

/// Containerd runs, and a kubelet belongs to the node.
fn without_kubelet() -> Story {
    let mut story = Story::blank();
    story.start().target(Component::Containerd, CONTAINERD, "1.6.20");
    story.presence(Component::Kubelet, "/var/lib/kubelet/config.yaml").hooks();
    story
}

/// A kubelet runs, and a containerd belongs to the node.
fn without_runtime() -> Story {
    let mut story = Story::node();
    story.gone(S, Component::Containerd, CONTAINERD, "ended");
    story
}

fn listening(story: &mut Story, ns: u64, ports: &[u16], sockets: &[&str]) {
    let sockets = sockets.iter().map(|path| (*path).to_owned()).collect();
    let fact = ListeningFact { at_ns: at(ns).0, ports: ports.to_vec(), sockets, connected: Vec::new() };
    story.fact(ns, &Fact::Listening(fact));
}

fn doubts(diagnosis: &Diagnosis) -> Vec<&'static str> {
    diagnosis.doubts.iter().map(Doubt::name).collect()
}

fn page(snapshot: &Snapshot) -> String {
    let mut out = Vec::new();
    text::report(
        snapshot,
        &diagnose(snapshot),
        &text::TextOptions { verbose: true, ..text::TextOptions::default() },
        &mut out,
    )
    .unwrap();
    // Lines are wrapped.
    String::from_utf8(out).unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Somebody listens on a port of kubelets: that no process is called kubelet does not tell that none runs, and why nothing is known of
/// it is said.
#[test]
fn a_kubelet_of_another_name_is_not_down() {
    let mut story = without_kubelet();
    assert_eq!(ids(&diagnose(&story.snapshot(3 * S))), ["K7"]);
    listening(&mut story, 2 * S, &[10_250], &[]);
    let snapshot = story.snapshot(3 * S);
    let diagnosis = diagnose(&snapshot);
    assert_eq!((ids(&diagnosis), diagnosis.verdict), (vec![], Verdict::CannotTell));
    assert_eq!(diagnosis.doubts[0], Doubt::KubeletUnknown { sign: Sign::Port(10_250) });
    let page = page(&snapshot);
    assert!(page.contains("a process of root's listens on port 10250: --kubelet-pid PID"), "{page}");
    listening(&mut story, 4 * S, &[], &[]);
    assert_eq!(ids(&diagnose(&story.snapshot(5 * S))), ["K7"], "nobody does any more");
}

/// The port of a kubelet that has ended is its own: only what was seen since shows another one.
#[test]
fn a_dying_kubelet_is_no_sign_of_another() {
    let mut story = Story::node();
    listening(&mut story, S, &[10_248, 10_250], &[]);
    story.gone(2 * S, Component::Kubelet, KUBELET, "ended");
    assert_eq!(ids(&diagnose(&story.snapshot(3 * S))), ["K7"]);
    listening(&mut story, 4 * S, &[10_250], &[]);
    let diagnosis = diagnose(&story.snapshot(5 * S));
    assert_eq!((ids(&diagnosis), doubts(&diagnosis)[0]), (vec![], "kubelet_unknown"));
}

/// A process is connected to the runtime and asks nothing: a kubelet of another name may be, and others are. It is a doubt; who asks, and
/// not as a kubelet does, is none.
#[test]
fn a_silent_client_is_a_doubt() {
    let look = |asks: bool, connected_at: u64| {
        let mut story = without_kubelet();
        story.target(Component::Kubelet, KUBELET, "1.20.2").gone(S, Component::Kubelet, KUBELET, "ended");
        let client = ClientFact { pid: UNNAMED, name: "microlet".into() };
        if asks {
            story.request_by(UNNAMED, 1, "runtime.v1.RuntimeService/ListPodSandbox", S);
            let requests = MessagesFact { at_ns: at(2 * S).0, open: vec![], complete: true };
            story.fact(
                2 * S,
                &Fact::OtherClients(OtherClientsFact { clients: vec![client.clone()], requests }),
            );
        }
        let at_ns = at(connected_at).0;
        let fact = ListeningFact { at_ns, connected: vec![client], ..ListeningFact::default() };
        story.fact(connected_at, &Fact::Listening(fact));
        let diagnosis = diagnose(&story.snapshot(5 * S));
        assert_eq!((ids(&diagnosis), diagnosis.verdict), (vec!["K7"], Verdict::Stall));
        diagnosis.findings[0].clone()
    };
    let doubted = look(false, 3 * S);
    assert_eq!(doubted.confidence, Confidence::Medium);
    let doubt = "microlet (pid 9000) is connected to the runtime and asks nothing: it may be a kubelet of another name";
    assert_eq!(doubted.doubts, [doubt]);
    for finding in [look(true, 3 * S), look(false, S / 2)] {
        assert_eq!((finding.confidence, finding.doubts.len()), (Confidence::High, 0));
    }
}

/// Pods, containers and the state of the runtime, again and again: that is a kubelet, and no agent that lists.
#[test]
fn who_asks_as_a_kubelet_does_is_one() {
    let asks = |methods: &[&str], now: u64| {
        let mut story = without_kubelet();
        for second in 1..5 {
            for (method, stream) in methods.iter().zip(0..) {
                let path = format!("runtime.v1.RuntimeService/{method}");
                story.request_by(UNNAMED, u32::try_from(second).unwrap() * 8 + stream, &path, second * S);
            }
        }
        let clients = vec![ClientFact { pid: UNNAMED, name: "microlet".into() }];
        let requests = MessagesFact { at_ns: at(5 * S).0, open: vec![], complete: true };
        story.fact(5 * S, &Fact::OtherClients(OtherClientsFact { clients, requests }));
        diagnose(&story.snapshot(now))
    };
    let all = ["ListPodSandbox", "ListContainers", "Status"];
    let kubelet = asks(&all, 6 * S);
    assert_eq!(ids(&kubelet), [] as [&str; 0]);
    let sign = Sign::Lists { pid: UNNAMED, name: "microlet".into() };
    assert_eq!(kubelet.doubts[0], Doubt::KubeletUnknown { sign });
    assert_eq!(ids(&asks(&all[..2], 6 * S)), ["K7"], "an agent");
    assert_eq!(ids(&asks(&all, 60 * S)), ["K7"], "it asks no more");
}

/// A kubelet that gets its lists has a runtime, whatever that is called; one that nobody answers has none, unless somebody listens.
#[test]
fn a_runtime_of_another_name_is_not_down() {
    let mut story = without_runtime();
    assert_eq!(ids(&diagnose(&story.snapshot(2 * S))), ["R15"]);
    story.relist(3 * S, 0).relist(4 * S, 0);
    assert_eq!(ids(&diagnose(&story.snapshot(5 * S))), [] as [&str; 0], "lists succeed");
    let socket = "/run/containerd/containerd.sock";
    let listens = |ns: u64, sockets: &[&str]| {
        let mut story = without_runtime();
        listening(&mut story, ns, &[], sockets);
        diagnose(&story.snapshot(5 * S))
    };
    let diagnosis = listens(3 * S, &[socket]);
    assert_eq!(ids(&diagnosis), [] as [&str; 0]);
    assert!(diagnosis.doubts.contains(&Doubt::RuntimeUnknown { sign: Sign::Socket(socket.into()) }));
    assert_eq!(ids(&listens(S / 2, &[socket])), ["R15"], "it was its own");
    assert_eq!(ids(&listens(3 * S, &["/run/crio/crio.sock"])), ["R15"], "another one's");
}
