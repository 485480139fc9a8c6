//! Whoever of the node waits in the kernel and is neither late nor a request: a thread of the kubelet, what the kubelet has started, a
//! shim (X4, X6, X11 and their like).

use plegtrace::correlate::Snapshot;
use plegtrace::diagnose::{Confidence, Finding, Severity, Verdict, diagnose};
use plegtrace::input::{
    Answerers, CensusFact, Command, Component, ContainerFact, Fact, GoroutineGroup, Holder, ParkedThreads,
    ProcessFact,
};
use plegtrace_tests::found::{about, group, process, update};
use plegtrace_tests::story::{CONTAINERD, KUBELET, S, Story, at};

use super::exits::shim;
use super::unmounts::parked;
use super::{CHILD, RUNC, SHIM, culprit, ids, none, only, park, syscall};

const AGENT: u32 = 30_001;
const PERMISSION: [&str; 3] = ["fanotify_handle_event", "fsnotify", "do_open"];
const FROZEN: [&str; 3] = ["percpu_rwsem_wait", "__sb_start_write", "mnt_want_write"];
const FUSE: [&str; 2] = ["request_wait_answer", "fuse_simple_request"];
const NFS: [&str; 2] = ["rpc_wait_bit_killable", "nfs4_call_sync"];
const RCU: [&str; 2] = ["__wait_rcu_gp", "synchronize_rcu"];
const AUDIT: [&str; 2] = ["schedule_timeout", "audit_log_start"];

const SYNC_LOOP: &str = "k8s.io/kubernetes/pkg/kubelet.(*Kubelet).syncLoop";
const WORKER: &str = "k8s.io/kubernetes/pkg/kubelet.(*podWorkers).managePodLoop";
const STATISTICS: &str =
    "k8s.io/kubernetes/pkg/kubelet/server/stats.(*volumeStatCalculator).calcAndStoreStats";

fn in_kernel(call: &str, stack: &[&str]) -> ParkedThreads {
    let mut call = syscall(call, None);
    call.path = Some("/var/lib/kubelet/pods/8e1f/x".into());
    let kernel_stack = stack.iter().map(|name| (*name).to_owned()).collect();
    ParkedThreads { state: 'D', kernel_stack, ..park(call) }
}

fn kubelet(stack: &[&str]) -> ProcessFact {
    parked(process(Component::Kubelet, KUBELET, 1, 0), in_kernel("openat", stack))
}

/// A goroutine of the kubelet that works on this, in a call to the file system.
fn works(inner: &[&str], work: &str) -> GoroutineGroup {
    group(&[142], "", &[inner, &[work]].concat())
}

fn opens(work: &str) -> GoroutineGroup {
    works(&["syscall.Syscall6", "syscall.openat", "syscall.Open", "os.openFileNolog"], work)
}

/// What the kubelet has started, `parent` levels below it.
fn child(stack: &[&str], parent: u32) -> ProcessFact {
    let command = Some(Command::Other { program: "/usr/sbin/mount.x".into() });
    let child = ProcessFact { command, ..process(Component::Helper, CHILD, parent, 0) };
    parked(child, in_kernel("openat", stack))
}

/// These processes, with goroutines of kubelet and containerd, looked at in these seconds, while relists go on.
fn looked(
    looks: &[(u64, Vec<ProcessFact>)],
    containerd: &[GoroutineGroup],
    kubelet: &[GoroutineGroup],
) -> Snapshot {
    let mut story = Story::node();
    let (id, sandbox) = ("c1".to_owned(), Some("s1".to_owned()));
    story.containers = vec![ContainerFact { id, sandbox, ..ContainerFact::default() }];
    let last = looks.last().expect("a look").0;
    for second in 1..=last {
        story.relist(second * S, 0);
        for (_, processes) in looks.iter().filter(|look| look.0 == second) {
            story.census(second * S, processes, containerd, kubelet);
            let (now, containers) = (at(second * S).0, story.containers.clone());
            let held = Holder { pid: AGENT, comm: "scannerd".into(), fd: 3, orphan: false };
            let found =
                Answerers { permission: vec![held.clone()], fuse: vec![held], ..Answerers::default() };
            let answerers = Some(found);
            let round =
                CensusFact { began_ns: now, ended_ns: now, answerers, containers, ..CensusFact::default() };
            // What comes last stands for the round.
            story.frames_mut().pop();
            story.fact(second * S, &Fact::Census(round));
        }
    }
    story.read_open(last * S).snapshot(last * S)
}

fn twice(process: &ProcessFact, kubelet: &[GoroutineGroup]) -> Snapshot {
    looked(&[(5, vec![process.clone()]), (11, vec![process.clone()])], &[], kubelet)
}

/// Who is to blame, how bad it is, how far it reaches and how sure that is.
fn told(finding: &Finding) -> (Option<u32>, Severity, u8, Confidence) {
    (culprit(finding), finding.severity, finding.reach, finding.confidence)
}

/// A kubelet whose sync loop waits for an agent, or for a file system that is frozen, holds up all pods, while relists go on.
#[test]
fn the_sync_loop_of_the_kubelet() {
    let sync = [opens(SYNC_LOOP)];
    let snapshot = twice(&kubelet(&PERMISSION), &sync);
    let agent = only(&snapshot, "X11");
    assert_eq!(told(&agent), (Some(AGENT), Severity::Stall, 2, Confidence::High));
    assert_eq!((agent.behind, agent.since.unwrap().ns), (Some(KUBELET), 6 * S));
    let headline = "scannerd 30001 does not permit openat of /var/lib/kubelet/pods/8e1f/x: the sync loop of the kubelet waits";
    assert!(agent.headline.starts_with(headline), "{}", agent.headline);
    assert!(agent.victims[0].starts_with("every change to the pods"), "{:?}", agent.victims);
    assert!(agent.evidence.iter().any(|seen| seen.text.contains("syncLoop")), "{:?}", agent.evidence);
    assert_eq!(diagnose(&snapshot).verdict, Verdict::Stall);
    let frozen = only(&twice(&kubelet(&FROZEN), &sync), "X4");
    assert_eq!(told(&frozen), (Some(KUBELET), Severity::Stall, 2, Confidence::High));
    assert!(frozen.headline.contains("the file system is frozen"), "{}", frozen.headline);
    for (stack, id) in [(&RCU, "X9"), (&AUDIT, "X12")] {
        let finding = only(&twice(&kubelet(stack), &sync), id);
        assert_eq!(told(&finding), (Some(KUBELET), Severity::Stall, 2, Confidence::Medium));
    }
    // What it says of a kubelet in a dead mount is the business of K5.
    only(&twice(&kubelet(&FUSE), &sync), "K5");
    only(&twice(&kubelet(&NFS), &sync), "K5");
}

/// The work for one pod holds up that; statistics hold up none, and what is not known is no stall.
#[test]
fn the_kubelet_by_whose_work_it_is() {
    let of = |stack: &[&str], goroutines: &[GoroutineGroup]| {
        let snapshot = twice(&kubelet(stack), goroutines);
        let diagnosis = diagnose(&snapshot);
        let [finding] = &diagnosis.findings[..] else { panic!("{diagnosis:#?}") };
        (finding.severity, finding.reach, diagnosis.verdict == Verdict::Stall)
    };
    for stack in [&PERMISSION, &FROZEN] {
        assert_eq!(of(stack, &[opens(WORKER)]), (Severity::Stall, 1, true));
        assert_eq!(of(stack, &[opens(STATISTICS)]), (Severity::Notice, 0, false));
        assert_eq!(of(stack, &[]), (Severity::Notice, 0, false));
        assert_eq!(of(stack, &[opens(STATISTICS), opens(SYNC_LOOP)]), (Severity::Stall, 2, true));
    }
    let calls: [[&str; 4]; 5] = [
        ["syscall.Syscall6", "syscall.renameat", "syscall.Rename", "os.rename"],
        ["syscall.Syscall", "syscall.write", "internal/poll.(*FD).Write", "os.(*File).Write"],
        ["syscall.Syscall", "syscall.unlinkat", "os.removeAllFrom", "os.removeAll"],
        ["syscall.Syscall6", "syscall.symlinkat", "syscall.Symlink", "os.Symlink"],
        ["syscall.Syscall6", "syscall.fchmodat", "syscall.Chmod", "os.chmod"],
    ];
    for call in calls {
        assert_eq!(of(&FROZEN, &[works(&call, WORKER)]), (Severity::Stall, 1, true), "{call:?}");
    }
}

/// What the kubelet has started and waits for: a mount, a provider of credentials, also below a program of its own, and a program that
/// it is about to execute.
#[test]
fn what_the_kubelet_has_started() {
    let own = process(Component::Kubelet, KUBELET, 1, 0);
    let starting = parked(process(Component::Kubelet, CHILD, KUBELET, 0), in_kernel("execve", &PERMISSION));
    let script = ProcessFact {
        command: Some(Command::Other { program: "/bin/sh".into() }),
        ..process(Component::Helper, RUNC, KUBELET, 0)
    };
    let cases: [(&[&str], &str, Option<u32>); 4] = [
        (&PERMISSION, "X11", Some(AGENT)),
        (&FROZEN, "X4", Some(CHILD)),
        (&FUSE, "X6", Some(AGENT)),
        (&NFS, "X3", Some(CHILD)),
    ];
    let is_named = |processes: Vec<ProcessFact>, id: &str, who: Option<u32>| {
        let snapshot = looked(&[(5, processes.clone()), (11, processes)], &[], &[]);
        let finding = only(&snapshot, id);
        assert_eq!(
            (culprit(&finding), finding.severity, finding.reach),
            (who, Severity::Stall, 1),
            "{finding:#?}"
        );
        assert_eq!(finding.victims, [format!("kubelet {KUBELET}")]);
        assert_eq!(diagnose(&snapshot).verdict, Verdict::Stall);
        finding
    };
    for (stack, id, who) in cases {
        let finding = is_named(vec![own.clone(), child(stack, KUBELET)], id, who);
        assert!(finding.headline.contains(&format!("mount.x (pid {CHILD})")), "{}", finding.headline);
        is_named(vec![own.clone(), script.clone(), child(stack, RUNC)], id, who);
    }
    let finding = is_named(vec![own, starting], "X11", Some(AGENT));
    assert!(finding.headline.contains(": a program that the kubelet starts"), "{}", finding.headline);
}

/// A shim holds up who waits for it.
#[test]
fn a_shim() {
    let of = |stack: &[&str], groups: &[GoroutineGroup]| {
        let shim = parked(shim(), in_kernel("openat", stack));
        looked(&[(5, vec![shim.clone()]), (11, vec![shim])], groups, &[])
    };
    let update = about(update(), ").UpdateContainerResources", "c1");
    for (stack, id, who) in [(&PERMISSION, "X11", AGENT), (&FROZEN, "X4", SHIM)] {
        let finding = only(&of(stack, std::slice::from_ref(&update)), id);
        assert_eq!(told(&finding), (Some(who), Severity::Stall, 2, Confidence::High), "{finding:#?}");
        assert_eq!(finding.victims, [format!("1 UpdateContainerResources in containerd {CONTAINERD}")]);
        let alone = of(stack, &[]);
        assert_eq!(only(&alone, id).severity, Severity::Notice);
        assert_eq!(diagnose(&alone).verdict, Verdict::Healthy);
    }
}

/// An agent that answers, a thaw that comes, one look, and what runs in a container or belongs to nobody here are none of it.
#[test]
fn others_are_none_of_it() {
    let sync = [opens(SYNC_LOOP)];
    let stacks: [&[&str]; 5] = [&PERMISSION, &FROZEN, &FUSE, &NFS, &RCU];
    let own = process(Component::Kubelet, KUBELET, 1, 0);
    for stack in stacks {
        for seen in [kubelet(stack), child(stack, KUBELET), parked(shim(), in_kernel("openat", stack))] {
            let with = |seen: ProcessFact| {
                if seen.pid == KUBELET { vec![seen] } else { vec![own.clone(), seen] }
            };
            none(&looked(&[(5, with(seen.clone())), (9, with(seen.clone()))], &[], &sync));
            none(&looked(&[(9, with(seen.clone()))], &[], &sync));
            let mut other = seen.clone();
            other.parked[0].syscall.as_mut().unwrap().args[1] = 7;
            none(&looked(&[(5, with(other)), (11, with(seen))], &[], &sync));
        }
        for parent in [SHIM, 1, CONTAINERD + 1] {
            none(&looked(&[(5, vec![child(stack, parent)]), (11, vec![child(stack, parent)])], &[], &[]));
        }
        let runtime = parked(process(Component::Containerd, CONTAINERD, 1, 0), in_kernel("openat", stack));
        none(&twice(&runtime, &sync));
    }
    let disk = child(&["io_schedule", "jbd2_log_wait_commit"], KUBELET);
    let snapshot = looked(&[(5, vec![own.clone(), disk.clone()]), (11, vec![own, disk])], &[], &[]);
    assert_eq!(ids(&diagnose(&snapshot)), [""; 0]);
}
