//! Loops of the kubelet that hang: K9 (a plugin), K10 (a lock), L1 (the API server), those without a known cause, and all that is slow and
//! fine.

use plegtrace::correlate::Snapshot;
use plegtrace::diagnose::{Confidence, Doubt, Finding, Reason, Severity, Verdict, diagnose};
use plegtrace::input::{
    CensusFact, Component, ContainerFact, Fact, GoroutineGroup, Holder, KubeletConnections, PluginFact,
    ProcessFact, SentFact, VersionFact,
};
use plegtrace_tests::found::{group, lists, process, still, stopped, update};
use plegtrace_tests::recordings::text_of;
use plegtrace_tests::story::{KUBELET, S, Story, at};

use super::{SHIM, culprit, ids, none, only};

/// The plugin of a story.
const PLUGIN: u32 = 7_070;

const PKG: &str = "k8s.io/kubernetes/pkg/kubelet";
const GRPC: [&str; 3] = [
    "runtime.selectgo",
    "google.golang.org/grpc/internal/transport.(*Stream).waitOnHeader",
    "google.golang.org/grpc.(*ClientConn).Invoke",
];
const LOCK: [&str; 3] = ["runtime.semacquire1", "sync.runtime_SemacquireMutex", "sync.(*RWMutex).RLock"];
const SYNC_LOOP: [&str; 2] = [
    "k8s.io/kubernetes/pkg/kubelet.(*Kubelet).syncLoopIteration",
    "k8s.io/kubernetes/pkg/kubelet.(*Kubelet).syncLoop",
];
const ALLOCATE: [&str; 2] = [
    "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1.(*devicePluginClient).Allocate",
    "k8s.io/kubernetes/pkg/kubelet/cm/devicemanager.(*endpointImpl).allocate",
];
const REQUEST: [&str; 2] =
    ["net/http.(*http2ClientConn).RoundTrip", "k8s.io/client-go/rest.(*Request).request"];

/// A goroutine of the kubelet with these functions, its innermost ones first.
fn waits(goid: u64, reason: &str, parts: &[&[&str]]) -> GoroutineGroup {
    still(group(&[goid], reason, &parts.concat()), 7)
}

/// The sync loop, in these functions.
fn sync_loop(reason: &str, inner: &[&str]) -> GoroutineGroup {
    waits(35, reason, &[inner, &SYNC_LOOP])
}

fn idle() -> GoroutineGroup {
    sync_loop("select", &["runtime.selectgo"])
}

fn allocates() -> GoroutineGroup {
    sync_loop("select", &[&GRPC[..], &ALLOCATE].concat())
}

/// The connection to a device plugin.
fn plugin(path: &str, pid: u32, state: char, unread: u32) -> PluginFact {
    PluginFact {
        kubelet: KUBELET,
        path: format!("/var/lib/kubelet/{path}"),
        holders: vec![Holder { pid, comm: "gpu-plugin".into(), fd: 7, orphan: false }],
        state: Some(state),
        unread,
        asked_all: true,
        ..PluginFact::default()
    }
}

/// A node with relists that end, and looks at the kubelet at these seconds.
struct Node {
    looks: Vec<(u64, Vec<GoroutineGroup>)>,
    plugins: Vec<PluginFact>,
    containerd: Vec<GoroutineGroup>,
    processes: Vec<ProcessFact>,
    connections: Vec<KubeletConnections>,
    version: Option<&'static str>,
}

impl Node {
    fn new(looks: &[(u64, &[GoroutineGroup])]) -> Self {
        let looks = looks.iter().map(|(second, groups)| (*second, groups.to_vec())).collect();
        Self {
            looks,
            plugins: Vec::new(),
            containerd: Vec::new(),
            processes: Vec::new(),
            connections: Vec::new(),
            version: None,
        }
    }

    /// The same goroutines at two looks.
    fn twice(from: u64, to: u64, groups: &[GoroutineGroup]) -> Self {
        Self::new(&[(from, groups), (to, groups)])
    }

    fn with(self, plugins: &[PluginFact]) -> Self {
        Self { plugins: plugins.to_vec(), ..self }
    }

    fn seen(&self) -> Snapshot {
        let mut story = Story::node();
        story.plugins = self.plugins.clone();
        story.kubelet_connections = self.connections.clone();
        let last = self.looks.last().expect("a look").0;
        for second in 0..=last {
            story.relist(second * S, 0);
        }
        if let Some(version) = self.version {
            let versions = vec![VersionFact { program: "kubelet".into(), version: version.into() }];
            story.fact(0, &Fact::Census(CensusFact { ended_ns: at(0).0, versions, ..CensusFact::default() }));
        }
        for (second, groups) in &self.looks {
            story.census(second * S, &self.processes, &self.containerd, groups);
        }
        let now = last * S + S / 2;
        story.read_open(now).snapshot(now)
    }

    fn finding(&self, id: &str) -> Finding {
        let snapshot = self.seen();
        let diagnosis = diagnose(&snapshot);
        assert_eq!(
            (diagnosis.verdict, diagnosis.unexplained().count()),
            (Verdict::Stall, 0),
            "{diagnosis:#?}"
        );
        only(&snapshot, id)
    }

    fn is_healthy(&self) {
        let diagnosis = diagnose(&self.seen());
        assert_eq!(diagnosis.verdict, Verdict::Healthy, "{diagnosis:#?}");
    }
}

/// A device plugin that was stopped holds up every pod of the node: it is named, with what it has not read and what to do.
#[test]
fn k9_names_the_plugin_that_is_stopped() {
    let others = [
        plugin("device-plugins/other.sock", 71, 'S', 0),
        plugin("plugins/x/csi.sock", 72, 'T', 9),
        PluginFact { kubelet: 1, ..plugin("device-plugins/z.sock", 73, 'T', 9) },
    ];
    let stopped = plugin("device-plugins/gpu.sock", PLUGIN, 'T', 123);
    let node = Node::twice(2, 13, &[allocates()]).with(&[&[stopped][..], &others].concat());
    let finding = node.finding("K9");
    assert_eq!((culprit(&finding), finding.severity, finding.reach), (Some(PLUGIN), Severity::Stall, 2));
    assert_eq!(finding.confidence, Confidence::High);
    assert_eq!(
        finding.headline,
        format!(
            "the sync loop of kubelet {KUBELET} waits for device plugin gpu-plugin {PLUGIN}, which is stopped (state T), to answer Allocate: \
             no pod of this node is started, changed or removed"
        )
    );
    let since = finding.since.unwrap();
    assert_eq!((since.ns, since.at_least), (11 * S, true));
    assert!(finding.next[0].starts_with(&format!("`kill -CONT {PLUGIN}`")), "{:?}", finding.next);
    let told = |part: &str| finding.evidence.iter().any(|evidence| evidence.text.contains(part));
    assert!(
        told("has not read 123 bytes") && told("has not gone on for 11") && told("relists go on"),
        "{finding:#?}"
    );
    let text = text_of(&node.seen(), false).unwrap();
    assert!(text.contains("STALL") && text.contains("no pod of this node is started"), "{text}");
}

/// Less is known: it runs and does not answer, is in a pod, is one of two, or its connection was not found.
#[test]
fn k9_says_what_it_does_not_know() {
    let waits = || Node::twice(2, 13, &[allocates()]);
    let container = Some(ContainerFact {
        id: "c1".into(),
        pod: Some("gpu-x1".into()),
        namespace: Some("kube-system".into()),
        ..ContainerFact::default()
    });
    let one = PluginFact { container, ..plugin("device-plugins/gpu.sock", PLUGIN, 'S', 0) };
    let finding = waits().with(std::slice::from_ref(&one)).finding("K9");
    assert!(
        finding.headline.contains("of kube-system/gpu-x1, which does not answer,"),
        "{}",
        finding.headline
    );
    assert!(finding.next[0].contains(&format!("(pid {PLUGIN}), then restart it")), "{:?}", finding.next);
    let two = waits().with(&[one.clone(), plugin("device-plugins/fpga.sock", 71, 'S', 0)]).finding("K9");
    assert_eq!((culprit(&two), two.confidence), (None, Confidence::Medium));
    assert!(two.headline.contains("one of 2 device plugins"), "{}", two.headline);
    let unseen = waits().with(&[PluginFact { holders: Vec::new(), state: None, ..one }]).finding("K9");
    assert!(unseen.doubts.iter().any(|doubt| doubt.contains("was not seen")), "{:?}", unseen.doubts);
    let nothing = waits().finding("K9");
    assert_eq!((culprit(&nothing), nothing.confidence), (None, Confidence::Medium));
}

/// A plugin that is only slow: each pod is another call. One that answers in between. One that has not waited for long enough: nothing
/// is accused, and the node is not called healthy either.
#[test]
fn k9_does_not_accuse_a_slow_plugin() {
    let at_fingerprint = |print| still(allocates(), print);
    Node::new(&[(2, &[at_fingerprint(1)]), (13, &[at_fingerprint(2)]), (24, &[at_fingerprint(3)])])
        .is_healthy();
    Node::new(&[(2, &[allocates()]), (7, &[idle()]), (13, &[allocates()])]).is_healthy();
    let young = Node::twice(2, 8, &[allocates()]).seen();
    none(&young);
    let diagnosis = diagnose(&young);
    let [Doubt::LoopWaits { what, ns }] = &diagnosis.doubts[..] else { panic!("{diagnosis:#?}") };
    assert_eq!((diagnosis.verdict, *ns), (Verdict::CannotTell, 6 * S));
    assert!(what.contains("waits for a device plugin to answer Allocate"), "{what}");
}

/// Drivers hold up one pod: a CSI driver after 90 s in one call, a DRA driver after 30 s. A slow volume of 20 s is none.
#[test]
fn k9_drivers() {
    let csi = [
        "github.com/container-storage-interface/spec/lib/go/csi.(*nodeClient).NodePublishVolume",
        "k8s.io/kubernetes/pkg/volume/csi.(*csiDriverClient).NodePublishVolume",
        "k8s.io/kubernetes/pkg/volume/util/operationexecutor.(*operationGenerator).GenerateMountVolumeFunc.func1",
    ];
    let mount = [waits(90, "select", &[&GRPC, &csi]), idle()];
    Node::twice(2, 22, &mount).is_healthy();
    let end = plugin("plugins/nfs.csi.k8s.io/csi.sock", PLUGIN, 'S', 0);
    let finding = Node::twice(2, 95, &mount).with(&[end]).finding("K9");
    assert_eq!((culprit(&finding), finding.reach), (Some(PLUGIN), 1));
    let said = "CSI driver gpu-plugin 7070, which does not answer, to answer NodePublishVolume: the pod of that volume";
    assert!(finding.headline.contains(said), "{}", finding.headline);
    let prepare = [
        "k8s.io/kubelet/pkg/apis/dra/v1.(*dRAPluginClient).NodePrepareResources",
        "k8s.io/kubernetes/pkg/kubelet.(*podWorkers).podWorkerLoop",
    ];
    let worker = [waits(91, "select", &[&GRPC, &prepare]), idle()];
    Node::twice(2, 22, &worker).is_healthy();
    let finding =
        Node::twice(2, 33, &worker).with(&[plugin("plugins/gpu/dra.sock", PLUGIN, 'D', 0)]).finding("K9");
    assert!(
        finding.headline.contains("DRA driver gpu-plugin 7070, which hangs in the kernel (state D),"),
        "{}",
        finding.headline
    );
}

const DIFF: &str = "github.com/google/cadvisor/manager.(*manager).getContainersDiff";

/// A lock of cAdvisor that the sync loop wants: with the goroutine that has it, with none, or with itself.
#[test]
fn k10_names_the_lock() {
    let wants = sync_loop("semacquire", &[&LOCK[..], &[DIFF]].concat());
    let alone = Node::twice(2, 13, std::slice::from_ref(&wants)).finding("K10");
    assert_eq!((culprit(&alone), alone.reach, alone.confidence), (Some(KUBELET), 2, Confidence::Medium));
    assert!(
        alone.headline.contains("a lock of the kubelet's own in manager.(*manager).getContainersDiff:"),
        "{}",
        alone.headline
    );
    assert!(alone.next[1].contains("systemctl restart kubelet"), "{:?}", alone.next);
    let create = "github.com/google/cadvisor/manager.(*manager).createContainer";
    let other = "github.com/google/cadvisor/container.(*factory).Lock";
    let holds = waits(40, "sync.RWMutex.RLock", &[&LOCK, &[other, create, "main.housekeeping"]]);
    let queues = waits(41, "sync.RWMutex.RLock", &[&LOCK, &[DIFF, "main.housekeeping"]]);
    let finding = Node::twice(2, 13, &[wants, holds, queues]).finding("K10");
    assert_eq!(finding.confidence, Confidence::Medium, "only stories prove that: {:?}", finding.doubts);
    assert!(finding.headline.contains("and whoever has it waits, too"), "{}", finding.headline);
    assert!(
        finding.evidence.iter().any(|evidence| evidence.text.starts_with("goroutine 40, ")),
        "{finding:#?}"
    );
    let again = sync_loop("semacquire", &[&LOCK[..], &[DIFF, create]].concat());
    let itself = Node::twice(2, 13, &[again]).finding("K10");
    assert!(
        itself.headline.contains(
            "a lock of the kubelet's own in manager.(*manager).getContainersDiff that it has itself"
        )
    );
}

/// Kubelets 1.34.0 and 1.34.1 and a DRA driver whose connection went idle: the bug is named, and only for them.
#[test]
fn k10_knows_the_bug_of_1_34() {
    let exit = "google.golang.org/grpc/internal/idle.(*Manager).ExitIdleMode";
    let stack = [
        exit,
        "google.golang.org/grpc.(*ClientConn).Invoke",
        "k8s.io/kubernetes/pkg/kubelet.(*podWorkers).podWorkerLoop",
    ];
    let workers = still(group(&[50, 51], "sync.Mutex.Lock", &[&LOCK[..], &stack].concat()), 7);
    let told = |version| {
        let finding =
            Node { version: Some(version), ..Node::twice(2, 40, &[workers.clone(), idle()]) }.finding("K10");
        assert!(finding.headline.starts_with("the worker of one pod of kubelet"), "{}", finding.headline);
        finding.evidence.iter().any(|evidence| evidence.text.contains("kubernetes#133920"))
    };
    assert_eq!([told("v1.34.1"), told("v1.34.2"), told("1.20.2")], [true, false, false]);
}

/// Another component is to blame: something of the runtime is stuck, the holder waits for the runtime or a plugin, a thread of the kubelet
/// hangs in the kernel. And nobody: the lock was had in between.
#[test]
fn k10_is_not_guessed() {
    let wants = || sync_loop("semacquire", &[&LOCK[..], &[DIFF]].concat());
    let no = |node: &Node| {
        let diagnosis = diagnose(&node.seen());
        assert!(!ids(&diagnosis).contains(&"K10"), "{diagnosis:#?}");
        diagnosis
    };
    let shim = stopped(process(Component::Shim, SHIM, 1, 0));
    let behind =
        Node { processes: vec![shim], containerd: vec![update(), lists()], ..Node::twice(2, 13, &[wants()]) };
    assert_eq!(no(&behind).findings[0].rule.id, "R1");
    let create = "github.com/google/cadvisor/manager.(*manager).createContainer";
    let list = "k8s.io/cri-api/pkg/apis/runtime/v1.(*runtimeServiceClient).ListContainers";
    let holds = waits(40, "select", &[&GRPC, &[list, create]]);
    let diagnosis = no(&Node::twice(2, 13, &[wants(), holds]));
    assert_eq!(diagnosis.verdict, Verdict::Stall, "it hangs all the same");
    assert!(matches!(&diagnosis.reasons[..], [Reason::Stuck(_)]), "{diagnosis:#?}");
    let diagnosis = no(&Node::twice(
        2,
        13,
        &[
            wants(),
            waits(
                44,
                "select",
                &[&GRPC, &ALLOCATE, &["k8s.io/kubernetes/pkg/kubelet.(*podWorkers).podWorkerLoop"]],
            ),
        ],
    ));
    assert_eq!(diagnosis.verdict, Verdict::Stall);
    Node::new(&[(2, &[still(wants(), 1)]), (13, &[still(wants(), 2)])]).is_healthy();
    Node::new(&[(2, &[wants()]), (7, &[idle()]), (13, &[wants()])]).is_healthy();
}

/// The volume populator waits for its turn, or for an answer; the report of the node's status is in one request after the other.
#[test]
fn l1_has_evidence() {
    let populator =
        "k8s.io/kubernetes/pkg/kubelet/volumemanager/populator.(*desiredStateOfWorldPopulator).populatorLoop";
    let limited = [
        waits(
            77,
            "select",
            &[&["runtime.selectgo", "golang.org/x/time/rate.(*Limiter).WaitN", REQUEST[1], populator]],
        ),
        idle(),
    ];
    let finding = Node::twice(2, 70, &limited).finding("L1");
    assert!(
        finding.headline.contains("the kubelet limits its own requests: no pod with volumes is started"),
        "{}",
        finding.headline
    );
    assert!(finding.next[1].contains("kubeAPIQPS"), "{:?}", finding.next);
    let asks = [waits(77, "select", &[&["runtime.selectgo"], &REQUEST, &[populator]]), idle()];
    let finding = Node::twice(2, 40, &asks).finding("L1");
    assert_eq!((culprit(&finding), finding.reach, finding.since.unwrap().ns), (None, 2, 38 * S));
    assert!(
        finding.headline.contains("waits for the API server, which does not answer"),
        "{}",
        finding.headline
    );
    let update = "k8s.io/kubernetes/pkg/kubelet.(*Kubelet).syncNodeStatus";
    let request = |print| still(waits(78, "select", &[&["runtime.selectgo"], &REQUEST, &[update]]), print);
    let again = |last: u64| {
        let looks =
            (2..=last).step_by(10).map(|second| (second, vec![request(second as u32), idle()])).collect();
        Node { looks, ..Node::new(&[]) }
    };
    let finding = again(72).finding("L1");
    assert!(finding.evidence[0].text.contains("found so at 8 looks over 70.0 s"), "{finding:#?}");
    again(42).is_healthy();
    // Both at once are one finding, and the worst of them gives it its name.
    let both = [asks[0].clone(), request(7), idle()];
    let finding = Node::twice(2, 40, &both).finding("L1");
    assert!(
        finding.headline.starts_with("the report of the node's status of kubelet"),
        "{}",
        finding.headline
    );
    assert_eq!(finding.victims.len(), 2);
}

/// The kernel's account of a connection tells the API server from the way to it; of several, none is chosen.
#[test]
fn l1_tells_the_server_from_the_way_to_it() {
    let update = "k8s.io/kubernetes/pkg/kubelet.(*Kubelet).syncNodeStatus";
    let asks = [waits(78, "select", &[&["runtime.selectgo"], &REQUEST, &[update]]), idle()];
    let sent = SentFact {
        peer: "192.0.2.7:6443".parse().unwrap(),
        connecting: false,
        received: 9_000,
        quiet_ms: 61_000,
        sent_ms: 4_000,
        unacked: 0,
        resent: 0,
    };
    let finding = |connections: &[SentFact]| {
        let fact = |pid| KubeletConnections { pid, connections: connections.to_vec(), ..Default::default() };
        let connections = vec![KubeletConnections { left_out: 1, ..fact(KUBELET + 1) }, fact(KUBELET)];
        let finding = Node { connections, ..Node::twice(2, 40, &asks) }.finding("L1");
        let evidence = finding.evidence.iter().map(|one| one.text.clone());
        let evidence = evidence.filter(|text| text.contains("TCP")).collect::<Vec<_>>();
        (finding.culprit.unwrap().words, finding.next, evidence)
    };
    let (words, next, evidence) = finding(std::slice::from_ref(&sent));
    assert_eq!(words, "the API server, or a proxy before it (connection to 192.0.2.7:6443)");
    assert_eq!(next[0], "`curl -k https://192.0.2.7:6443/healthz` from this node");
    let said = "1 TCP connection to 192.0.2.7:6443: all that was sent is acknowledged, last byte received 61.0 s ago";
    assert_eq!(evidence, [said]);
    let lost = SentFact { unacked: 1_200, resent: 5, ..sent.clone() };
    let connecting = SentFact { connecting: true, received: 0, resent: 1, ..sent.clone() };
    let (words, next, evidence) = finding(&[SentFact { quiet_ms: 62_000, ..lost }, connecting.clone()]);
    assert_eq!(words, "the way to the API server, or its machine (connection to 192.0.2.7:6443)");
    assert!(next[0].starts_with("`ip route get 192.0.2.7`"), "{next:?}");
    assert!(
        evidence[0].contains("1.1 KiB not acknowledged, sent again 5 times, last byte received 62.0 s ago"),
        "{evidence:?}"
    );
    assert!(
        evidence[0].starts_with("2 TCP connections to 192.0.2.7:6443, the longest wait:"),
        "{evidence:?}"
    );
    let evidence = finding(&[connecting]).2;
    assert!(evidence[0].ends_with("nothing has answered, sent again 1 time"), "{evidence:?}");
    let young = SentFact { unacked: 40, received: 0, quiet_ms: 9_000, ..sent.clone() };
    let (words, _, evidence) = finding(&[young]);
    assert_eq!(words, "the API server, or the way to it (connection to 192.0.2.7:6443)");
    assert!(evidence[0].contains("no byte has come for 9.0 s"), "{evidence:?}");
    let answered = SentFact { quiet_ms: 3_900, peer: "192.0.2.9:443".parse().unwrap(), ..sent.clone() };
    assert!(finding(&[sent.clone(), answered.clone()]).0.contains("192.0.2.7:6443"));
    let other = SentFact { sent_ms: 100, ..answered };
    for connections in [&[sent, other][..], &[]] {
        let (words, next, _) = finding(connections);
        assert_eq!(words, "the API server, or the way to it");
        assert!(next[0].contains("https://APISERVER:6443/healthz"), "{next:?}");
    }
}

/// A loop that hangs for no reason that is known is a stall all the same, which says what stops.
#[test]
fn a_loop_that_hangs_for_no_known_reason() {
    let wants = sync_loop(
        "chan send",
        &["runtime.chansend", "k8s.io/kubernetes/pkg/kubelet.(*podKillerWithChannel).KillPod"],
    );
    let snapshot = Node::twice(2, 33, &[wants]).seen();
    none(&snapshot);
    let diagnosis = diagnose(&snapshot);
    assert_eq!(diagnosis.verdict, Verdict::Stall);
    let text = text_of(&snapshot, false).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
    for said in [
        "waits for another goroutine of the kubelet in kubelet.(*podKillerWithChannel).KillPod, ≥ 31.0 s",
        "hits no pod of this node is started, changed or removed",
    ] {
        assert!(text.contains(said), "{text}");
    }
}

/// Image pulls, drains, calls of the runtime, mounts by programs and probes: nobody is accused on a node that is busy with them for an
/// hour.
#[test]
fn a_busy_node_is_healthy() {
    let worker = "k8s.io/kubernetes/pkg/kubelet.(*podWorkers).podWorkerLoop";
    let mount = "k8s.io/kubernetes/pkg/volume/util/operationexecutor.(*operationGenerator).GenerateMountVolumeFunc.func1";
    let probe = format!("{PKG}/prober.(*worker).run");
    let groups = [
        idle(),
        waits(100, "select", &[&GRPC, &["k8s.io/cri-client/pkg.(*remoteImageService).PullImage", worker]]),
        waits(
            101,
            "chan receive",
            &[&[
                "runtime.chanrecv1",
                "k8s.io/kubernetes/pkg/kubelet/images.(*parallelImagePuller).pullImage",
                worker,
            ]],
        ),
        waits(
            102,
            "semacquire",
            &[&["runtime.semacquire1", "sync.runtime_Semacquire", "sync.(*WaitGroup).Wait", worker]],
        ),
        waits(103, "chan receive", &[&["runtime.chanrecv1", "os/exec.(*Cmd).Wait", mount]]),
        waits(104, "select", &[&["runtime.selectgo", "net/http.(*Transport).roundTrip", &probe]]),
        waits(105, "chan receive", &[&["runtime.chanrecv1", worker]]),
    ];
    let node = Node::twice(2, 3_602, &groups);
    node.is_healthy();
    let text = text_of(&node.seen(), false).unwrap();
    let line = |label: &str| {
        text.lines().find(|line| line.trim_start().starts_with(label)).unwrap_or_default().to_owned()
    };
    assert!(
        line("watched ").contains("loops of the kubelet") && !line("not ").contains("loops of the kubelet"),
        "{text}"
    );
}

/// One look, looks of an earlier version, or none of late: the loops were not watched, and nobody says so.
#[test]
fn what_was_read_once_was_not_watched() {
    let told = |node: &Node| {
        node.is_healthy();
        let text = text_of(&node.seen(), false).unwrap();
        let line = |label: &str| {
            text.lines().find(|line| line.trim_start().starts_with(label)).unwrap_or_default().to_owned()
        };
        (line("watched ").contains("loops"), line("not ").contains("other loops of the kubelet"))
    };
    assert_eq!(told(&Node::new(&[(2, &[idle()])])), (false, true));
    let old = GoroutineGroup { fingerprints: Vec::new(), ..allocates() };
    assert_eq!(told(&Node::twice(2, 60, &[old])), (false, true));
    let elsewhere = waits(9, "select", &[&["runtime.selectgo", "main.run"]]);
    assert_eq!(told(&Node::twice(2, 13, &[elsewhere])), (false, true));
    assert_eq!(told(&Node::twice(2, 13, &[idle()])), (true, false));
}
