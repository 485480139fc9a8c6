//! K5: a thread of the kubelet that waits for the server of a file system, and whose work that is.

use plegtrace::correlate::Snapshot;
use plegtrace::diagnose::{Confidence, Severity, Verdict, diagnose};
use plegtrace::input::{
    Answerers, CensusFact, Component, Fact, GoroutineGroup, Holder, ParkedThreads, ProcessFact,
};
use plegtrace_tests::found::{group, process};
use plegtrace_tests::story::{CONTAINERD, KUBELET, S, Story, at};

use super::{culprit, none, only, park, syscall};

const FUSE: [&str; 3] = ["request_wait_answer", "fuse_do_getattr", "vfs_statx"];
const NFS: [&str; 3] = ["rpc_wait_bit_killable", "nfs4_proc_getattr", "vfs_statx"];
const SERVER: u32 = 30_001;
const VOLUME: &str = "/var/lib/kubelet/pods/8e1f/volumes/kubernetes.io~nfs/data";

const SYNC_LOOP: [&str; 4] = [
    "k8s.io/kubernetes/vendor/k8s.io/mount-utils.(*Mounter).IsLikelyNotMountPoint",
    "k8s.io/kubernetes/pkg/kubelet.(*Kubelet).cleanupOrphanedPodDirs",
    "k8s.io/kubernetes/pkg/kubelet.(*Kubelet).syncLoopIteration",
    "k8s.io/kubernetes/pkg/kubelet.(*Kubelet).syncLoop",
];
const WORKER: [&str; 1] = ["k8s.io/kubernetes/pkg/kubelet.(*podWorkers).managePodLoop"];
const MOUNT: [&str; 1] = [
    "k8s.io/kubernetes/pkg/volume/util/operationexecutor.(*operationGenerator).GenerateMountVolumeFunc.func1",
];
const STATISTICS: [&str; 1] =
    ["k8s.io/kubernetes/pkg/kubelet/server/stats.(*volumeStatCalculator).calcAndStoreStats"];

/// A goroutine of the kubelet in os.Stat.
fn stats(goid: u64, work: &[&str]) -> GoroutineGroup {
    let inner = ["syscall.Syscall6", "syscall.fstatat", "os.statNolog", "os.Stat"];
    group(&[goid], "", &[&inner, work].concat())
}

fn waits(stack: &[&str]) -> ParkedThreads {
    let mut call = syscall("newfstatat", None);
    call.path = Some(VOLUME.into());
    let kernel_stack = stack.iter().map(|name| (*name).to_owned()).collect();
    ParkedThreads { state: 'D', kernel_stack, ..park(call) }
}

fn kubelet(parked: ParkedThreads) -> ProcessFact {
    ProcessFact { parked: vec![parked], ..process(Component::Kubelet, KUBELET, 1, 0) }
}

fn servers(pids: &[u32]) -> Answerers {
    let held = |pid: &u32| Holder { pid: *pid, comm: "s3fs".into(), fd: 3, orphan: false };
    Answerers { fuse: pids.iter().map(held).collect(), ..Answerers::default() }
}

/// What one look finds: at that second, a process, and goroutines of the kubelet.
type Look<'a> = (u64, ProcessFact, &'a [GoroutineGroup]);

/// These looks, while relists go on.
fn looked(looks: &[Look<'_>], found: &Answerers) -> Snapshot {
    let mut story = Story::node();
    let last = looks.last().expect("a look").0;
    for second in 1..=last {
        story.relist(second * S, 0);
        for (_, process, goroutines) in looks.iter().filter(|look| look.0 == second) {
            story.census(second * S, std::slice::from_ref(process), &[], goroutines);
            let now = at(second * S).0;
            let answerers = Some(found.clone());
            let round = CensusFact { began_ns: now, ended_ns: now, answerers, ..CensusFact::default() };
            // What comes last stands for the round.
            story.frames_mut().pop();
            story.fact(second * S, &Fact::Census(round));
        }
    }
    story.snapshot(last * S)
}

/// The same thread and goroutine, found twice, so many seconds apart.
fn twice(apart: u64, stack: &[&str], goroutines: &[GoroutineGroup], found: &Answerers) -> Snapshot {
    let look = |second| (second, kubelet(waits(stack)), goroutines);
    looked(&[look(5), look(5 + apart)], found)
}

/// A sync loop behind a volume holds up all pods, while lists come and PLEG is healthy: the one server of FUSE is to blame,
/// otherwise nobody that is known. It takes five seconds, a server of the file system, and one and the same call.
#[test]
fn k5_of_the_sync_loop() {
    let sync = [stats(142, &SYNC_LOOP)];
    let snapshot = twice(6, &FUSE, &sync, &servers(&[SERVER]));
    let finding = only(&snapshot, "K5");
    assert_eq!((culprit(&finding), finding.behind), (Some(SERVER), Some(KUBELET)));
    assert_eq!((finding.severity, finding.confidence), (Severity::Stall, Confidence::High));
    assert_eq!((finding.reach, finding.since.unwrap().ns), (2, 6 * S));
    let volume = "volume data (kubernetes.io~nfs) of pod 8e1f does not answer: the sync loop of the kubelet hangs in newfstatat";
    assert!(finding.headline.contains(volume), "{}", finding.headline);
    assert!(finding.evidence.iter().any(|seen| seen.text.contains("cleanupOrphanedPodDirs")));
    assert_eq!(diagnose(&snapshot).verdict, Verdict::Stall);
    for found in [servers(&[]), servers(&[SERVER, SERVER + 1])] {
        let unsure = only(&twice(6, &FUSE, &sync, &found), "K5");
        assert_eq!((culprit(&unsure), unsure.confidence), (Some(KUBELET), Confidence::Medium));
    }
    let nfs = only(&twice(6, &NFS, &sync, &Answerers::default()), "K5");
    assert_eq!((culprit(&nfs), nfs.confidence), (Some(KUBELET), Confidence::High));
    assert!(nfs.headline.contains("(NFS)") && nfs.next[0].contains("umount -f -l"), "{nfs:#?}");

    none(&twice(4, &FUSE, &sync, &servers(&[SERVER])));
    none(&twice(6, &["io_schedule", "ext4_getattr"], &sync, &servers(&[SERVER])));
}

/// A thread that was in another call in between has come back from the first: it is slow, and does not hang. The same is
/// true of a goroutine.
#[test]
fn k5_needs_one_and_the_same_call() {
    let sync = [stats(142, &SYNC_LOOP)];
    let found = servers(&[SERVER]);
    let elsewhere = || {
        let mut other = waits(&FUSE);
        other.syscall.as_mut().expect("a call").args[1] = 7;
        kubelet(other)
    };
    let same = || kubelet(waits(&FUSE));
    none(&looked(&[(5, same(), &sync), (8, elsewhere(), &sync), (11, same(), &sync)], &found));
    only(&looked(&[(5, same(), &sync), (8, same(), &sync), (11, same(), &sync)], &found), "K5");
    let other = [stats(142, &WORKER)];
    let moved = looked(&[(5, same(), &sync), (8, same(), &other), (11, same(), &sync)], &found);
    assert_eq!(only(&moved, "K5").severity, Severity::Notice, "no goroutine has stayed there");
    let idle = process(Component::Kubelet, KUBELET, 1, 0);
    none(&looked(&[(5, same(), &sync), (8, same(), &sync), (11, idle, &[])], &found));
}

/// The work for one pod or one volume holds up that; statistics hold up no pod, and neither does what is not known. Of
/// several the worst counts, but only when it has waited, too.
#[test]
fn k5_by_whose_work_it_is() {
    let of = |goroutines: &[GoroutineGroup]| {
        let finding = only(&twice(6, &FUSE, goroutines, &servers(&[SERVER])), "K5");
        (finding.severity, finding.reach)
    };
    assert_eq!(of(&[stats(7, &WORKER)]), (Severity::Stall, 1));
    assert_eq!(of(&[stats(7, &MOUNT)]), (Severity::Stall, 1));
    assert_eq!(of(&[stats(7, &STATISTICS)]), (Severity::Notice, 0));
    assert_eq!(of(&[stats(7, &["main.main"])]), (Severity::Notice, 0));
    assert_eq!(of(&[]), (Severity::Notice, 0));
    assert_eq!(of(&[stats(7, &STATISTICS), stats(8, &SYNC_LOOP)]), (Severity::Stall, 2));
    let waiting = group(&[142], "select", &SYNC_LOOP);
    assert_eq!(of(&[waiting, stats(7, &STATISTICS)]), (Severity::Notice, 0), "it is not in a call");

    let (statistics, both) = ([stats(7, &STATISTICS)], [stats(7, &STATISTICS), stats(8, &SYNC_LOOP)]);
    let looks: [Look<'_>; 2] = [(5, kubelet(waits(&FUSE)), &statistics), (11, kubelet(waits(&FUSE)), &both)];
    let passing = looked(&looks, &servers(&[SERVER]));
    assert_eq!(only(&passing, "K5").severity, Severity::Notice, "it looks at something else, for a moment");
}

/// Where the goroutines cannot be read, as on a node that has hardly any time for us, the thread is a stall all the same, but
/// nobody says whose.
#[test]
fn k5_without_goroutines() {
    let mut story = Story::node();
    for second in 1..=11 {
        story.relist(second * S, 0);
        if second == 5 || second == 11 {
            let now = at(second * S).0;
            let seen = ProcessFact { at_ns: now, ..kubelet(waits(&NFS)) };
            let round = CensusFact { began_ns: now, ended_ns: now, ..CensusFact::default() };
            story.fact(second * S, &Fact::Process(seen)).fact(second * S, &Fact::Census(round));
        }
    }
    let finding = only(&story.snapshot(11 * S), "K5");
    assert_eq!((finding.severity, finding.confidence), (Severity::Stall, Confidence::Medium));
    assert!(finding.doubts[0].contains("could not be read"), "{:?}", finding.doubts);
    assert!(finding.headline.contains(": a thread of the kubelet hangs"), "{}", finding.headline);
}

/// A thread of the runtime that waits so is another matter.
#[test]
fn k5_is_the_kubelet_s() {
    let runtime =
        || ProcessFact { parked: vec![waits(&FUSE)], ..process(Component::Containerd, CONTAINERD, 1, 0) };
    let sync = [stats(142, &SYNC_LOOP)];
    none(&looked(&[(5, runtime(), &sync), (11, runtime(), &sync)], &servers(&[SERVER])));
}
