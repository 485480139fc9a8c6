//! Two and more looks at a kubelet.

use super::*;
use crate::correlate::thresholds::SECOND_NS;
use crate::input::Holder;

const ALLOCATE: [&str; 5] = [
    "runtime.selectgo",
    "google.golang.org/grpc.(*ClientConn).Invoke",
    "k8s.io/kubernetes/pkg/kubelet/cm/devicemanager.(*endpointImpl).allocate",
    "k8s.io/kubernetes/pkg/kubelet.(*Kubelet).syncLoopIteration",
    "k8s.io/kubernetes/pkg/kubelet.(*Kubelet).syncLoop",
];
const IDLE: [&str; 3] = ["runtime.selectgo", ALLOCATE[3], ALLOCATE[4]];

fn group(goid: u64, fingerprint: u32, frames: &[&str]) -> GoroutineGroup {
    GoroutineGroup {
        count: 1,
        goids: vec![goid],
        fingerprints: vec![fingerprint],
        state: "waiting".to_owned(),
        wait_reason: Some("select".to_owned()),
        parked_by_ns: None,
        frames: frames.iter().map(|frame| (*frame).to_owned()).collect(),
        broken: None,
        subjects: Vec::new(),
    }
}

/// Looks at these moments, in seconds, each of which takes a millisecond.
fn looked(looks: &[(u64, GoroutineGroup)]) -> KubeletLoops {
    let mut loops = None;
    for (second, group) in looks {
        let at = MonoNs(second * SECOND_NS);
        let fact = GoroutinesFact {
            at_ns: at.0,
            took_ns: 1_000_000,
            pid: 9,
            component: Component::Kubelet,
            go_version: String::new(),
            total: 1,
            unread: 0,
            groups: vec![group.clone()],
            groups_left_out: 0,
            last_list_ns: None,
        };
        loops = look(&fact, loops, (at, MonoNs(at.0 + fact.took_ns)), true);
    }
    loops.unwrap_or_default()
}

fn late(looks: &[(u64, GoroutineGroup)]) -> Option<u64> {
    looked(looks).busy.first().and_then(BusyLoop::late_ns).map(|ns| ns.div_ceil(SECOND_NS))
}

/// A loop in its own select is idle, and so is one that waits for its next round; one that runs is at work.
#[test]
fn who_is_idle() {
    let idle = looked(&[(1, group(1, 7, &IDLE)), (20, group(1, 7, &IDLE))]);
    assert_eq!((idle.looks, idle.busy.len(), idle.found.contains(&LoopKind::SyncLoop)), (2, 0, true));
    let until = "k8s.io/kubernetes/vendor/k8s.io/apimachinery/pkg/util/wait.JitterUntil";
    let volumes = "k8s.io/kubernetes/pkg/kubelet/volumemanager/reconciler.(*reconciler).Run";
    assert!(looked(&[(1, group(1, 7, &["runtime.selectgo", until, volumes]))]).busy.is_empty());
    let evicts = "k8s.io/kubernetes/pkg/kubelet/eviction.(*managerImpl).Start.func1";
    assert!(looked(&[(1, group(1, 7, &["runtime.gopark", "time.Sleep", evicts]))]).busy.is_empty());
    let runs = GoroutineGroup { state: "runnable".to_owned(), ..group(1, 7, &ALLOCATE) };
    assert!(looked(&[(1, runs)]).busy.is_empty());
}

/// Late is what has not gone on: not what is found at the same place with another stack, on another goroutine, or with an idle look in
/// between. What a garbage collection saw counts once there were two looks.
#[test]
fn who_is_late() {
    let waits = |print| group(1, print, &ALLOCATE);
    assert_eq!(late(&[(1, waits(7)), (12, waits(7))]), Some(11));
    assert_eq!(late(&[(1, waits(7)), (9, waits(7))]), None, "not yet");
    assert_eq!(late(&[(1, waits(7)), (12, waits(8))]), None, "another call");
    assert_eq!(late(&[(1, waits(7)), (12, group(2, 7, &ALLOCATE))]), None, "another goroutine");
    assert_eq!(late(&[(1, waits(7)), (6, group(1, 7, &IDLE)), (12, waits(7))]), None, "it was idle");
    let parked = |print| GoroutineGroup { parked_by_ns: Some(SECOND_NS), ..waits(print) };
    assert_eq!(late(&[(60, parked(7))]), None, "one look");
    assert_eq!(late(&[(60, parked(7)), (63, parked(7))]), Some(62));
}

/// Requests to the API server that are given up and made again count together, and only these.
#[test]
fn one_request_after_the_other() {
    let update = "k8s.io/kubernetes/pkg/kubelet.(*Kubelet).syncNodeStatus";
    let request =
        |print| group(1, print, &["runtime.selectgo", "k8s.io/client-go/rest.(*Request).request", update]);
    let looks =
        |last: u64| (0..=last).step_by(10).map(|second| (second, request(second as u32))).collect::<Vec<_>>();
    assert_eq!((late(&looks(50)), late(&looks(70))), (None, Some(70)));
    assert_eq!(late(&[(0, request(1)), (40, request(2)), (80, request(3))]), None, "by chance");
    let plugin =
        |last: u64| (0..=last).step_by(10).map(|second| (second, group(1, second as u32, &ALLOCATE)));
    assert_eq!(late(&plugin(300).collect::<Vec<_>>()), None, "it allocates for one pod after the other");
}

/// The kubelet pauses after five requests. A look that meets a pause does not end the row, and names what the looks before it have shown;
/// many pauses, or a long one, are those of a loop whose requests are answered.
#[test]
fn pauses_between_requests() {
    let update = "k8s.io/kubernetes/pkg/kubelet.(*Kubelet).syncNodeStatus";
    let request = |print: u32| {
        group(1, print, &["runtime.selectgo", "k8s.io/client-go/rest.(*Request).request", update])
    };
    let pause =
        || group(1, 7, &["runtime.selectgo", "k8s.io/apimachinery/pkg/util/wait.BackoffUntil", "main.x"]);
    let looks = |places: &str| {
        let one =
            |(at, place): (u64, char)| (10 * at, if place == 'r' { request(at as u32) } else { pause() });
        looked(&(0..).zip(places.chars()).map(one).collect::<Vec<_>>())
    };
    let seconds = |one: &BusyLoop| one.asks_again_ns().map(|ns| ns.div_ceil(SECOND_NS));
    let asks = |places: &str| looks(places).busy.first().and_then(seconds);
    let between = |places: &str| looks(places).between.first().and_then(seconds);
    assert_eq!((asks("rrr-rrr"), asks("rrr-rrrr"), asks("-rrr-rrr")), (None, Some(70), None));
    assert_eq!((between("rrr-rrrr-"), between("rrr-rrrr--"), between("rrr-")), (Some(70), Some(70), None));
    assert_eq!((asks("rrr--rrr"), asks("rrr---rrr")), (Some(70), None), "two looks met one pause");
    assert_eq!((asks("r-rr-rrr"), asks("r-r-rr-r"), asks("r--r--rr")), (Some(70), None, None));
    let same = |second| (second, request(7));
    assert_eq!(
        late(&[same(0), (20, pause()), same(40)]),
        None,
        "its stack is the same by chance: it was idle"
    );
    let all = looks("rrr-rrrr");
    assert_eq!((all.between.len(), all.busy[0].again.looks, all.busy[0].again.pauses), (0, 7, 1));
}

/// Looks of an earlier version have no fingerprints: nothing was watched, and nothing is late.
#[test]
fn looks_without_fingerprints() {
    let old = |second| (second, GoroutineGroup { fingerprints: Vec::new(), ..group(1, 7, &ALLOCATE) });
    assert_eq!(looked(&[old(1), old(60)]), KubeletLoops::default());
    let mixed = looked(&[(1, group(1, 7, &ALLOCATE)), old(30), (60, group(1, 7, &ALLOCATE))]);
    assert_eq!((mixed.looks, mixed.busy[0].looks), (2, 1));
}

/// Pulls, volumes, drains and calls of the runtime have no limit of their own here, however long they last.
#[test]
fn what_may_last() {
    let worker = "k8s.io/kubernetes/pkg/kubelet.(*podWorkers).podWorkerLoop";
    let mount = "k8s.io/kubernetes/pkg/volume/util/operationexecutor.(*operationGenerator).GenerateMountVolumeFunc.func1";
    let pull = "k8s.io/cri-client/pkg.(*remoteImageService).PullImage";
    let invoke = "google.golang.org/grpc.(*ClientConn).Invoke";
    let hour = |frames: &[&str]| late(&[(0, group(1, 7, frames)), (3600, group(1, 7, frames))]);
    for frames in [
        &["runtime.selectgo", invoke, pull, worker][..],
        &[
            "runtime.chanrecv1",
            "k8s.io/kubernetes/pkg/kubelet/images.(*imageManager).EnsureImageExists",
            worker,
        ],
        &[
            "runtime.semacquire1",
            "sync.runtime_Semacquire",
            "sync.(*WaitGroup).Wait",
            "kuberuntime.killContainersWithSyncResult",
            worker,
        ],
        &["runtime.chanrecv1", "os/exec.(*Cmd).Wait", "k8s.io/mount-utils.(*Mounter).doMount", mount],
        &["runtime.gopark", "time.Sleep", "x.retry", worker],
    ] {
        assert_eq!(hour(frames), None, "{frames:?}");
    }
    let csi = "k8s.io/kubernetes/pkg/volume/csi.(*csiDriverClient).NodePublishVolume";
    let slow = |seconds| {
        late(&[(0, group(1, 7, &[invoke, csi, mount])), (seconds, group(1, 7, &[invoke, csi, mount]))])
    };
    assert_eq!((slow(20), slow(60), slow(100)), (None, None, Some(100)));
}

/// At which connection it waits: one of a plugin of its kind, and if some of these do not read, or stand still, one of those.
#[test]
fn which_connection() {
    let loops = looked(&[(1, group(1, 7, &ALLOCATE))]);
    let plugin = |path: &str, unread, state| PluginFact {
        kubelet: 9,
        path: path.to_owned(),
        holders: vec![Holder { pid: 70, comm: "x".to_owned(), fd: 3, orphan: false }],
        state: Some(state),
        unread,
        ..PluginFact::default()
    };
    let [a, b] = ["/var/lib/kubelet/device-plugins/a.sock", "/var/lib/kubelet/device-plugins/b.sock"];
    let found = |all: &[PluginFact]| {
        loops.busy[0].connections(all).iter().map(|fact| fact.path.clone()).collect::<Vec<_>>()
    };
    let csi = plugin("/var/lib/kubelet/plugins/x/csi.sock", 90, 'T');
    assert_eq!(found(&[csi.clone(), plugin(a, 0, 'S'), plugin(b, 0, 'S')]), [a, b]);
    assert_eq!(found(&[csi.clone(), plugin(a, 0, 'S'), plugin(b, 0, 'T')]), [b]);
    assert_eq!(found(&[plugin(a, 40, 'S'), plugin(b, 0, 'S')]), [a]);
    assert_eq!(found(&[PluginFact { kubelet: 8, ..plugin(a, 0, 'S') }, csi]), [""; 0]);
}
