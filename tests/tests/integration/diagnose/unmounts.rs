//! Unmounts of overlays that write a whole file system to the disk first: whom they hold up, and what is none of them.

use plegtrace::correlate::Snapshot;
use plegtrace::diagnose::{Confidence, Finding, Severity, Verdict, diagnose};
use plegtrace::input::{
    Command, Component, DiskFact, GoroutineGroup, Layer, ParkedThreads, ProcessFact, Unwritten,
};
use plegtrace_tests::found::{group, process};
use plegtrace_tests::story::{CONTAINERD, MS, S, Story};

use super::exits::{INIT, STOPPING, ended_with, shim, stop};
use super::{CHILD, SHIM, culprit, ids, none, only, park, syscall};

/// The root of the container that stops.
pub(super) const ROOT: &str = "/run/containerd/io.containerd.runtime.v2.task/k8s.io/c1/rootfs";
/// Where containerd looks up a user in an image.
const TEMPORARY: &str = "/var/lib/containerd/tmpmounts/containerd-mount1";
/// As Linux 6.18 has it, from the inside.
const STACK: [&str; 13] = [
    "folio_wait_bit",
    "folio_wait_writeback",
    "__filemap_fdatawait_range",
    "filemap_fdatawait_keep_errors",
    "sync_inodes_sb",
    "sync_filesystem",
    "ovl_sync_fs",
    "sync_filesystem",
    "generic_shutdown_super",
    "kill_anon_super",
    "deactivate_locked_super",
    "cleanup_mnt",
    "task_work_run",
];

pub(super) fn in_call(call: &str, path: &str, stack: &[&str]) -> ParkedThreads {
    let mut call = syscall(call, None);
    call.path = Some(path.to_owned());
    let kernel_stack = stack.iter().map(|name| (*name).to_owned()).collect();
    ParkedThreads { state: 'D', kernel_stack, ..park(call) }
}

pub(super) fn parked(process: ProcessFact, park: ParkedThreads) -> ProcessFact {
    ProcessFact { parked: vec![park], ..process }
}

pub(super) fn unmounting() -> ProcessFact {
    parked(shim(), in_call("umount2", ROOT, &STACK))
}

/// Two looks at these processes, with a StopContainer of c1, at these times.
fn looked(shims: [&ProcessFact; 2], times: [u64; 2]) -> Snapshot {
    let [first, second] = shims;
    let mut story = ended_with(first.clone(), Vec::new()).ended();
    story.ended.clear();
    ended_with(first.clone(), vec![stop()]).looks(&mut story, &times[..1]);
    ended_with(second.clone(), vec![stop()]).looks(&mut story, &times[1..]);
    story.snapshot(times[1])
}

fn named(finding: &Finding) -> (Option<u32>, Severity, Confidence, u8) {
    (culprit(finding), finding.severity, finding.confidence, finding.reach)
}

/// The shim is named, with the container whose root it unmounts, and with who waits.
#[test]
fn r3_names_the_shim() {
    let snapshot = looked([&unmounting(), &unmounting()], [S, 7 * S]);
    let finding = only(&snapshot, "R3");
    assert_eq!(named(&finding), (Some(SHIM), Severity::Stall, Confidence::High, 2));
    let container = finding.culprit.as_ref().unwrap().container.as_ref().unwrap();
    assert_eq!((container.id.as_str(), container.pod.as_deref()), ("c1", Some("p1")));
    assert_eq!(finding.victims, [format!("1 StopContainer in containerd {CONTAINERD}")]);
    assert!(finding.headline.contains(" waits in umount2 of /run/"), "{}", finding.headline);
    let place = finding
        .evidence
        .iter()
        .any(|seen| seen.text.ends_with(": sync_inodes_sb < sync_filesystem < ovl_sync_fs"));
    assert!(place, "{:?}", finding.evidence);
    let diagnosis = diagnose(&snapshot);
    assert_eq!(diagnosis.verdict, Verdict::Stall);
    let excluded: Vec<&str> = diagnosis.excluded.iter().map(|excluded| excluded.what).collect();
    assert!(!excluded.contains(&"disk"), "{excluded:?}");
}

/// One who was there before sees the end of the container, one who came later only that it has ended: the runtime goes on saying
/// that it runs, but its exit is not lost.
#[test]
fn the_exit_behind_it_is_not_lost() {
    for early in [true, false] {
        for waiting in [vec![stop()], Vec::new()] {
            let (waits, end) = (!waiting.is_empty(), ended_with(unmounting(), waiting));
            let mut story = end.ended();
            if early {
                story.hook(Layer::Handler, "StopContainer");
                story.begin(Layer::Handler, "StopContainer", STOPPING, 700, MS).exit(S, INIT, 9);
            }
            end.looks(&mut story, &[2 * S, 14 * S]);
            let snapshot = story.relist(12 * S, 0).relist(13 * S, 0).read_open(14 * S).snapshot(14 * S);
            let finding = only(&snapshot, "R3");
            let reach = if waits { 2 } else { 0 };
            assert_eq!(named(&finding), (Some(SHIM), Severity::Stall, Confidence::High, reach));
            assert_eq!(finding.also, ["S5"], "the task is not deleted, and the shim has lost nothing");
            assert!(
                finding.victims.last().unwrap().starts_with("the kubelet, to which the container still runs"),
                "{finding:#?}"
            );
            assert!(finding.evidence.iter().any(|seen| seen.text.starts_with("relists go on")));
            let diagnosis = diagnose(&snapshot);
            assert_eq!(diagnosis.unexplained().count(), 0, "{:?}", diagnosis.reasons);
            assert!(diagnosis.is_settled(&snapshot));
        }
    }
    // The same end without an unmount is lost.
    assert_eq!(only(&ended_with(shim(), vec![stop()]).seen(), "S4").rule.id, "S4");
}

/// An unmount that has just begun may end at once, and one look, or another call, is no wait.
#[test]
fn r3_needs_looks_that_lie_apart() {
    let now = unmounting();
    none(&looked([&now, &now], [S, 5 * S]));
    none(&looked([&shim(), &now], [S, 12 * S]));
    let mut other = now.clone();
    other.parked[0].syscall.as_mut().unwrap().args[0] = 7;
    none(&looked([&other, &now], [S, 12 * S]));
    none(&looked([&now, &shim()], [S, 12 * S]));
}

/// Only what lies under an overlay, only in umount2, and only if it waits for a disk.
#[test]
fn other_waits_are_none_of_it() {
    let is_named = |component: Component, park: ParkedThreads| {
        let seen = parked(ProcessFact { component, ..shim() }, park);
        ids(&diagnose(&looked([&seen, &seen], [S, 12 * S]))).contains(&"R3")
    };
    let within = |call: &str, inner: &[&str], outer: &[&str]| in_call(call, ROOT, &[inner, outer].concat());
    let (flush, overlay) = (&STACK[..6], &STACK[6..]);
    assert!(is_named(Component::Shim, within("umount2", flush, overlay)));
    assert!(is_named(Component::Runc, within("umount2", flush, overlay)));
    assert!(!is_named(Component::Helper, within("umount2", flush, overlay)));
    assert!(!is_named(Component::Shim, within("syncfs", flush, overlay)));
    assert!(!is_named(Component::Shim, within("umount2", flush, &STACK[7..])), "no overlay");
    let others: [&[&str]; 5] = [
        &["rwsem_down_read_slowpath", "down_read"],
        &["percpu_rwsem_wait", "__sb_start_write", "sync_filesystem"],
        &["request_wait_answer", "fuse_simple_request", "fuse_sync_fs", "sync_filesystem"],
        &["rpc_wait_bit_killable", "nfs_wb_all", "sync_filesystem"],
        &[],
    ];
    for other in others {
        assert!(!is_named(Component::Shim, within("umount2", other, overlay)), "{other:?}");
    }
    let grace = ["synchronize_rcu_expedited", "namespace_unlock", "path_umount"];
    assert!(!is_named(Component::Shim, in_call("umount2", ROOT, &grace)));
    assert!(!is_named(Component::Shim, in_call("umount2", ROOT, &[])), "the kernel does not say where");
}

/// A request of another container waits for something else; without anybody who waits it is a notice.
#[test]
fn r3_holds_up_only_its_own_container() {
    let other = parked(shim(), in_call("umount2", &ROOT.replace("c1", "c2"), &STACK));
    for (shim, doubts) in [(other, 1), (parked(shim(), in_call("umount2", "", &STACK)), 1)] {
        let finding = only(&looked([&shim, &shim], [S, 12 * S]), "R3");
        assert_eq!((finding.severity, finding.reach, finding.doubts.len()), (Severity::Notice, 0, doubts));
        assert!(finding.victims.is_empty(), "{:?}", finding.victims);
    }
}

/// A shim that cleans up after another should have ended long ago, whoever waits for it.
#[test]
fn r3_names_a_shim_that_cleans_up() {
    let (namespace, id) = (Some("k8s.io".to_owned()), Some("c1".to_owned()));
    let command = Some(Command::Shim { action: Some("delete".to_owned()), namespace, id });
    let cleans = ProcessFact { command, pid: CHILD, parent: CONTAINERD, ..unmounting() };
    let cleans = ProcessFact { started_ns: process(Component::Shim, CHILD, 1, S).started_ns, ..cleans };
    let mut story = Story::node();
    for look in [2 * S, 14 * S] {
        story.census(look, std::slice::from_ref(&cleans), &[], &[]);
    }
    let snapshot = story.snapshot(14 * S);
    let finding = only(&snapshot, "R3");
    assert_eq!((culprit(&finding), finding.severity), (Some(CHILD), Severity::Stall), "{finding:#?}");
    let diagnosis = diagnose(&snapshot);
    assert_eq!((diagnosis.reasons.len(), diagnosis.unexplained().count()), (1, 0), "{:?}", diagnosis.reasons);
}

/// With hardly anything left to be written it may not be the writing that takes so long.
#[test]
fn r3_tells_what_is_left() {
    let left = |unwritten: Unwritten| {
        let end = ended_with(unmounting(), vec![stop()]);
        let mut story = end.ended();
        story.unwritten = Some(unwritten);
        end.looks(&mut story, &[S, 9 * S]);
        only(&story.snapshot(9 * S), "R3")
    };
    let much = left(Unwritten { dirty: 512 << 20, writeback: 48 << 20 });
    let told = "512.0 MiB on the node wait to be written to disks, and 48.0 MiB are being written";
    assert!(much.evidence.iter().any(|seen| seen.text == told), "{:?}", much.evidence);
    assert_eq!((much.confidence, much.doubts.len()), (Confidence::High, 0));
    let little = left(Unwritten { dirty: 4096, writeback: 4096 });
    assert_eq!(little.confidence, Confidence::Medium);
    assert!(little.doubts[0].contains("(X4)"), "{:?}", little.doubts);
}

/// What the disk with the overlays did tells a slow one from one that is held back.
#[test]
fn r3_tells_what_the_disk_did() {
    let over_eight_seconds = |took_ms: u64| {
        let disk = |took_ms: u64| {
            let (name, in_flight, completed) = ("vdb".to_owned(), 2, took_ms / 50);
            Some(DiskFact { name, in_flight, took_ms, completed, ..DiskFact::default() })
        };
        let of = |disk| ProcessFact { disk, ..unmounting() };
        only(&looked([&of(disk(0)), &of(disk(took_ms))], [S, 9 * S]), "R3")
    };
    let busy = over_eight_seconds(7500);
    let told =
        "disk vdb completed 150 requests in 8.0 s, 50.0 ms each: 0.9 under way on average, 2 at the end";
    assert!(busy.evidence.iter().any(|seen| seen.text == told), "{:?}", busy.evidence);
    assert_eq!(busy.also, ["X2"]);
    let idle = over_eight_seconds(50);
    assert!(idle.also.is_empty() && idle.next[0].starts_with("the disk itself is idle"), "{idle:#?}");
}

/// A CreateContainer that looks up a user in the image.
fn creating() -> GoroutineGroup {
    let handler = "k8s.io/cri-api/pkg/apis/runtime/v1._RuntimeService_CreateContainer_Handler";
    let frames = [
        "syscall.Syscall",
        "golang.org/x/sys/unix.Unmount",
        "github.com/containerd/containerd/mount.unmount",
        "github.com/containerd/containerd/mount.WithTempMount",
        "github.com/containerd/containerd/pkg/cri/server.(*criService).CreateContainer",
        "github.com/containerd/containerd/pkg/cri/server.(*instrumentedService).CreateContainer",
        handler,
    ];
    group(&[9], "syscall", &frames)
}

/// containerd itself unmounts, too: that is no commit of its database (R2), of which a look at fsync beside it still tells.
#[test]
fn r3_is_no_write_of_containerd() {
    let unmounts = in_call("umount2", TEMPORARY, &STACK);
    let sync = ParkedThreads { tid: 2, ..in_call("fdatasync", "", &["io_schedule", "jbd2_log_wait_commit"]) };
    let seen = |parks: &[ParkedThreads], shim: &ProcessFact| {
        let containerd = process(Component::Containerd, CONTAINERD, 1, 0);
        let containerd = ProcessFact { parked: parks.to_vec(), ..containerd };
        let mut story = Story::node();
        story.hook(Layer::Handler, "CreateContainer");
        story.begin(Layer::Handler, "CreateContainer", 9, 700, 0);
        for look in [S, 6 * S, 12 * S] {
            story.census(look, &[containerd.clone(), shim.clone()], &[creating()], &[]);
        }
        diagnose(&story.read_open(12 * S).snapshot(12 * S))
    };
    let diagnosis = seen(std::slice::from_ref(&unmounts), &shim());
    let [finding] = &diagnosis.findings[..] else { panic!("{:#?}", diagnosis.findings) };
    assert_eq!((finding.rule.id, finding.also.as_slice()), ("R3", &[] as &[&str]));
    assert_eq!(named(finding), (Some(CONTAINERD), Severity::Stall, Confidence::High, 2));
    assert_eq!(finding.victims, [format!("1 CreateContainer in containerd {CONTAINERD}")]);
    assert!(finding.next.last().unwrap().contains("1.6.21"), "{:?}", finding.next);
    assert_eq!(diagnosis.unexplained().count(), 0, "{:?}", diagnosis.reasons);
    let both = seen(std::slice::from_ref(&sync), &unmounting());
    let sure: Vec<_> = both.findings.iter().map(|finding| (finding.rule.id, finding.confidence)).collect();
    assert_eq!(sure, [("R2", Confidence::Medium), ("R3", Confidence::Medium)]);
    let alone = seen(&[sync], &shim());
    assert_eq!((ids(&alone), alone.findings[0].confidence), (vec!["R2"], Confidence::High));
}
