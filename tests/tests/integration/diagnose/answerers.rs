//! Whoever waits inside the kernel for a program: one that must permit an access (X11), one that serves a file system (R12).

use plegtrace::{
    correlate::Snapshot,
    diagnose::{Confidence, diagnose},
    input::{
        Answerers, CensusFact, Command, Component, Fact, GoroutineGroup, Holder, ParkedThreads, ProcessFact,
    },
};
use plegtrace_tests::{
    found::{group, process},
    story::{CONTAINERD, S, Story, at},
};

use super::{CHILD, RUNC, SHIM, cni, culprit, ids, none, only, park, runc, syscall};

/// Who answers for the kernel.
const AGENT: u32 = 30_001;

fn held(pid: u32) -> Holder {
    Holder { pid, comm: "scannerd".into(), fd: 3, orphan: false }
}

fn in_kernel(call: &str, stack: &[&str]) -> ParkedThreads {
    let mut call = syscall(call, None);
    call.path = Some("/mnt/data".into());
    let kernel_stack = stack.iter().map(|name| (*name).to_owned()).collect();
    ParkedThreads { state: 'D', kernel_stack, ..park(call) }
}

fn scanned() -> ParkedThreads {
    in_kernel("openat", &["fanotify_handle_event", "fsnotify", "do_open", "path_openat"])
}

/// Two looks, the second at `ns`, which also find who answers.
fn looked(ns: u64, processes: &[ProcessFact], containerd: &[GoroutineGroup], found: &Answerers) -> Snapshot {
    let mut story = Story::node();
    for round in [ns - 11 * S, ns] {
        story.census(round, processes, containerd, &[]);
        let now = at(round).0;
        let answerers = Some(found.clone());
        let round = CensusFact { began_ns: now, ended_ns: now, answerers, ..CensusFact::default() };
        // The round is told by what comes last; its processes once more.
        story.frames_mut().pop();
        story.fact(now - at(0).0, &Fact::Census(round));
    }
    story.snapshot(ns)
}

fn agents(pids: &[u32]) -> Answerers {
    Answerers { permission: pids.iter().copied().map(held).collect(), ..Answerers::default() }
}

/// A hook in open, and the agent that must permit it: the agent is to blame, not the hook. Without it, or with several,
/// the finding is doubted; who looks at another thing than fanotify is a hook that hangs.
#[test]
fn x11_names_the_agent() {
    let node = |park: ParkedThreads, started: u64| {
        let command = Some(Command::Other { program: "/opt/gpu-hook".into() });
        let hook =
            ProcessFact { command, parked: vec![park], ..process(Component::Helper, CHILD, RUNC, started) };
        [hook, runc("create", RUNC, SHIM), process(Component::Shim, SHIM, 1, 0)]
    };
    let hook = node(scanned(), 0);
    let snapshot = looked(20 * S, &hook, &[], &agents(&[AGENT]));
    let finding = only(&snapshot, "X11");
    assert_eq!((culprit(&finding), finding.confidence), (Some(AGENT), Confidence::High));
    assert!(
        finding.headline.contains("scannerd 30001 does not permit openat of /mnt/data"),
        "{}",
        finding.headline
    );
    assert!(finding.next[0].contains("restart scannerd"), "{:?}", finding.next);
    let diagnosis = diagnose(&snapshot);
    assert_eq!(diagnosis.unexplained().count(), 0, "{:?}", diagnosis.reasons);

    let several = only(&looked(20 * S, &hook, &[], &agents(&[AGENT, AGENT + 1])), "X11");
    assert_eq!((culprit(&several), several.confidence), (Some(CHILD), Confidence::Medium));
    let nobody = only(&looked(20 * S, &hook, &[], &Answerers::default()), "X11");
    assert_eq!((culprit(&nobody), nobody.confidence), (Some(CHILD), Confidence::Medium));
    let partly = Answerers { incomplete: true, ..agents(&[AGENT]) };
    assert_eq!(only(&looked(20 * S, &hook, &[], &partly), "X11").confidence, Confidence::Medium);

    let elsewhere = in_kernel("openat", &["wait_for_partner", "fifo_open"]);
    only(&looked(20 * S, &node(elsewhere, 0), &[], &agents(&[AGENT])), "U10");
    none(&looked(20 * S, &node(scanned(), 16 * S), &[], &agents(&[AGENT])));
}

/// The same of a network plugin, and of a request that is in open itself; a thread of the runtime that is not the
/// request's proves nothing.
#[test]
fn x11_of_plugins_and_requests() {
    only(&looked(20 * S, &[cni(CHILD, scanned())], &[], &agents(&[AGENT])), "X11");
    let containerd =
        || ProcessFact { parked: vec![scanned()], ..process(Component::Containerd, CONTAINERD, 1, 0) };
    let opens = request(&["syscall.Syscall6", "syscall.openat", "os.OpenFile"]);
    only(&looked(20 * S, &[containerd()], &[opens], &agents(&[AGENT])), "X11");
    let waits = request(&["runtime.gopark", "runtime.chanrecv"]);
    none(&looked(20 * S, &[containerd()], &[waits], &agents(&[AGENT])));
}

/// A hook, a plugin or a request on FUSE: its server is to blame when there is only one, otherwise what waits; without the
/// wait for FUSE it is a hook that hangs, and one that has just begun is none.
#[test]
fn x6_names_the_server() {
    let fuse = || in_kernel("openat", &["request_wait_answer", "fuse_simple_request", "fuse_lookup_name"]);
    let node = |park: ParkedThreads, started: u64| {
        let command = Some(Command::Other { program: "/opt/gpu-hook".into() });
        let hook =
            ProcessFact { command, parked: vec![park], ..process(Component::Helper, CHILD, RUNC, started) };
        [hook, runc("create", RUNC, SHIM), process(Component::Shim, SHIM, 1, 0)]
    };
    let servers =
        |pids: &[u32]| Answerers { fuse: pids.iter().copied().map(held).collect(), ..Answerers::default() };
    let finding = only(&looked(20 * S, &node(fuse(), 0), &[], &servers(&[AGENT])), "X6");
    assert_eq!((culprit(&finding), finding.behind), (Some(AGENT), Some(CHILD)));
    assert_eq!(finding.confidence, Confidence::High);
    assert!(finding.headline.contains("openat of /mnt/data"), "{}", finding.headline);
    for found in [servers(&[]), servers(&[AGENT, AGENT + 1])] {
        let unsure = only(&looked(20 * S, &node(fuse(), 0), &[], &found), "X6");
        assert_eq!((culprit(&unsure), unsure.confidence), (Some(CHILD), Confidence::Medium));
    }
    only(&looked(20 * S, &[cni(CHILD, fuse())], &[], &servers(&[AGENT])), "X6");
    let containerd =
        || ProcessFact { parked: vec![fuse()], ..process(Component::Containerd, CONTAINERD, 1, 0) };
    let opens = request(&["syscall.Syscall6", "syscall.openat", "os.OpenFile"]);
    only(&looked(20 * S, &[containerd()], &[opens], &servers(&[AGENT])), "X6");

    let elsewhere = in_kernel("openat", &["wait_for_partner", "fifo_open"]);
    only(&looked(20 * S, &node(elsewhere, 0), &[], &servers(&[AGENT])), "U10");
    none(&looked(20 * S, &node(fuse(), 16 * S), &[], &servers(&[AGENT])));
}

fn request(innermost: &[&str]) -> GoroutineGroup {
    let outer = [
        "github.com/containerd/containerd/pkg/cri/server.(*criService).CreateContainer",
        "k8s.io/cri-api/pkg/apis/runtime/v1._RuntimeService_CreateContainer_Handler",
    ];
    group(&[77], "", &[innermost, &outer].concat())
}

/// `CreateContainer` in `os.Stat`, with a thread in the kernel for it: the program that serves the file system is to
/// blame when there is only one, otherwise the mount. A local disk, another call and a young one are none of it.
#[test]
fn r12_needs_the_stat_and_the_file_system() {
    let stat = || request(&["syscall.Syscall6", "syscall.fstatat", "os.statNolog", "os.Stat"]);
    let fuse = ["request_wait_answer", "fuse_simple_request", "fuse_do_getattr", "vfs_statx"];
    let containerd = |stack: &[&str]| {
        let parked = vec![in_kernel("newfstatat", stack)];
        [ProcessFact { parked, ..process(Component::Containerd, CONTAINERD, 1, 0) }]
    };
    let servers =
        |pids: &[u32]| Answerers { fuse: pids.iter().copied().map(held).collect(), ..Answerers::default() };
    let finding = only(&looked(20 * S, &containerd(&fuse), &[stat()], &servers(&[AGENT])), "R12");
    assert_eq!((culprit(&finding), finding.confidence), (Some(AGENT), Confidence::High));
    assert!(
        finding.headline.contains("the file system (FUSE) of /mnt/data does not answer"),
        "{}",
        finding.headline
    );
    for found in [servers(&[]), servers(&[AGENT, AGENT + 1])] {
        let unsure = only(&looked(20 * S, &containerd(&fuse), &[stat()], &found), "R12");
        assert_eq!((culprit(&unsure), unsure.confidence), (Some(CONTAINERD), Confidence::Medium));
    }
    let nfs = containerd(&["rpc_wait_bit_killable", "nfs4_proc_getattr", "vfs_statx"]);
    let finding = only(&looked(20 * S, &nfs, &[stat()], &Answerers::default()), "R12");
    assert_eq!((culprit(&finding), finding.confidence), (Some(CONTAINERD), Confidence::High));
    assert!(finding.headline.contains("(NFS)"), "{}", finding.headline);

    none(&looked(20 * S, &containerd(&["io_schedule", "ext4_getattr"]), &[stat()], &servers(&[AGENT])));
    let opens = request(&["syscall.Syscall6", "syscall.openat", "os.OpenFile"]);
    only(&looked(20 * S, &containerd(&fuse), &[opens], &servers(&[AGENT])), "X6");
    let mut young = Story::node();
    young.census(17 * S, &containerd(&fuse), &[stat()], &[]).census(
        20 * S,
        &containerd(&fuse),
        &[stat()],
        &[],
    );
    assert_eq!(ids(&diagnose(&young.snapshot(20 * S))), [] as [&str; 0]);
}
