//! Causes in the runtime and its shims.

use plegtrace::diagnose::{Confidence, Severity, Verdict, diagnose};
use plegtrace::input::{
    Command, Component, ContainerFact, Freezer, GoroutineGroup, ParkedThreads, ProcessFact,
};
use plegtrace_common::role::Role;
use plegtrace_tests::found::{about, group, lists, pipe_of, process, relist, stopped, update};
use plegtrace_tests::life::Life as _;
use plegtrace_tests::story::{CONTAINERD, KUBELET, MS, S, Story, at};

use super::{CHILD, RUNC, SHIM, culprit, ids, none, only, park, runc, seen_twice, syscall};

/// The lock hostage: R1 with the shim as culprit, of which S10 is the nearer half; certain only when the update is known
/// to work for a container of that shim.
#[test]
fn r1_names_the_shim_behind_the_lock() {
    let of =
        |id: &str| ContainerFact { id: id.into(), sandbox: Some("s1".into()), ..ContainerFact::default() };
    let shim = ProcessFact { container: Some(of("s1")), ..stopped(process(Component::Shim, SHIM, 1, 0)) };
    let hostage = |update: GoroutineGroup, lists: GoroutineGroup| {
        let mut story = Story::node();
        story.containers = vec![of("c1")];
        for round in [3 * S, 6 * S] {
            story.census(round, std::slice::from_ref(&shim), &[update.clone(), lists.clone()], &[relist()]);
        }
        story.snapshot(6 * S)
    };
    let known = |update, lists| {
        hostage(about(update, ").UpdateContainerResources", "c1"), about(lists, "(*statusStorage).Get", "c1"))
    };
    let snapshot = known(update(), lists());
    let finding = only(&snapshot, "R1");
    assert_eq!((culprit(&finding), finding.reach, finding.confidence), (Some(SHIM), 3, Confidence::High));
    assert_eq!(finding.also, ["S10"]);
    assert_eq!(finding.culprit.unwrap().container.unwrap().id, "c1", "the container that is updated");
    assert!(finding.next[0].contains(&format!("kill -CONT {SHIM}")), "{:?}", finding.next);
    assert!(finding.victims[0].contains("relist"), "{:?}", finding.victims);
    assert_eq!(diagnose(&snapshot).verdict, Verdict::Stall);
    assert_eq!(only(&hostage(update(), lists()), "R1").confidence, Confidence::Medium);
    // The shim was first seen when plegtrace came; its victim knows since when it waits.
    let of_old = GoroutineGroup { parked_by_ns: Some(at(S).0), ..update() };
    let since = only(&known(of_old, lists()), "R1").since.unwrap();
    assert_eq!((since.ns, since.at_least), (5 * S, true));
}

/// An update behind which nobody waits is no R1: the shim is stopped, and the lists answer.
#[test]
fn s10_without_anybody_at_the_lock() {
    let shim = stopped(process(Component::Shim, SHIM, 1, 0));
    let finding = only(&seen_twice(6 * S, std::slice::from_ref(&shim), &[update()], &[]), "S10");
    assert_eq!((culprit(&finding), finding.reach), (Some(SHIM), 2));
    only(&seen_twice(6 * S, &[shim], &[], &[]), "S10");
    none(&seen_twice(6 * S, &[process(Component::Shim, SHIM, 1, 0)], &[], &[]));
}

/// What the update waits for is not seen: R1 all the same, less sure.
#[test]
fn r1_alone_is_doubted() {
    let mut story = Story::node();
    for round in [S, 15 * S] {
        story.census(round, &[], &[update(), lists()], &[relist()]);
    }
    let finding = only(&story.snapshot(15 * S), "R1");
    assert_eq!(finding.confidence, Confidence::Medium);
    assert!(!finding.doubts.is_empty());
}

/// A runc that is stopped, or frozen, while it updates a container: one look names it, and all who wait behind it.
#[test]
fn r1_behind_a_runc_that_is_halted() {
    let shim = process(Component::Shim, SHIM, 1, 0);
    let halted = stopped(runc("update", RUNC, SHIM));
    let freezer = Freezer { path: "/kubepods/pod7".into(), version: 1, state: "FROZEN".into(), own: true };
    let frozen = ProcessFact { freezer: Some(freezer), state: 'D', stopped: 0, ..halted.clone() };
    let of = |id: &str| ContainerFact {
        id: id.into(),
        sandbox: Some(format!("s-{id}")),
        ..ContainerFact::default()
    };
    let seen = |runc: &ProcessFact| {
        let groups = [about(update(), ").UpdateContainerResources", "c1"), lists()];
        let mut story = Story::node();
        story.containers = vec![of("c1"), of("c9")];
        story.census(2 * S, &[runc.clone(), shim.clone()], &groups, &[relist()]);
        story.snapshot(2 * S + 500 * MS)
    };
    for (runc, advice) in [(&halted, "`kill -CONT 24200`"), (&frozen, "`echo THAWED")] {
        let finding = only(&seen(runc), "R1");
        assert_eq!((culprit(&finding), finding.reach), (Some(RUNC), 3));
        assert_eq!(finding.confidence, Confidence::High, "{:?}", finding.doubts);
        assert!(finding.next[0].starts_with(advice), "{:?}", finding.next);
    }
    // Another command of runc, or an update of another container, holds nobody up who waits for this one.
    let other = Command::Runc { sub: "update".into(), container: Some("c9".into()), bundle: None };
    let other = ProcessFact { command: Some(other), ..halted };
    for runc in [stopped(runc("kill", RUNC, SHIM)), other] {
        let diagnosis = diagnose(&seen(&runc));
        assert!(!diagnosis.findings.iter().any(|finding| culprit(finding) == Some(RUNC)), "{diagnosis:#?}");
    }
}

/// Who holds a status while the disk is slow, or in another call than an update, is not R1: only the stack is told.
#[test]
fn r1_is_not_said_of_a_slow_disk() {
    let holds = |operation: &str, innermost: &[&str]| {
        let served = format!("k8s.io/cri-api/pkg/apis/runtime/v1._RuntimeService_{operation}_Handler");
        let lock = "github.com/containerd/containerd/pkg/cri/store/container.(*statusStorage).UpdateSync";
        group(&[7], "select", &[innermost, &[lock, served.as_str()]].concat())
    };
    let told = |holder: &GoroutineGroup, parked: &[ParkedThreads]| {
        let containerd =
            ProcessFact { parked: parked.to_vec(), ..process(Component::Containerd, CONTAINERD, 1, 0) };
        let mut story = Story::node();
        for round in [S, 15 * S] {
            let groups = [holder.clone(), lists()];
            story.census(round, std::slice::from_ref(&containerd), &groups, &[relist()]);
        }
        let diagnosis = diagnose(&story.snapshot(15 * S));
        assert_eq!(diagnosis.verdict, Verdict::Stall);
        ids(&diagnosis)
    };
    let waits = ["sync.runtime_notifyListWait"];
    assert_eq!(told(&holds("UpdateContainerResources", &waits), &[]), ["R1"]);
    assert_eq!(told(&holds("CreateContainer", &waits), &[]), [""; 0]);
    let syncs = ["syscall.Syscall", "syscall.Fsync", "internal/poll.(*FD).Fsync", "os.(*File).Sync"];
    assert_eq!(told(&holds("UpdateContainerResources", &syncs), &[]), [""; 0]);
    let commits = ["go.etcd.io/bbolt.(*Tx).Commit"];
    assert_eq!(told(&holds("UpdateContainerResources", &commits), &[]), [""; 0]);
    let slow = park(syscall("fdatasync", None));
    assert_eq!(told(&holds("UpdateContainerResources", &waits), &[slow]), [""; 0]);
}

/// A status that another call holds behind a stopped shim: the shim is to blame, and nothing is said of an update.
#[test]
fn r1_is_not_said_of_another_call_at_the_shim() {
    let mut start = update();
    start.frames.retain(|frame| !frame.contains("UpdateContainerResources"));
    start.frames.push("k8s.io/cri-api/pkg/apis/runtime/v1._RuntimeService_StartContainer_Handler".into());
    let shim = stopped(process(Component::Shim, SHIM, 1, 0));
    let finding = only(&seen_twice(6 * S, &[shim], &[start, lists()], &[relist()]), "S10");
    assert_eq!((culprit(&finding), finding.reach), (Some(SHIM), 3));
}

/// Stopped daemons.
#[test]
fn r14_and_k7_are_the_daemons_themselves() {
    let containerd = stopped(process(Component::Containerd, CONTAINERD, 1, 0));
    let finding = only(&seen_twice(6 * S, &[containerd], &[], &[relist()]), "R14");
    assert_eq!((culprit(&finding), finding.reach), (Some(CONTAINERD), 3));
    let kubelet = stopped(process(Component::Kubelet, KUBELET, 1, 0));
    let finding = only(&seen_twice(6 * S, &[kubelet], &[], &[]), "K7");
    assert_eq!((culprit(&finding), finding.reach), (Some(KUBELET), 3));
}

/// Daemons of a node in a container, and a dockerd beside the runtime, may be stopped; so may what has worked since.
#[test]
fn r14_and_k7_are_of_this_node() {
    const OTHER: u32 = 4_711;
    let halted = |component, pid, relists: &[u64]| {
        let mut story = Story::node();
        for second in relists {
            story.relist(second * S, 0);
        }
        let process = stopped(process(component, pid, 1, 0));
        for round in [3 * S, 6 * S] {
            story.census(round, std::slice::from_ref(&process), &[], &[]);
        }
        story.read_open(7 * S);
        story.snapshot(7 * S)
    };
    for component in [Component::Dockerd, Component::Containerd, Component::Crio, Component::Kubelet] {
        let healthy = halted(component, OTHER, &[1, 2, 3, 4, 5, 6]);
        none(&healthy);
        assert_eq!(diagnose(&healthy).verdict, Verdict::Healthy, "{component:?}");
        none(&halted(component, OTHER, &[]));
    }
    for (component, pid, id) in
        [(Component::Containerd, CONTAINERD, "R14"), (Component::Kubelet, KUBELET, "K7")]
    {
        only(&halted(component, pid, &[1, 2]), id);
        none(&halted(component, pid, &[1, 2, 6]));
        // It went on in between, and is stopped again: since the last look, as far as is known.
        assert_eq!(only(&halted(component, pid, &[1, 2, 4]), id).since.unwrap().ns, S);
    }
}

/// Behind cri-dockerd stands dockerd: nobody else told that it belongs to the node.
#[test]
fn r14_is_said_of_docker_behind_its_front() {
    let halted = |runtime: Option<Component>, relists: &[u64]| {
        let mut story = Story::blank();
        story.start().target(Component::Kubelet, KUBELET, "1.24.0").hooks();
        if let Some(runtime) = runtime {
            story.target(runtime, 900, "0.3.0");
        }
        for second in relists {
            story.relist(second * S, 0);
        }
        let docker = stopped(process(Component::Dockerd, 901, 1, 0));
        for round in [3 * S, 6 * S] {
            story.census(round, std::slice::from_ref(&docker), &[], &[]);
        }
        ids(&diagnose(&story.snapshot(7 * S)))
    };
    for runtime in [None, Some(Component::CriDockerd)] {
        assert_eq!(halted(runtime, &[1, 2]), ["R14"], "{runtime:?}");
        assert_eq!(halted(runtime, &[1, 2, 4, 5]), [""; 0], "{runtime:?}");
    }
    assert_eq!(halted(Some(Component::Crio), &[1, 2]), [""; 0]);
}

/// A runtime that is gone, and one that came back.
#[test]
fn r15_gone_and_back() {
    let mut story = Story::node();
    story.found(CONTAINERD, Role::Containerd).relist(S, 0).exit(2 * S, CONTAINERD, 9);
    story.census(3 * S, &[], &[], &[]);
    let finding = only(&story.snapshot(4 * S), "R15");
    assert_eq!(finding.severity, Severity::Stall);
    assert!(finding.evidence[0].text.contains("signal 9"), "{:?}", finding.evidence);
    story.target_at(5 * S, Component::Containerd, CONTAINERD + 1, "1.6.20").relist(6 * S, 0).read_open(7 * S);
    let snapshot = story.snapshot(7 * S);
    let finding = only(&snapshot, "R15");
    assert_eq!((finding.severity, culprit(&finding)), (Severity::Notice, Some(CONTAINERD + 1)));
    assert_ne!(diagnose(&snapshot).verdict, Verdict::Stall);
}

/// Who is told to start something is told its unit on this node, and what becomes of the containers.
#[test]
fn advice_names_the_unit() {
    let advice = |component, left: &str| {
        let mut story = Story::blank();
        story.start().presence(component, left);
        if component != Component::Kubelet {
            story.target(Component::Kubelet, KUBELET, "1.20.2");
        }
        diagnose(&story.snapshot(S)).findings[0].next.join("; ")
    };
    let docker = advice(Component::Dockerd, "/lib/systemd/system/docker.service");
    assert!(docker.contains("`systemctl start docker`; all containers stop with it, unless"), "{docker}");
    let front = advice(Component::CriDockerd, "/run/cri-dockerd.sock");
    assert!(front.contains("`systemctl start cri-docker`;"), "{front}");
    let k3s = advice(Component::Kubelet, "/etc/systemd/system/k3s-agent.service");
    assert!(k3s.contains("`systemctl start k3s-agent`; running containers are not touched"), "{k3s}");
    let kubelet = advice(Component::Kubelet, "/var/lib/kubelet");
    assert!(kubelet.contains("`systemctl start kubelet`;"), "{kubelet}");
}

/// What a command left behind, while an ExecSync waits.
#[test]
fn r8_needs_an_orphan_and_a_request() {
    let exec = group(
        &[90_100],
        "select",
        &[
            "github.com/containerd/containerd/pkg/cri/server.(*criService).execInContainer",
            "k8s.io/cri-api/pkg/apis/runtime/v1._RuntimeService_ExecSync_Handler",
        ],
    );
    let shim =
        |orphan| ProcessFact { pipes: vec![pipe_of(CHILD, orphan)], ..process(Component::Shim, SHIM, 1, 0) };
    let of = |orphan, requests: &[GoroutineGroup]| {
        let mut story = Story::node();
        story.census(S, &[shim(orphan)], requests, &[]).census(13 * S, &[shim(orphan)], requests, &[]);
        story.snapshot(14 * S)
    };
    let finding = only(&of(true, std::slice::from_ref(&exec)), "R8");
    assert_eq!(culprit(&finding), Some(CHILD));
    none(&of(false, &[exec]));
    none(&of(true, &[]));
}
