//! Each cause is named when its evidence is there, and only then; the one that explains most comes first.

use plegtrace::correlate::Snapshot;
use plegtrace::diagnose::{Confidence, Diagnosis, Finding, Severity, Verdict, diagnose};
use plegtrace::input::{
    CensusFact, Command, Component, ContainerFact, Fact, FdFact, FdTarget, Freezer, GoroutineGroup, Holder,
    Layer, Park, PipeFact, Pressure, ProcessFact, SocketFact, SyscallFact,
};
use plegtrace::render::text;
use plegtrace_common::rec::{CALL_FAILED, PROCESS_EXECED};
use plegtrace_common::role::Role;
use plegtrace_tests::found::{about, group, lists, pipe_of, process, relist, stopped, update};
use plegtrace_tests::life::Life as _;
use plegtrace_tests::story::{CONTAINERD, KUBELET, MS, S, Story, at};

const SHIM: u32 = 24_141;
const RUNC: u32 = 24_200;
const CHILD: u32 = 24_201;

fn ids(diagnosis: &Diagnosis) -> Vec<&'static str> {
    diagnosis.findings.iter().map(|finding| finding.rule.id).collect()
}

/// The only finding, which must be of this rule.
fn only(snapshot: &Snapshot, id: &str) -> Finding {
    let diagnosis = diagnose(snapshot);
    assert_eq!(ids(&diagnosis), [id], "{diagnosis:#?}");
    diagnosis.findings[0].clone()
}

fn none(snapshot: &Snapshot) {
    let diagnosis = diagnose(snapshot);
    assert_eq!(ids(&diagnosis), [] as [&str; 0], "{diagnosis:#?}");
}

fn culprit(finding: &Finding) -> Option<u32> {
    finding.culprit.as_ref().and_then(|culprit| culprit.pid)
}

/// Two looks, the second at `ns`, at the same.
fn seen_twice(
    ns: u64,
    processes: &[ProcessFact],
    containerd: &[GoroutineGroup],
    kubelet: &[GoroutineGroup],
) -> Snapshot {
    let mut story = Story::node();
    for round in [ns - 3 * S, ns] {
        story.census(round, processes, containerd, kubelet);
    }
    story.snapshot(ns)
}

fn syscall(name: &str, fd: Option<FdTarget>) -> SyscallFact {
    let fd = fd.map(|target| FdFact { fd: 9, target });
    SyscallFact { nr: 1, name: Some(name.into()), args: [0; 6], fd, path: None, lock_holder: None }
}

fn park(syscall: SyscallFact) -> Park {
    Park {
        threads: 1,
        tid: 1,
        state: 'S',
        syscall: Some(syscall),
        kernel_stack: Vec::new(),
        user_function: None,
    }
}

fn holder(pid: u32) -> Holder {
    Holder { pid, comm: "x".into(), fd: 9, orphan: false }
}

fn runc(sub: &str, pid: u32, parent: u32) -> ProcessFact {
    let command = Command::Runc { sub: sub.into(), container: Some("c1".into()), bundle: None };
    ProcessFact { command: Some(command), ..process(Component::Runc, pid, parent, 0) }
}

fn cni(pid: u32, park: Park) -> ProcessFact {
    let command =
        Command::Cni { plugin: "bridge".into(), action: Some("ADD".into()), container: Some("s1".into()) };
    ProcessFact {
        command: Some(command),
        parked: vec![park],
        ..process(Component::Helper, pid, CONTAINERD, 0)
    }
}

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
    let of_old = GoroutineGroup { waiting_since_ns: Some(at(S).0), ..update() };
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

/// A stopped shim is certain at once, but what waits behind it shows only later: an observation does not end before,
/// unless a relist that began after it has got its list.
#[test]
fn a_young_stall_is_not_settled() {
    let shim = stopped(process(Component::Shim, SHIM, 1, 0));
    let of_age = |ns: u64, relist: Option<u64>| {
        let mut story = Story::node();
        if let Some(from) = relist {
            story.relist(from, 0);
        }
        for round in (1..).map(|n| n * S).take_while(|&at| at <= S + ns) {
            story.census(round, std::slice::from_ref(&shim), &[], &[]);
        }
        story.snapshot(S + ns)
    };
    let (before, after) = (Some(S - MS), Some(S + MS));
    let cases =
        [(S, None, false), (5 * S, None, false), (6 * S, None, true), (S, before, false), (S, after, true)];
    for (age, relist, settled) in cases {
        let snapshot = of_age(age, relist);
        let finding = only(&snapshot, "S10");
        assert_eq!((finding.since.unwrap().ns, finding.confidence), (age, Confidence::High));
        assert_eq!(diagnose(&snapshot).is_settled(&snapshot), settled, "{age} {relist:?}");
    }
    // What reaches the relist cannot reach farther.
    let containerd = stopped(process(Component::Containerd, CONTAINERD, 1, 0));
    let snapshot = seen_twice(4 * S, &[containerd], &[], &[]);
    assert!(diagnose(&snapshot).is_settled(&snapshot), "{:?}", only(&snapshot, "R14").since);
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

/// Who holds a status while the disk is slow, or in another call than an update, is not R1: only the stack is told.
#[test]
fn r1_is_not_said_of_a_slow_disk() {
    let holds = |operation: &str, innermost: &[&str]| {
        let served = format!("k8s.io/cri-api/pkg/apis/runtime/v1._RuntimeService_{operation}_Handler");
        let lock = "github.com/containerd/containerd/pkg/cri/store/container.(*statusStorage).UpdateSync";
        group(&[7], "select", &[innermost, &[lock, served.as_str()]].concat())
    };
    let told = |holder: &GoroutineGroup, parked: &[Park]| {
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
    assert!(docker.contains("systemctl start docker; all containers stop with it, unless"), "{docker}");
    let front = advice(Component::CriDockerd, "/run/cri-dockerd.sock");
    assert!(front.contains("systemctl start cri-docker;"), "{front}");
    let k3s = advice(Component::Kubelet, "/etc/systemd/system/k3s-agent.service");
    assert!(k3s.contains("systemctl start k3s-agent; running containers are not touched"), "{k3s}");
    let kubelet = advice(Component::Kubelet, "/var/lib/kubelet");
    assert!(kubelet.contains("systemctl start kubelet;"), "{kubelet}");
}

/// A relist in a channel send is the kubelet's own affair; in a call it is not.
#[test]
fn k1_needs_the_channel() {
    let frames = ["runtime.chansend", "k8s.io/kubernetes/pkg/kubelet/pleg.(*GenericPLEG).relist"];
    let sends = group(&[142], "chan send", &frames);
    let mut story = Story::node();
    story.relist(S, 0).relist_sends(3 * S).read_open(12 * S);
    story.census(8 * S, &[], &[], std::slice::from_ref(&sends)).census(12 * S, &[], &[], &[sends]);
    let finding = only(&story.snapshot(12 * S), "K1");
    assert_eq!((culprit(&finding), finding.confidence), (Some(KUBELET), Confidence::High));
    let in_call = seen_twice(12 * S, &[], &[], &[relist()]);
    none(&in_call);
}

/// A Status that began before the probes is seen by its goroutine; who loads the networks has the lock, unless it waits
/// for it as well.
#[test]
fn l2_names_the_reload_that_has_the_lock() {
    let status = [
        "sync.runtime_SemacquireMutex",
        "github.com/containerd/go-cni.(*libcni).Status",
        "k8s.io/cri-api/pkg/apis/runtime/v1._RuntimeService_Status_Handler",
    ];
    let load = ["github.com/containerd/go-cni.(*libcni).Load", "server.(*cniNetConfSyncer).syncLoop"];
    let finding = |innermost: &str, relists: &[u64]| {
        let status = group(&[622], "semacquire", &status);
        let load = group(&[41], "semacquire", &[&[innermost][..], &load].concat());
        let mut story = Story::node();
        story.census(S, &[], &[status.clone(), load.clone()], &[]);
        for second in relists {
            story.relist(second * S, 0);
        }
        story.read_open(13 * S).census(13 * S, &[], &[status, load], &[]);
        let diagnosis = diagnose(&story.snapshot(13 * S));
        diagnosis.findings.into_iter().find(|finding| finding.rule.id == "L2")
    };
    let tells = |finding: &Finding| finding.evidence.iter().any(|seen| seen.text.contains("has the lock"));
    let held = finding("syscall.openat", &[2, 11, 12]).unwrap();
    assert_eq!((culprit(&held), held.confidence), (Some(CONTAINERD), Confidence::High));
    assert!(tells(&held), "{:?}", held.evidence);
    assert!(!tells(&finding("sync.(*RWMutex).Lock", &[2, 11, 12]).unwrap()));
    assert!(finding("syscall.openat", &[]).is_none(), "no relist ends");
}

/// A stop that is merely old is a notice; one that the kubelet has given up, and a removal, hold something up, and a
/// removal does not keep the pod.
#[test]
fn l3_needs_more_than_the_age_of_a_stop() {
    let open = |operation: &str, ns: u64, given_up: bool| {
        let mut story = Story::node();
        for layer in [Layer::KubeletCall, Layer::KubeletClient, Layer::Handler] {
            story.hook(layer, operation);
        }
        story.begin(Layer::KubeletClient, operation, 6, 900, 0);
        story.begin(Layer::Handler, operation, 76, 700, MS);
        if given_up {
            story.end(Layer::KubeletClient, operation, 6, ns - 5 * S, CALL_FAILED);
        }
        story.relist(ns - 2 * S, 0).relist(ns - S, 0).read_open(ns);
        story.snapshot(ns)
    };
    let old = open("StopContainer", 600 * S, false);
    let finding = only(&old, "L3");
    assert_eq!((finding.severity, diagnose(&old).verdict), (Severity::Notice, Verdict::Healthy));
    assert!(!finding.headline.contains("Terminating"), "{}", finding.headline);
    none(&open("StopContainer", 100 * S, false));
    let given_up = only(&open("StopContainer", 100 * S, true), "L3");
    assert_eq!(given_up.severity, Severity::Stall);
    assert!(given_up.headline.contains("stays Terminating"), "{}", given_up.headline);
    assert_eq!(only(&open("StopPodSandbox", 40 * S, false), "L3").severity, Severity::Notice);
    let removal = only(&open("RemoveContainer", 20 * S, false), "L3");
    assert_eq!(removal.severity, Severity::Stall);
    assert!(!removal.headline.contains("Terminating"), "{}", removal.headline);
}

/// Many quick status calls, or one slow one.
#[test]
fn k3_needs_many_and_quick() {
    let long = |pods: u64, call: u64| {
        let mut story = Story::node();
        story.relist(S, 0).relist_of(3 * S, pods, call).read_open(20 * S).census(20 * S, &[], &[], &[]);
        story.snapshot(20 * S)
    };
    let finding = only(&long(60, 30 * MS), "K3");
    assert_eq!(finding.severity, Severity::Notice, "it is over");
    assert_eq!(finding.confidence, Confidence::High);
    none(&long(60, 2 * MS));
    none(&long(3, 900 * MS));
    none(&long(21, 1_100 * MS));
    // A runtime that answers each call in a third of a second is starved.
    none(&long(25, 200 * MS));
}

/// Where processors are scarce, the calls may be as many as ever, and the relist long all the same.
#[test]
fn k3_is_doubted_under_pressure() {
    let mut story = Story::node();
    story.relist(S, 0).relist_of(3 * S, 60, 30 * MS).read_open(20 * S);
    let pressure = Some(Pressure { cpu_some_avg10: 8_000, ..Pressure::default() });
    let ns = at(20 * S).0;
    story.fact(
        20 * S,
        &Fact::Census(CensusFact { began_ns: ns, ended_ns: ns, pressure, ..CensusFact::default() }),
    );
    let finding = only(&story.snapshot(20 * S), "K3");
    assert_eq!(finding.confidence, Confidence::Medium);
    assert!(finding.doubts[0].contains("80.00 %"), "{:?}", finding.doubts);
}

/// A kubelet that is stopped after a long relist is stopped: that comes first, whoever waited for the relist.
#[test]
fn k3_takes_no_place_of_k7() {
    let mut story = Story::node();
    story.relist(S, 0).relist_of(3 * S, 60, 30 * MS).read_open(20 * S);
    let kubelet = stopped(process(Component::Kubelet, KUBELET, 1, 0));
    story.census(15 * S, std::slice::from_ref(&kubelet), &[], &[]).census(20 * S, &[kubelet], &[], &[]);
    let finding = only(&story.snapshot(20 * S), "K7");
    assert_eq!((finding.severity, finding.also.as_slice()), (Severity::Stall, &["K3"][..]));
}

/// Of two such relists the one that is open is the stall, though the one before it was longer.
#[test]
fn k3_tells_the_open_one() {
    let mut story = Story::node();
    story.relist(S, 0).relist_of(3 * S, 100, 30 * MS).relist_asks(20 * S, 25, 30 * MS);
    story.read_open(24_500 * MS).census(24_500 * MS, &[], &[], &[]);
    let finding = only(&story.snapshot(24_500 * MS), "K3");
    assert_eq!(finding.severity, Severity::Stall, "{finding:#?}");
    assert!(finding.headline.contains("25 changed pods"), "{}", finding.headline);
}

/// rc93 holds both ends of its pipe; a pipe that somebody else reads is another matter.
#[test]
fn u1_needs_its_own_pipe() {
    let init = |readers: Vec<Holder>, incomplete| {
        let writers = vec![holder(CHILD)];
        let pipe = PipeFact { inode: 4, path: None, readers, writers, incomplete };
        ProcessFact {
            parked: vec![park(syscall("write", Some(FdTarget::Pipe(pipe))))],
            ..runc("init", CHILD, RUNC)
        }
    };
    let create = runc("create", RUNC, SHIM);
    let shim = process(Component::Shim, SHIM, 1, 0);
    let of = |readers, incomplete| {
        seen_twice(10 * S, &[init(readers, incomplete), create.clone(), shim.clone()], &[], &[])
    };
    let finding = only(&of(vec![holder(CHILD)], false), "U1");
    assert_eq!((culprit(&finding), finding.confidence), (Some(CHILD), Confidence::High));
    // Somebody's open files could not be read: that makes it less sure, not untrue.
    let finding = only(&of(vec![holder(CHILD)], true), "U1");
    assert_eq!((culprit(&finding), finding.confidence), (Some(CHILD), Confidence::Medium));
    for incomplete in [false, true] {
        none(&of(vec![holder(CHILD), holder(SHIM)], incomplete));
        none(&of(Vec::new(), incomplete));
    }
}

/// An init at its FIFO is U2 only when nobody is left.
#[test]
fn u2_needs_an_orphan() {
    let fifo = PipeFact { path: Some("/run/runc/c1/exec.fifo".into()), ..PipeFact::default() };
    let init = |parent| ProcessFact {
        parked: vec![park(syscall("openat", Some(FdTarget::Pipe(fifo.clone()))))],
        ..runc("init", CHILD, parent)
    };
    let finding = only(&seen_twice(12 * S, &[init(1)], &[], &[]), "U2");
    assert_eq!(culprit(&finding), Some(CHILD));
    none(&seen_twice(12 * S, &[init(RUNC), runc("create", RUNC, SHIM)], &[], &[]));
    none(&seen_twice(8 * S, &[init(1)], &[], &[]));
}

/// A hook is a child of runc.
#[test]
fn u10_needs_runc_as_its_parent() {
    let hook = |parent| ProcessFact {
        command: Some(Command::Other { program: "nvidia-hook".into() }),
        ..process(Component::Helper, CHILD, parent, 0)
    };
    let node = |parent| [hook(parent), runc("create", RUNC, SHIM), process(Component::Shim, SHIM, 1, 0)];
    let finding = only(&seen_twice(12 * S, &node(RUNC), &[], &[]), "U10");
    assert!(finding.headline.contains("nvidia-hook"), "{}", finding.headline);
    let diagnosis = diagnose(&seen_twice(12 * S, &node(SHIM), &[], &[]));
    assert!(!ids(&diagnosis).contains(&"U10"), "a child of the shim is no hook: {diagnosis:#?}");
}

/// A frozen container is a notice; one that a request waits for is a stall.
#[test]
fn u4_holds_up_only_who_waits() {
    let freezer = Freezer { path: "/kubepods/c1".into(), version: 2, state: "FROZEN".into(), own: true };
    let frozen = ProcessFact { freezer: Some(freezer), ..process(Component::Helper, CHILD, SHIM, 0) };
    let snapshot = seen_twice(20 * S, &[frozen], &[], &[]);
    let finding = diagnose(&snapshot).findings.first().cloned();
    // Two looks three seconds apart do not make five.
    assert!(finding.is_none(), "{finding:?}");
    let mut story = Story::node();
    let freezer = Freezer { path: "/kubepods/c1".into(), version: 2, state: "FROZEN".into(), own: true };
    let frozen = ProcessFact { freezer: Some(freezer), ..process(Component::Helper, CHILD, SHIM, 0) };
    story.census(S, std::slice::from_ref(&frozen), &[], &[]).census(9 * S, &[frozen], &[], &[]);
    let finding = only(&story.snapshot(9 * S), "U4");
    assert_eq!((finding.severity, finding.confidence), (Severity::Notice, Confidence::Medium));
    assert!(finding.next[0].contains("cgroup.freeze"), "{:?}", finding.next);
}

/// A plugin that waits for its agent, and one that queues for a lock: then the holder is to blame.
#[test]
fn n1_or_n2_by_what_it_waits_for() {
    let agent = SocketFact { peers: vec![holder(777)], ..SocketFact::default() };
    let waits = cni(CHILD, park(syscall("read", Some(FdTarget::Socket(agent)))));
    let finding = only(&seen_twice(12 * S, &[waits], &[], &[]), "N1");
    assert_eq!(culprit(&finding), Some(CHILD));
    assert!(finding.next[0].contains("777"), "{:?}", finding.next);
    let lock = SyscallFact { lock_holder: Some(holder(888)), ..syscall("flock", None) };
    let queued = [cni(CHILD, park(lock.clone())), cni(CHILD + 1, park(lock))];
    let finding = only(&seen_twice(12 * S, &queued, &[], &[]), "N2");
    assert_eq!((culprit(&finding), finding.confidence), (Some(888), Confidence::High));
    let unknown = cni(CHILD, park(syscall("flock", None)));
    assert_eq!(only(&seen_twice(12 * S, &[unknown], &[], &[]), "N2").confidence, Confidence::Medium);
    let young = seen_twice(8 * S, &[cni(CHILD, park(syscall("read", None)))], &[], &[]);
    none(&young);
}

/// A lock outlives who took it: nobody is to be killed then, least of all whoever has that number now.
#[test]
fn n2_kills_no_holder_that_is_gone() {
    let file = FdTarget::File { path: "/run/cni/lock".into() };
    let gone = Holder { comm: String::new(), ..holder(888) };
    let lock = SyscallFact { lock_holder: Some(gone), ..syscall("flock", Some(file)) };
    let queued = [cni(CHILD, park(lock.clone())), cni(CHILD + 1, park(lock))];
    let finding = only(&seen_twice(12 * S, &queued, &[], &[]), "N2");
    assert_eq!((culprit(&finding), finding.confidence), (None, Confidence::Medium));
    assert!(finding.next.iter().all(|advice| !advice.contains("kill")), "{:?}", finding.next);
    assert!(finding.next[0].contains("fuser") && finding.next[0].contains("/run/cni/lock"));
    assert!(finding.headline.contains("process 888 took"), "{}", finding.headline);
}

/// A plugin that reads its configuration from a stopped runtime waits for that.
#[test]
fn n1_is_not_said_of_a_victim() {
    let from = PipeFact { inode: 9, writers: vec![holder(CONTAINERD)], ..PipeFact::default() };
    let plugin = cni(CHILD, park(syscall("read", Some(FdTarget::Pipe(from)))));
    let runtime = process(Component::Containerd, CONTAINERD, 1, 0);
    only(&seen_twice(12 * S, &[plugin.clone(), stopped(runtime.clone())], &[], &[]), "R14");
    only(&seen_twice(12 * S, &[plugin, runtime], &[], &[]), "N1");
}

/// The holder of a lock that itself is late is blamed once.
#[test]
fn n2_blames_a_holder_that_is_late_itself_once() {
    let lock = SyscallFact { lock_holder: Some(holder(CHILD)), ..syscall("flock", None) };
    let processes = [cni(CHILD, park(syscall("nanosleep", None))), cni(CHILD + 1, park(lock))];
    let diagnosis = diagnose(&seen_twice(12 * S, &processes, &[], &[]));
    assert_eq!(ids(&diagnosis), ["N2"], "{diagnosis:#?}");
    assert_eq!(
        (culprit(&diagnosis.findings[0]), diagnosis.findings[0].also.as_slice()),
        (Some(CHILD), &["N1"][..])
    );
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

/// A storm is said when nothing stays, and not while one thing does.
#[test]
fn o2_only_when_nothing_else_is() {
    let storm = |processes: &[ProcessFact], open: Option<&str>| {
        let mut story = Story::node();
        if let Some(operation) = open {
            story.hook(Layer::Handler, operation).begin(Layer::Handler, operation, 76, 700, 0);
        }
        story.found(CONTAINERD, Role::Containerd).found(SHIM, Role::Shim);
        for n in 0..400_u32 {
            let (pid, ns) = (30_000 + n, u64::from(n) * 25 * MS);
            let exec = Command::Runc { sub: "exec".into(), container: Some("c1".into()), bundle: None };
            story.fork(SHIM, pid, ns).exec(pid, Role::Runc, PROCESS_EXECED, ns + MS).told(pid, &exec);
            story.exit(ns + 30 * MS, pid, 0);
        }
        let end = if open.is_some() { 25 * S } else { 10 * S };
        story.relist(end - S, 0).read_open(end).census(6 * S, processes, &[], &[]);
        let pressure = Some(Pressure { cpu_some_avg10: 8_000, ..Pressure::default() });
        let round =
            CensusFact { began_ns: at(end).0, ended_ns: at(end).0, pressure, ..CensusFact::default() };
        for process in processes {
            story.fact(end, &Fact::Process(ProcessFact { at_ns: at(end).0, ..process.clone() }));
        }
        story.fact(end, &Fact::Census(round));
        story.snapshot(end)
    };
    let finding = only(&storm(&[], None), "O2");
    assert_eq!((finding.severity, finding.confidence), (Severity::Notice, Confidence::High));
    only(&storm(&[stopped(process(Component::Shim, SHIM, 1, 0))], None), "S10");
    // A pull, or a stop within its grace period, stays and is no culprit; a call that is late is one.
    only(&storm(&[], Some("PullImage")), "O2");
    only(&storm(&[], Some("StopContainer")), "O2");
    none(&storm(&[], Some("CreateContainer")));
}

/// A notice beside a stall is not its cause, and the report does not say so.
#[test]
fn a_notice_explains_no_stall() {
    let freezer = Freezer { path: "/kubepods/c1".into(), version: 2, state: "FROZEN".into(), own: true };
    let frozen = ProcessFact { freezer: Some(freezer), ..process(Component::Helper, CHILD, SHIM, 0) };
    let mut story = Story::node();
    story.relist(0, 0).relist_hangs(2 * S);
    story
        .census(S, std::slice::from_ref(&frozen), &[], &[])
        .census(9 * S, &[frozen], &[], &[])
        .read_open(30 * S);
    let snapshot = story.snapshot(30 * S);
    let diagnosis = diagnose(&snapshot);
    assert_eq!((diagnosis.verdict, ids(&diagnosis)), (Verdict::Stall, vec!["U4"]));
    let mut page = Vec::new();
    text::report(&snapshot, &diagnosis, &text::TextOptions::default(), &mut page).unwrap();
    let page = String::from_utf8(page).unwrap();
    assert!(page.contains("\nSTALL  relist open"), "{page}");
    assert!(page.contains("notice    U4") && page.contains("cause     cannot tell"), "{page}");
    assert!(page.contains("\nOpen calls") && !page.contains("Why we think so"), "{page}");
}

/// Without any look at processes nothing is blamed, and that is said.
#[test]
fn without_evidence_no_cause() {
    let mut story = Story::node();
    story.relist(0, 0).relist_hangs(2 * S).read_open(30 * S);
    let diagnosis = diagnose(&story.snapshot(30 * S));
    assert_eq!((diagnosis.verdict, ids(&diagnosis)), (Verdict::Stall, Vec::new()));
    assert!(diagnosis.excluded.is_empty(), "nobody looked: {:?}", diagnosis.excluded);
    let deadline = diagnosis.predictions.iter().any(|text| text.contains("deadline"));
    assert!(deadline && diagnosis.predictions.iter().any(|text| text.contains("PLEG is not healthy")));
}

/// What holds up the relist comes before what holds up one pod, however old that is.
#[test]
fn what_reaches_farthest_comes_first() {
    let hook = ProcessFact {
        command: Some(Command::Other { program: "hook".into() }),
        ..process(Component::Helper, CHILD, RUNC, 0)
    };
    let containerd = stopped(process(Component::Containerd, CONTAINERD, 1, 0));
    let processes = [hook, runc("create", RUNC, SHIM), process(Component::Shim, SHIM, 1, 0), containerd];
    let diagnosis = diagnose(&seen_twice(60 * S, &processes, &[], &[]));
    assert_eq!(ids(&diagnosis), ["R14", "U10"]);
}
