//! R17: nothing comes of an image any more, and who is to blame for that; what takes its time accuses nobody.

use plegtrace::correlate::Snapshot;
use plegtrace::diagnose::{Confidence, Severity, Verdict, diagnose};
use plegtrace::input::{Downloads, GoroutineGroup, Layer, TcpFact};
use plegtrace_tests::found::group;
use plegtrace_tests::story::{CONTAINERD, S, Story, at};

use super::{culprit, none, only};

/// Goroutines of the handler, of the fetch, and of the kubelet's pull.
const HANDLER: u64 = 70;
const FETCH: u64 = 71;
const PULLER: u64 = 72;
/// Socket of the connection to the registry.
const SOCKET: u64 = 5_001;

fn connection(received: u64, quiet_s: u32) -> TcpFact {
    let quiet_ms = quiet_s * 1_000;
    let peer = "192.0.2.7:443".parse().unwrap();
    TcpFact { inode: SOCKET, peer, received, quiet_ms, sent_ms: quiet_ms + 20, unread: 0 }
}

fn handler() -> GoroutineGroup {
    let frames = [
        "sync.(*WaitGroup).Wait",
        "golang.org/x/sync/errgroup.(*Group).Wait",
        "github.com/containerd/containerd/v2/core/images.Dispatch",
        "github.com/containerd/containerd/v2/internal/cri/server/images.(*CRIImageService).PullImage",
        "k8s.io/cri-api/pkg/apis/runtime/v1._ImageService_PullImage_Handler",
    ];
    group(&[HANDLER], "semacquire", &frames)
}

/// A download, with these functions innermost.
fn fetch(reason: &str, inner: &[&str]) -> GoroutineGroup {
    let outer = [
        "github.com/containerd/containerd/v2/core/remotes/docker.(*httpReadSeeker).Read",
        "github.com/containerd/containerd/v2/core/content.Copy",
        "github.com/containerd/containerd/v2/core/remotes.Fetch",
        "github.com/containerd/containerd/v2/core/images.Dispatch.func1",
    ];
    group(&[FETCH], reason, &[inner, &outer].concat())
}

fn at_registry() -> GoroutineGroup {
    fetch("select", &["net/http.(*http2pipe).Read", "net/http.http2transportResponseBody.Read"])
}

/// The kubelet: it pulls one image at a time, and so many pods need one.
fn kubelet(pods: u64) -> Vec<GoroutineGroup> {
    let puller = [
        "google.golang.org/grpc.(*ClientConn).Invoke",
        "k8s.io/cri-api/pkg/apis/runtime/v1.(*imageServiceClient).PullImage",
        "k8s.io/kubernetes/pkg/kubelet/images.(*serialImagePuller).processImagePullRequests",
    ];
    let worker = [
        "k8s.io/kubernetes/pkg/kubelet/images.(*imageManager).pullImage",
        "k8s.io/kubernetes/pkg/kubelet/images.(*imageManager).EnsureImageExists",
    ];
    let goids: Vec<u64> = (200..200 + pods).collect();
    vec![group(&[PULLER], "select", &puller), group(&goids, "chan receive", &worker)]
}

/// What the looks at some moments found: connections, and goroutines of containerd.
type Look = (u64, Vec<TcpFact>, Vec<GoroutineGroup>);

/// A node that pulls an image from its first second on.
fn pulling(looks: &[Look]) -> Story {
    let (mut story, now) = (Story::node(), looks.last().expect("a look").0);
    story.begin(Layer::KubeletClient, "PullImage", PULLER, 0, S);
    story.begin(Layer::Handler, "PullImage", HANDLER, 0, S);
    for n in 0..now / S {
        story.relist(n * S, 0);
    }
    for (ns, connections, groups) in looks {
        let (at_ns, connections) = (at(*ns).0, connections.clone());
        story.downloads = vec![Downloads { at_ns, pid: CONTAINERD, connections, left_out: 0 }];
        story.census(*ns, &[], &[&[handler()], &groups[..]].concat(), &kubelet(4));
    }
    story.read_open(now);
    story
}

fn looked(looks: &[Look]) -> Snapshot {
    pulling(looks).snapshot(looks.last().expect("a look").0)
}

/// The same at two looks, at 80 and 92 s: the last byte came at 10 s.
fn stays(groups: &[GoroutineGroup], connection: impl Fn(u32) -> Vec<TcpFact>) -> Snapshot {
    looked(&[(80 * S, connection(70), groups.to_vec()), (92 * S, connection(82), groups.to_vec())])
}

/// The registry has accepted the connection, sent something, and nothing since: it is named with its address, since when, and how many wait.
#[test]
fn a_silent_registry() {
    let snapshot = stays(&[at_registry()], |quiet| vec![connection(4_096, quiet)]);
    let finding = only(&snapshot, "R17");
    assert_eq!((finding.severity, finding.reach, culprit(&finding)), (Severity::Stall, 2, None));
    assert_eq!(finding.since.unwrap().ns, 82 * S);
    let headline =
        "containerd has got no byte from 192.0.2.7:443 for 82.0 s, and the kubelet waits for an image";
    assert_eq!(finding.headline, headline);
    assert_eq!(finding.victims[1], "3 pulls behind it: the kubelet pulls one image at a time");
    let told = |words: &str| finding.evidence.iter().any(|seen| seen.text.contains(words));
    assert!(told("4.0 KiB received, the last of it 82.0 s ago"), "{finding:#?}");
    assert!(told("waits for the registry"), "{finding:#?}");
    assert!(told("relists go on"), "{finding:#?}");
    let diagnosis = diagnose(&snapshot);
    assert_eq!((diagnosis.verdict, diagnosis.since.unwrap().at), (Verdict::Stall, at(10 * S)));
    assert_eq!(finding.confidence, Confidence::High);
}

/// An image that comes, however slowly, accuses nobody; nor does a connection that has gone, or a new one.
#[test]
fn bytes_that_come() {
    let at_registry = || vec![at_registry()];
    let grows = [
        (80 * S, vec![connection(4_096, 70)], at_registry()),
        (92 * S, vec![connection(5_000, 3)], at_registry()),
    ];
    none(&looked(&grows));
    let other = TcpFact { inode: SOCKET + 1, ..connection(0, 65) };
    let changes = [
        (80 * S, vec![connection(4_096, 70)], at_registry()),
        (92 * S, vec![connection(4_096, 82), other.clone()], at_registry()),
    ];
    none(&looked(&changes));
    let gone = [
        (80 * S, vec![connection(4_096, 70), other], at_registry()),
        (92 * S, vec![connection(4_096, 82)], at_registry()),
    ];
    none(&looked(&gone));
    let two = |quiet| vec![connection(4_096, quiet), TcpFact { inode: SOCKET + 1, ..connection(9, 20) }];
    none(&stays(&at_registry(), two));
    let asked_again = |quiet| vec![TcpFact { sent_ms: 9_000, ..connection(4_096, quiet) }];
    none(&stays(&at_registry(), asked_again));
    none(&stays(&at_registry(), |quiet| vec![connection(4_096, quiet - 40)]));
}

/// To unpack needs no byte, nor does writing a blob to the disk.
#[test]
fn unpacking() {
    let unpack = |frames: &[&str]| {
        let outer = "github.com/containerd/containerd/v2/pkg/unpack.(*Unpacker).unpack";
        group(&[80], "chan receive", &[frames, &[outer]].concat())
    };
    let applies = unpack(&[
        "io.(*PipeReader).Read",
        "github.com/containerd/containerd/v2/core/diff/apply.(*fsApplier).Apply",
    ]);
    let prepares =
        unpack(&["github.com/containerd/containerd/v2/core/snapshots/proxy.(*proxySnapshotter).Prepare"]);
    let commits =
        fetch("select", &["github.com/containerd/containerd/v2/plugins/content/local.(*writer).Commit"]);
    let running = GoroutineGroup { state: "syscall".into(), ..unpack(&["syscall.Syscall"]) };
    let quiet = |quiet| vec![connection(4_096, quiet)];
    for works in [applies, prepares, commits, running] {
        none(&stays(&[at_registry(), works.clone()], quiet));
        none(&stays(std::slice::from_ref(&works), quiet));
    }
    // It waits for the fetch.
    only(&stays(&[at_registry(), unpack(&[])], quiet), "R17");
}

/// Without goroutines, connections, or a second look nothing is known, and nobody is accused.
#[test]
fn without_facts_nobody_is_accused() {
    let quiet = |quiet| vec![connection(4_096, quiet)];
    none(&stays(&[], quiet));
    none(&stays(&[at_registry()], |_| Vec::new()));
    none(&looked(&[(92 * S, quiet(82), vec![at_registry()])]));
    none(&looked(&[(88 * S, quiet(78), vec![at_registry()]), (92 * S, quiet(82), vec![at_registry()])]));
    let dials = fetch(
        "IO wait",
        &["net.(*Dialer).DialContext", "net/http.(*Transport).getConn", "net/http.(*Transport).roundTrip"],
    );
    none(&stays(&[dials], quiet));
    let unread = |quiet| vec![TcpFact { unread: 512, ..connection(4_096, quiet) }];
    none(&stays(&[at_registry()], unread));
    let mut story = pulling(&[(80 * S, quiet(70), vec![at_registry()])]);
    story.downloads = Vec::new();
    story.census(92 * S, &[], &[handler(), at_registry()], &kubelet(1));
    none(&story.snapshot(92 * S));
}

/// containerd can stop its own download: all its slots are lost, or nobody takes the report of progress.
#[test]
fn a_runtime_that_waits_for_itself() {
    let slot = fetch("select", &["golang.org/x/sync/semaphore.(*Weighted).Acquire"]);
    // Without connections there is no clock but the looks.
    let without = |ns: u64| (ns, Vec::new(), vec![slot.clone()]);
    none(&looked(&[without(40 * S), without(92 * S)]));
    let finding = only(&looked(&[without(20 * S), without(92 * S)]), "R17");
    assert_eq!(culprit(&finding), Some(CONTAINERD));
    assert!(finding.headline.contains("one of its own slots"), "{}", finding.headline);
    assert!(finding.next[0].contains("systemctl restart containerd"), "{:?}", finding.next);
    assert_eq!(finding.confidence, Confidence::Medium, "only stories prove it");
    let report = [
        "github.com/containerd/containerd/v2/internal/cri/server/images.(*transferProgressReporter).createProgressFunc.func1",
        "github.com/containerd/containerd/v2/core/transfer/local.(*localTransferService).pull",
    ];
    let unread = |quiet| vec![TcpFact { unread: 512, ..connection(4_096, quiet) }];
    let finding = only(&stays(&[group(&[FETCH], "select", &report)], unread), "R17");
    assert!(finding.headline.contains("report of progress"), "{}", finding.headline);
    assert!(finding.evidence.iter().any(|seen| seen.text.contains("unread")), "{finding:#?}");
    // Whoever waits for a slot waits for those that have one.
    let finding = only(&stays(&[slot, at_registry()], |quiet| vec![connection(1, quiet)]), "R17");
    assert_eq!(culprit(&finding), None);
}

/// A person waits for what he typed.
#[test]
fn crictl_pull() {
    let mut story = Story::node();
    story.begin(Layer::Handler, "PullImage", HANDLER, 0, S);
    for n in 0..92 {
        story.relist(n * S, 0);
    }
    for (ns, quiet) in [(80 * S, 70), (92 * S, 82)] {
        let connections = vec![connection(4_096, quiet)];
        story.downloads = vec![Downloads { at_ns: at(ns).0, pid: CONTAINERD, connections, left_out: 0 }];
        story.census(ns, &[], &[handler(), at_registry()], &[]);
    }
    none(&story.read_open(92 * S).snapshot(92 * S));
}

/// The pull began before the probes: its goroutines tell.
#[test]
fn older_than_the_probes() {
    let mut story = Story::node();
    for n in 0..92 {
        story.relist(n * S, 0);
    }
    for (ns, quiet) in [(70 * S, 60), (80 * S, 70), (92 * S, 82)] {
        let connections = vec![connection(4_096, quiet)];
        story.downloads = vec![Downloads { at_ns: at(ns).0, pid: CONTAINERD, connections, left_out: 0 }];
        story.census(ns, &[], &[handler(), at_registry()], &kubelet(1));
    }
    let finding = only(&story.read_open(92 * S).snapshot(92 * S), "R17");
    assert_eq!(finding.victims, ["the pod that needs the image"]);
}
