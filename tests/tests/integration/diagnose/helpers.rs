//! What the kubelet or the runtime runs and waits for, and that is no runc, shim or network plugin: a volume that does not mount holds up
//! its pod although every list comes.

use plegtrace::correlate::Snapshot;
use plegtrace::diagnose::{Reason, Verdict, diagnose};
use plegtrace::input::{Command, Component, FdTarget, ParkedThreads, PipeFact, ProcessFact};
use plegtrace_common::{rec::PROCESS_EXECED, role::Role};
use plegtrace_tests::found::{group, process};
use plegtrace_tests::life::Life as _;
use plegtrace_tests::recordings::text_of;
use plegtrace_tests::story::{CONTAINERD, KUBELET, S, Story};

use super::{CHILD, culprit, only, park, syscall};

const NOW: u64 = 41 * S;

/// A program that a component has run for so long, under this name of the kernel.
fn helper(program: &str, comm: &str, pid: u32, parent: u32) -> ProcessFact {
    let pipe = FdTarget::Pipe(PipeFact::default());
    ProcessFact {
        command: Some(Command::Other { program: program.into() }),
        comm: comm.into(),
        parked: vec![park(syscall("read", Some(pipe)))],
        ..process(Component::Helper, pid, parent, 0)
    }
}

/// A node that lists every second, with these processes, all of which were started at its beginning.
fn listing(processes: &[ProcessFact], now: u64) -> Snapshot {
    let mut story = Story::node();
    for n in 0..now / S {
        story.relist(n * S, 0);
    }
    for looked in [now - 2 * S, now - S] {
        story.census(looked, processes, &[], &[]);
    }
    story.read_open(now).snapshot(now)
}

/// The driver of a volume, which is a script, sleeps in `mount`.
#[test]
fn a_volume_that_does_not_mount() {
    let driver = helper("bash", "example~driver", CHILD, KUBELET);
    let snapshot = listing(std::slice::from_ref(&driver), NOW);
    assert_eq!(diagnose(&snapshot).verdict, Verdict::Stall);
    let finding = only(&snapshot, "H1");
    assert_eq!(
        finding.headline,
        format!("example~driver (bash, pid {CHILD}) has not ended, in read; kubelet {KUBELET} waits for it")
    );
    assert_eq!((culprit(&finding), finding.since.unwrap().ns, finding.reach), (Some(CHILD), NOW, 1));
    assert!(finding.evidence.iter().any(|seen| seen.text.contains("read")), "{finding:#?}");
    assert!(!text_of(&snapshot, true).unwrap().contains("nothing held up"));
    // Whatever is slow is not stuck yet.
    assert_eq!(diagnose(&listing(&[driver], 29 * S)).verdict, Verdict::Healthy);
}

/// The innermost program is named, and those around it wait: a driver runs `mount`, which runs `mount.nfs`.
#[test]
fn the_innermost_program_is_named() {
    let chain = [
        helper("driver", "driver", CHILD, KUBELET),
        helper("mount", "mount", CHILD + 1, CHILD),
        helper("mount.nfs", "mount.nfs", CHILD + 2, CHILD + 1),
    ];
    let finding = only(&listing(&chain, NOW), "H1");
    assert_eq!(culprit(&finding), Some(CHILD + 2));
    assert!(finding.headline.starts_with("mount.nfs (pid 24203)"), "{}", finding.headline);
    let waits = |name: &str| finding.victims.iter().any(|victim| victim.starts_with(name));
    assert!(waits("mount (pid") && waits("driver (pid") && waits("kubelet"), "{finding:#?}");
}

/// A daemon that lost its parents to a kubelet in a container is a child of it, and nobody waits for its end.
#[test]
fn a_daemon_is_not_waited_for() {
    let daemon = ProcessFact { detached: true, ..helper("glusterfs", "glusterfs", CHILD, KUBELET) };
    assert_eq!(diagnose(&listing(&[daemon], NOW)).verdict, Verdict::Healthy);
}

/// What may last is stuck all the same when the kernel waits for a server in it, at each look at the same place.
#[test]
fn what_may_last_and_hangs_in_the_kernel() {
    let waits = |tid| ParkedThreads {
        tid,
        state: 'D',
        kernel_stack: vec!["rpc_wait_bit_killable".into(), "nfs4_do_call_sync".into()],
        ..park(syscall("newfstatat", None))
    };
    let verdict = |tids: [u32; 2]| {
        let mut story = Story::node();
        for (looked, tid) in [(2 * S, tids[0]), (NOW, tids[1])] {
            let du = ProcessFact { parked: vec![waits(tid)], ..helper("du", "du", CHILD, KUBELET) };
            story.relist(looked - S, 0).census(looked, &[du], &[], &[]);
        }
        story.read_open(NOW);
        diagnose(&story.snapshot(NOW)).verdict
    };
    assert_eq!((verdict([1, 1]), verdict([1, 2])), (Verdict::Stall, Verdict::Healthy));
}

/// A request of the runtime that waits for a child waits for its helper; one that waits for a shim does not.
#[test]
fn who_waits_for_a_helper_of_the_runtime() {
    let handler = |inner: &str, goid| {
        let outer = "k8s.io/cri-api/pkg/apis/runtime/v1._RuntimeService_CreateContainer_Handler";
        group(&[goid], "syscall", &[inner, outer])
    };
    let requests =
        [handler("os/exec.(*Cmd).Wait", 5), handler("github.com/containerd/ttrpc.(*Client).dispatch", 6)];
    let mut story = Story::node();
    let mount = [helper("mount", "mount", CHILD, CONTAINERD)];
    for looked in [NOW - 4 * S, NOW] {
        story.relist(looked - S, 0).census(looked, &mount, &requests, &[]);
    }
    let finding = only(&story.snapshot(NOW), "H1");
    assert_eq!(finding.victims[0], "1 CreateContainer in containerd 812");
}

/// Some programs work for as long as a disk or an image is large, or serve for as long as somebody looks: they are late at no age.
#[test]
fn what_may_last_is_not_accused() {
    let well = [
        ("mkfs.ext4", KUBELET),
        ("e2fsck", KUBELET),
        ("resize2fs", KUBELET),
        ("du", KUBELET),
        ("socat", KUBELET),
        ("unpigz", CONTAINERD),
        ("ctd-decoder", CONTAINERD),
        ("10-nri-plugin", CONTAINERD),
        ("docker-proxy", CONTAINERD),
    ];
    for (program, parent) in well {
        let snapshot = listing(&[helper(program, program, CHILD, parent)], 600 * S);
        assert_eq!(diagnose(&snapshot).verdict, Verdict::Healthy, "{program}");
    }
    for (program, parent) in
        [("acr-credential-provider", KUBELET), ("umount", CONTAINERD), ("dmsetup", CONTAINERD)]
    {
        only(&listing(&[helper(program, program, CHILD, parent)], NOW), "H1");
    }
}

/// Without a census the births of processes tell the same, as a reason.
#[test]
fn without_a_census() {
    let late = |program: &str| {
        let mut story = Story::node();
        story.found(KUBELET, Role::Kubelet).fork(KUBELET, CHILD, 0).exec(
            CHILD,
            Role::Helper,
            PROCESS_EXECED,
            0,
        );
        story.told(CHILD, &Command::Other { program: program.into() });
        for n in 0..NOW / S {
            story.relist(n * S, 0);
        }
        story.read_processes(NOW).read_open(NOW);
        let reasons = diagnose(&story.snapshot(NOW)).reasons;
        reasons.iter().any(|reason| matches!(reason, Reason::ProcessesOpen { pid: CHILD, .. }))
    };
    assert_eq!((late("mount"), late("mkfs.xfs")), (true, false));
}
