//! What the pipeline makes of a census: the innermost thing that does not move is named, and everybody who waits for it;
//! what merely takes its time is not accused.

use plegtrace::correlate::{Age, Snapshot};
use plegtrace::diagnose::{Verdict, diagnose};
use plegtrace::input::{
    Command, Component, ContainerFact, FdFact, FdTarget, Freezer, GoroutineGroup, Holder, ParkedThreads,
    PipeFact, ProcessFact, SocketFact, SyscallFact,
};
use plegtrace::stuck::{Stuck, StuckKind, Waiter, find};
use plegtrace::words;
use plegtrace_common::rec::PROCESS_EXECED;
use plegtrace_common::role::Role;
use plegtrace_tests::found::{group, lists, pipe_of, process, relist, stopped, update};
use plegtrace_tests::life::Life as _;
use plegtrace_tests::story::{CONTAINERD, KUBELET, MS, S, Story};

mod ends;
mod requests;

const SHIM: u32 = 24_141;
const RUNC: u32 = 24_200;
const HOOK: u32 = 24_201;

fn exec() -> GoroutineGroup {
    let frames = [
        "github.com/containerd/containerd/pkg/cri/server.(*criService).execInContainer",
        "k8s.io/cri-api/pkg/apis/runtime/v1._RuntimeService_ExecSync_Handler",
    ];
    group(&[90_100], "select", &frames)
}

/// An ExecSync that waits for the shim of a container.
fn exec_at_shim(goid: u64) -> GoroutineGroup {
    let asks = [
        "github.com/containerd/ttrpc.(*Client).dispatch",
        "github.com/containerd/containerd/runtime/v2/task.(*taskClient).Start",
    ];
    exec_in(goid, "select", &asks)
}

/// ExecSyncs that wait for no command: for a shim that speaks ttrpc, for one that speaks gRPC, and for a lock.
fn execs_elsewhere(goid: u64) -> [GoroutineGroup; 3] {
    let grpc = [
        "google.golang.org/grpc.(*ClientConn).Invoke",
        "github.com/containerd/containerd/v2/core/runtime/v2.(*grpcV3Bridge).Kill",
    ];
    let lock = ["sync.runtime_SemacquireMutex", "sync.(*Mutex).lockSlow", "go.etcd.io/bbolt.(*DB).beginRWTx"];
    [exec_at_shim(goid), exec_in(goid, "select", &grpc), exec_in(goid, "sync.Mutex.Lock", &lock)]
}

/// An ExecSync, innermost in these functions.
fn exec_in(goid: u64, wait_reason: &str, innermost: &[&str]) -> GoroutineGroup {
    let serves = [
        "github.com/containerd/containerd/pkg/cri/server.(*instrumentedService).ExecSync",
        "k8s.io/cri-api/pkg/apis/runtime/v1._RuntimeService_ExecSync_Handler",
    ];
    group(&[goid], wait_reason, &[innermost, &serves].concat())
}

fn runc(sub: &str, pid: u32, parent: u32, started: u64) -> ProcessFact {
    let command = Command::Runc { sub: sub.into(), container: Some("c1".into()), bundle: None };
    ProcessFact { command: Some(command), ..process(Component::Runc, pid, parent, started) }
}

fn pod(name: &str) -> Option<ContainerFact> {
    Some(ContainerFact { id: "51f2e49b8310".into(), pod: Some(name.into()), ..ContainerFact::default() })
}

fn only(snapshot: &Snapshot) -> Stuck {
    let [stuck] = <[Stuck; 1]>::try_from(find(snapshot)).unwrap_or_else(|all| panic!("{all:#?}"));
    stuck
}

/// The waiters in words.
fn waiters(stuck: &Stuck) -> Vec<String> {
    let word = |waiter: &Waiter| match waiter {
        Waiter::Process { component, pid, .. } => format!("{} {pid}", component.name()),
        Waiter::Requests(request) => format!("{} {}", request.count, request.operation),
        Waiter::Relist { pid, .. } => format!("relist {pid}"),
    };
    stuck.waiters.iter().map(word).collect()
}

fn stalled(snapshot: &Snapshot) -> bool {
    diagnose(snapshot).verdict == Verdict::Stall
}

/// The lock hostage that began before we came: the shim is the culprit, and the chain leads to the relist.
#[test]
fn a_stopped_shim_and_everybody_behind_it() {
    let socket = SocketFact { inode: 5, unread: 214, ..SocketFact::default() };
    let idle = SocketFact { inode: 6, ..SocketFact::default() };
    let shim = ProcessFact {
        sockets: vec![socket.clone(), idle],
        container: pod("p3"),
        ..stopped(process(Component::Shim, SHIM, 1, 0))
    };
    let mut story = Story::node();
    for round in [1, 5] {
        story.census(round * S, std::slice::from_ref(&shim), &[update(), lists()], &[relist()]);
    }
    let snapshot = story.snapshot(6 * S);
    let stuck = only(&snapshot);
    assert!(matches!(
        stuck.what,
        StuckKind::Stopped { component: Component::Shim, pid: SHIM, threads: 3, .. }
    ));
    assert_eq!(stuck.since, Age { ns: 5 * S, at_least: true }, "as long as we know");
    assert_eq!(stuck.sockets, [socket]);
    let relist = format!("relist {KUBELET}");
    assert_eq!(waiters(&stuck), ["1 UpdateContainerResources", "3 ListContainers", &relist]);
    assert!(stalled(&snapshot));
}

/// A shim that went on in between has not stood still all the time.
#[test]
fn standing_still_begins_anew() {
    let shim = process(Component::Shim, SHIM, 1, 0);
    let mut story = Story::node();
    story.census(S, &[stopped(shim.clone())], &[], &[]);
    story.census(2 * S, std::slice::from_ref(&shim), &[], &[]);
    assert_eq!(find(&story.snapshot(2 * S)), []);
    story.census(3 * S, &[stopped(shim)], &[], &[]);
    assert_eq!(only(&story.snapshot(4 * S)).since, Age { ns: S, at_least: true });
}

/// A hook that sleeps is named; runc and shim only wait for it. Its age is exact, though it is older than we are.
#[test]
fn the_innermost_process_is_named() {
    let hook = ProcessFact {
        command: Some(Command::Other { program: "hook".into() }),
        ..process(Component::Helper, HOOK, RUNC, 0)
    };
    let shim = ProcessFact { container: pod("p1"), ..process(Component::Shim, SHIM, 1, 0) };
    let mut story = Story::node();
    story.census(30 * S, &[hook, runc("create", RUNC, SHIM, 0), shim], &[], &[]);
    let snapshot = story.snapshot(30 * S);
    let stuck = only(&snapshot);
    assert_eq!(stuck.what.pid(), HOOK);
    assert_eq!(stuck.since, Age { ns: 30 * S, at_least: false });
    assert_eq!(waiters(&stuck), [format!("runc {RUNC}"), format!("shim {SHIM}")]);
    let container = stuck.container.as_ref().unwrap();
    assert_eq!((container.id.as_str(), container.pod.as_deref()), ("c1", Some("p1")), "runc and shim told");
}

/// Where the runc is that waits, and the one that does not end, is told with them: in waiters, evidence and JSON. A pid that
/// belonged to somebody else when the census looked tells nothing.
#[test]
fn phases_of_what_is_stuck() {
    let hook = ProcessFact {
        command: Some(Command::Other { program: "hook".into() }),
        ..process(Component::Helper, HOOK, RUNC, 2 * S)
    };
    let shim = process(Component::Shim, SHIM, 1, 0);
    let kill = runc("kill", RUNC + 9, SHIM, S);
    let mut story = Story::node();
    story.found(SHIM, Role::Shim);
    for (pid, sub) in [(RUNC, "create"), (RUNC + 9, "kill")] {
        let command = Command::Runc { sub: sub.into(), container: Some("c1".into()), bundle: None };
        story.fork(SHIM, pid, S).exec(pid, Role::Runc, PROCESS_EXECED, S).told(pid, &command);
    }
    story.enter(RUNC, "parseSync", 500, S + MS).enter(RUNC, "RunHooks", 900, 2 * S);
    story.enter(RUNC + 9, "startUnit", 500, 3 * S).read_processes(20 * S).read_open(20 * S);
    story.census(20 * S, &[hook, runc("create", RUNC, SHIM, S), kill, shim], &[], &[]);
    let snapshot = story.snapshot(20 * S);
    let all = find(&snapshot);
    let [late, hooked] = &all[..] else { panic!("{all:#?}") };
    assert_eq!((late.what.pid(), hooked.what.pid()), (RUNC + 9, HOOK));
    let expected = "libcontainer.startUnit (waits for systemd to start a unit), 17.0 s";
    assert_eq!(words::phase(&late.phases).as_deref(), Some(expected));
    let runc = "runc create of c1 (pid 24200, in libcontainer.RunHooks (waits for a hook), 18.0 s)";
    assert_eq!(words::waiter_line(&hooked.waiters[0]), runc);
    let evidence: Vec<String> =
        diagnose(&snapshot).findings.iter().flat_map(|f| &f.evidence).map(|e| e.text.clone()).collect();
    assert!(evidence.iter().any(|text| text.contains(runc)), "{evidence:#?}");

    // The record of its end was lost.
    story.fork(SHIM, RUNC + 9, 22 * S);
    story.exec(RUNC + 9, Role::Runc, PROCESS_EXECED, 22 * S).enter(RUNC + 9, "destroy", 500, 22 * S);
    story.read_processes(23 * S).read_open(23 * S);
    let reused = story.snapshot(24 * S);
    let all = find(&reused);
    let kill = all.iter().find(|stuck| stuck.what.pid() == RUNC + 9).unwrap();
    assert_eq!(kill.phases, [], "the census saw another process");
}

/// `runc init` reads the word of its runc, which waits for its hook: only the hook is named, and init waits with the rest.
#[test]
fn who_waits_for_a_parent_that_waits_is_not_named() {
    let read = |from: u32| SyscallFact {
        nr: 0,
        name: Some("read".into()),
        args: [3, 0, 512, 0, 0, 0],
        fd: Some(FdFact {
            fd: 3,
            target: FdTarget::Socket(SocketFact {
                peers: vec![Holder { pid: from, comm: "runc".into(), fd: 9, orphan: false }],
                ..SocketFact::default()
            }),
        }),
        path: None,
        lock_holder: None,
        watched: Vec::new(),
    };
    let park = |from| ParkedThreads {
        threads: 1,
        tid: 1,
        state: 'S',
        syscall: Some(read(from)),
        kernel_stack: Vec::new(),
        user_function: None,
    };
    let init = |from| ProcessFact { parked: vec![park(from)], ..runc("init", RUNC + 5, RUNC, 0) };
    let hook = ProcessFact {
        command: Some(Command::Other { program: "hook".into() }),
        ..process(Component::Helper, HOOK, RUNC, 0)
    };
    let shim = process(Component::Shim, SHIM, 1, 0);
    let create = runc("create", RUNC, SHIM, 0);
    let told = |processes: &[ProcessFact]| {
        let mut story = Story::node();
        story.census(30 * S, processes, &[], &[]);
        let snapshot = story.snapshot(30 * S);
        let told = |stuck: &Stuck| (stuck.what.pid(), waiters(stuck));
        find(&snapshot).iter().map(told).collect::<Vec<_>>()
    };
    let (runc, init_waits) = (format!("runc {RUNC}"), format!("runc {}", RUNC + 5));
    let chain = [runc, format!("shim {SHIM}")].to_vec();
    let with_init = [chain.clone(), vec![init_waits]].concat();
    let all = [create.clone(), init(RUNC), hook.clone(), shim.clone()];
    assert_eq!(told(&all), [(HOOK, with_init)]);
    // Without a hook, or when it waits for somebody else, init is named itself.
    assert_eq!(told(&[create.clone(), init(RUNC), shim.clone()]), [(RUNC + 5, chain.clone())]);
    let both = told(&[create, init(77), hook, shim]);
    assert_eq!(both, [(HOOK, chain.clone()), (RUNC + 5, chain)]);
}

/// An init that nobody starts has no runc above it; the FIFO at which it waits tells the container.
#[test]
fn an_orphan_tells_its_container_by_its_fifo() {
    let path = Some("/run/runc/k8s.io/c7/exec.fifo".to_owned());
    let fifo = FdTarget::Pipe(PipeFact { path, ..PipeFact::default() });
    let open = SyscallFact {
        nr: 257,
        name: Some("openat".into()),
        args: [0; 6],
        fd: Some(FdFact { fd: 5, target: fifo }),
        path: Some("/proc/self/fd/5".into()),
        lock_holder: None,
        watched: Vec::new(),
    };
    let park = ParkedThreads {
        threads: 1,
        tid: RUNC,
        state: 'S',
        syscall: Some(open),
        kernel_stack: Vec::new(),
        user_function: None,
    };
    let init = ProcessFact { parked: vec![park], ..runc("init", RUNC, 1, 0) };
    let mut story = Story::node();
    story.census(10 * S, std::slice::from_ref(&init), &[], &[]);
    let snapshot = story.snapshot(10 * S);
    let container = only(&snapshot).container.unwrap();
    assert_eq!((container.id.as_str(), container.source.as_str()), ("c7", "exec.fifo"));
    // A command that just starts elsewhere does not wait for it: it needs no `runc create`.
    story.census(11 * S, &[init], &[exec_at_shim(90_100)], &[]);
    assert_eq!(waiters(&only(&story.snapshot(11 * S))), [""; 0]);
}

/// What is young is not accused: a runc of 4 s, a plugin of 3 s, an exec that runs, a child that has just ended.
#[test]
fn what_takes_its_time_is_not_accused() {
    let plugin = Command::Cni { plugin: "bridge".into(), action: Some("ADD".into()), container: None };
    let plugin = ProcessFact { command: Some(plugin), ..process(Component::Helper, HOOK, CONTAINERD, 7 * S) };
    let zombie = ProcessFact { state: 'Z', threads: 1, ..process(Component::Runc, 7, SHIM, 0) };
    let shim = ProcessFact { pipes: vec![pipe_of(9, false)], ..process(Component::Shim, SHIM, 1, 0) };
    let mut story = Story::node();
    story.census(2 * S, std::slice::from_ref(&shim), &[exec()], &[]);
    story.census(10 * S, &[runc("exec", RUNC, SHIM, 6 * S), plugin, zombie, shim], &[exec()], &[]);
    assert_eq!(find(&story.snapshot(10 * S)), []);
}

/// The output of a command that has ended is held by what it left behind.
#[test]
fn an_output_that_is_held() {
    let shim = ProcessFact { pipes: vec![pipe_of(4_711, true)], ..process(Component::Shim, SHIM, 1, 0) };
    let mut story = Story::node();
    story.census(S, std::slice::from_ref(&shim), &[exec()], &[]).census(15 * S, &[shim], &[exec()], &[]);
    let snapshot = story.snapshot(15 * S);
    assert_eq!(only(&snapshot).what.pid(), 4_711);
    assert_eq!(waiters(&only(&snapshot)), ["1 ExecSync"]);
}

/// One that an ExecSync could wait for, if it did not wait for the shim to answer, or for a lock.
#[test]
fn an_exec_that_waits_elsewhere_waits_for_no_output() {
    let shim = ProcessFact { pipes: vec![pipe_of(4_711, true)], ..process(Component::Shim, SHIM, 1, 0) };
    let found = |requests: &[GoroutineGroup]| {
        let mut story = Story::node();
        story.census(S, std::slice::from_ref(&shim), requests, &[]);
        story.census(15 * S, std::slice::from_ref(&shim), requests, &[]);
        let all = find(&story.snapshot(15 * S));
        let held = all.iter().filter(|stuck| stuck.what.name() == "output_held");
        held.map(waiters).collect::<Vec<_>>()
    };
    for elsewhere in execs_elsewhere(1) {
        assert_eq!(found(std::slice::from_ref(&elsewhere)), [[""; 0]; 0], "{elsewhere:?}");
        assert_eq!(found(&[elsewhere, exec()]), [["1 ExecSync"]]);
    }
}

/// A container that somebody froze is told, and is no stall; a frozen shim is one.
#[test]
fn frozen_cgroups() {
    let freezer = Freezer { path: "/kubepods/x".into(), version: 1, state: "FROZEN".into(), own: true };
    let frozen =
        |component| ProcessFact { freezer: Some(freezer.clone()), ..process(component, 50, SHIM, 0) };
    for (component, stall) in [(Component::Helper, false), (Component::Shim, true)] {
        let mut story = Story::node();
        story.relist(0, 0).relist(S, 0).census(2 * S, &[frozen(component)], &[], &[]).read_open(2 * S);
        let snapshot = story.snapshot(2 * S);
        assert!(matches!(only(&snapshot).what, StuckKind::Frozen { .. }));
        assert_eq!(stalled(&snapshot), stall, "{component:?}");
    }
}

/// A plugin or a hook that is stopped holds up whoever started it; what runs in a container may be stopped.
#[test]
fn programs_of_the_node_that_are_stopped() {
    let plugin = Command::Cni { plugin: "bridge".into(), action: Some("ADD".into()), container: None };
    let other = Command::Other { program: "x".into() };
    let cases = [
        (plugin, "create", CONTAINERD, Some(CONTAINERD)),
        (other.clone(), "create", RUNC, Some(RUNC)),
        (other.clone(), "exec", RUNC, None),
        (other, "create", SHIM, None),
    ];
    for (command, sub, parent, waits) in cases {
        let helper =
            ProcessFact { command: Some(command), ..stopped(process(Component::Helper, HOOK, parent, S)) };
        let shim = process(Component::Shim, SHIM, 1, 0);
        let mut story = Story::node();
        story.relist(0, 0).relist(S, 0);
        story.census(2 * S, &[helper, runc(sub, RUNC, SHIM, S), shim], &[], &[]).read_open(2 * S);
        let snapshot = story.snapshot(2 * S);
        let stuck = only(&snapshot);
        let first = stuck.waiters.first().map(|waiter| match waiter {
            Waiter::Process { pid, .. } | Waiter::Relist { pid, .. } => *pid,
            Waiter::Requests(request) => request.pid,
        });
        assert_eq!(
            (stuck.what.pid(), first, stalled(&snapshot)),
            (HOOK, waits, waits.is_some()),
            "{stuck:#?}"
        );
    }
}

/// What a round does not tell any more is not there any more.
#[test]
fn a_round_replaces_the_one_before() {
    let mut story = Story::node();
    story.census(S, &[stopped(process(Component::Shim, SHIM, 1, 0))], &[], &[]).census(2 * S, &[], &[], &[]);
    assert_eq!(find(&story.snapshot(2 * S)), []);
}
