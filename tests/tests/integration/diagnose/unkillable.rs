//! Processes of containers that SIGKILL does not end, because they wait in the kernel (X6 and its like, X13).

use plegtrace::correlate::Snapshot;
use plegtrace::diagnose::{Severity, Verdict, diagnose};
use plegtrace::input::{Answerers, CensusFact, ContainerFact, Fact, Holder, ParkedThreads, Unkillable};
use plegtrace_tests::found::{about, group};
use plegtrace_tests::story::{S, Story, at};

use super::{CHILD, culprit, none, only, park, syscall};

const SERVER: u32 = 30_001;
const FUSE: [&str; 2] = ["request_wait_answer", "fuse_simple_request"];
const NFS: [&str; 2] = ["rpc_wait_bit_killable", "nfs4_call_sync"];
const FROZEN: [&str; 2] = ["__sb_start_write", "mnt_want_write"];
const DISK: [&str; 2] = ["io_schedule", "folio_wait_bit_common"];

fn waits(stack: &[&str], argument: u64) -> ParkedThreads {
    let mut call = syscall("openat", None);
    call.args[1] = argument;
    call.path = None;
    let kernel_stack = stack.iter().map(|name| (*name).to_owned()).collect();
    ParkedThreads { state: 'D', kernel_stack, tid: CHILD, ..park(call) }
}

fn container() -> ContainerFact {
    let (pod, namespace) = (Some("web".to_owned()), Some("default".to_owned()));
    ContainerFact { id: "c1".into(), sandbox: Some("s1".into()), pod, namespace, ..ContainerFact::default() }
}

/// A killed process of container c1 that waits there, looked at in these seconds; a StopContainer waits for its end.
fn looked(looks: &[(u64, Option<ParkedThreads>)], started_ns: &[u64]) -> Snapshot {
    let mut story = Story::node();
    let last = looks.last().expect("a look").0;
    let frames = [
        "github.com/containerd/containerd/pkg/cri/server.(*criService).waitContainerStop",
        "github.com/containerd/containerd/pkg/cri/server.(*criService).stopContainer",
        "github.com/containerd/containerd/pkg/cri/server.(*criService).StopContainer",
        "k8s.io/cri-api/pkg/apis/runtime/v1._RuntimeService_StopContainer_Handler",
    ];
    let stop = about(group(&[77], "select", &frames), ").StopContainer", "c1");
    for second in 1..=last {
        story.relist(second * S, 0);
        for (place, (_, found)) in looks.iter().enumerate().filter(|(_, look)| look.0 == second) {
            story.census(second * S, &[], std::slice::from_ref(&stop), &[]);
            let now = at(second * S).0;
            let unkillable = found.iter().map(|park| Unkillable {
                at_ns: now,
                pid: CHILD,
                comm: "cat".into(),
                started_ns: started_ns.get(place).or(started_ns.first()).copied(),
                container: Some(container()),
                park: park.clone(),
            });
            let server = Holder { pid: SERVER, comm: "s3fs".into(), fd: 3, orphan: false };
            let round = CensusFact {
                began_ns: now,
                ended_ns: now,
                containers: vec![container()],
                unkillable: unkillable.collect(),
                answerers: Some(Answerers { fuse: vec![server], ..Answerers::default() }),
                ..CensusFact::default()
            };
            // What comes last stands for the round.
            story.frames_mut().pop();
            story.fact(second * S, &Fact::Census(round));
        }
    }
    story.read_open(last * S).snapshot(last * S)
}

fn twice(stack: &[&str]) -> Snapshot {
    looked(&[(5, Some(waits(stack, 0))), (11, Some(waits(stack, 0)))], &[])
}

/// The cause is whoever does not answer; the pod, and who stops it, are held up.
#[test]
fn a_killed_process_that_waits_in_the_kernel() {
    for (stack, id, who) in
        [(&FUSE, "X6", SERVER), (&NFS, "X3", CHILD), (&FROZEN, "X4", CHILD), (&DISK, "X13", CHILD)]
    {
        let snapshot = twice(stack);
        let finding = only(&snapshot, id);
        assert_eq!((culprit(&finding), finding.severity), (Some(who), Severity::Stall), "{finding:#?}");
        let who = format!("the killed cat (pid {CHILD}) of default/web");
        assert!(finding.headline.contains(&who), "{}", finding.headline);
        assert!(finding.victims[0].starts_with("StopContainer in containerd 812"), "{:?}", finding.victims);
        assert!(finding.victims[1].contains("stays Terminating"), "{:?}", finding.victims);
        assert!(finding.evidence.iter().any(|seen| seen.text.contains("SIGKILL is pending")), "{finding:#?}");
        assert_eq!(diagnose(&snapshot).verdict, Verdict::Stall);
    }
}

/// One look, one that ended in between, another process of that number, another call: that is how processes end.
#[test]
fn one_that_ends_is_no_finding() {
    for stack in [&FUSE, &NFS, &DISK] {
        let (found, other) = (Some(waits(stack, 0)), Some(waits(stack, 7)));
        none(&looked(&[(11, found.clone())], &[]));
        none(&looked(&[(8, found.clone()), (11, found.clone())], &[]));
        none(&looked(&[(5, found.clone()), (11, None)], &[]));
        none(&looked(&[(2, found.clone()), (7, None), (11, found.clone())], &[]));
        none(&looked(&[(5, other), (11, found.clone())], &[]));
        none(&looked(&[(5, found.clone()), (11, found)], &[1, 2]));
    }
}
