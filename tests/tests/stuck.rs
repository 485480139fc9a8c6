//! What the pipeline makes of a census: the innermost thing that does not move is named, and everybody who waits for it;
//! what merely takes its time is not accused.

use plegtrace::correlate::{Age, Outcome, Snapshot, Stuck, Waiter, What};
use plegtrace::diagnose::diagnose;
use plegtrace::input::{
    CensusFact, Command, Component, ContainerFact, EndedInit, Fact, FdFact, FdTarget, Freezer,
    GoroutineGroup, Holder, IdOnStack, Park, PipeFact, ProcessFact, RuntimeSays, RuntimeState, SocketFact,
    SyscallFact,
};
use plegtrace::words;
use plegtrace_common::rec::PROCESS_EXECED;
use plegtrace_common::role::Role;
use plegtrace_tests::found::{about, group, lists, pipe_of, process, relist, stopped, update};
use plegtrace_tests::life::Life as _;
use plegtrace_tests::story::{CONTAINERD, KUBELET, MS, S, Story, at};

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

fn runc(sub: &str, pid: u32, parent: u32, started: u64) -> ProcessFact {
    let command = Command::Runc { sub: sub.into(), container: Some("c1".into()), bundle: None };
    ProcessFact { command: Some(command), ..process(Component::Runc, pid, parent, started) }
}

fn pod(name: &str) -> Option<ContainerFact> {
    Some(ContainerFact { id: "51f2e49b8310".into(), pod: Some(name.into()), ..ContainerFact::default() })
}

fn only(snapshot: &Snapshot) -> &Stuck {
    assert_eq!(snapshot.stuck.len(), 1, "{:#?}", snapshot.stuck);
    &snapshot.stuck[0]
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
    matches!(snapshot.outcome, Outcome::Stalled { .. })
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
    assert_eq!(stuck.what, What::Stopped { component: Component::Shim, pid: SHIM, threads: 3 });
    assert_eq!(stuck.since, Age { ns: 5 * S, at_least: true }, "as long as we know");
    assert_eq!(stuck.sockets, [socket]);
    let relist = format!("relist {KUBELET}");
    assert_eq!(waiters(stuck), ["1 UpdateContainerResources", "3 ListContainers", &relist]);
    assert!(stalled(&snapshot));
}

/// A shim that went on in between has not stood still all the time.
#[test]
fn standing_still_begins_anew() {
    let shim = process(Component::Shim, SHIM, 1, 0);
    let mut story = Story::node();
    story.census(S, &[stopped(shim.clone())], &[], &[]);
    story.census(2 * S, std::slice::from_ref(&shim), &[], &[]);
    assert_eq!(story.snapshot(2 * S).stuck, []);
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
    assert_eq!(waiters(stuck), [format!("runc {RUNC}"), format!("shim {SHIM}")]);
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
    let [late, hooked] = &snapshot.stuck[..] else { panic!("{:#?}", snapshot.stuck) };
    assert_eq!((late.what.pid(), hooked.what.pid()), (RUNC + 9, HOOK));
    let expected = "libcontainer.startUnit (waits for systemd to start a unit), 17.0 s";
    assert_eq!(words::phase(&late.phases).as_deref(), Some(expected));
    let runc = "runc create of c1 (pid 24200, in libcontainer.RunHooks (waits for a hook), 18.0 s)";
    assert_eq!(words::waiter_line(&hooked.waiters[0]), runc);
    let evidence: Vec<String> =
        diagnose(&snapshot).findings.iter().flat_map(|f| &f.evidence).map(|e| e.text.clone()).collect();
    assert!(evidence.iter().any(|text| text.contains(runc)), "{evidence:#?}");

    story.exit(21 * S, RUNC + 9, 0).fork(SHIM, RUNC + 9, 22 * S);
    story.exec(RUNC + 9, Role::Runc, PROCESS_EXECED, 22 * S).enter(RUNC + 9, "destroy", 500, 22 * S);
    story.read_processes(23 * S).read_open(23 * S);
    let reused = story.snapshot(24 * S);
    let kill = reused.stuck.iter().find(|stuck| stuck.what.pid() == RUNC + 9).unwrap();
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
    };
    let park = |from| Park {
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
        snapshot.stuck.iter().map(told).collect::<Vec<_>>()
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
    };
    let park = Park {
        threads: 1,
        tid: RUNC,
        state: 'S',
        syscall: Some(open),
        kernel_stack: Vec::new(),
        user_function: None,
    };
    let init = ProcessFact { parked: vec![park], ..runc("init", RUNC, 1, 0) };
    let mut story = Story::node();
    story.census(10 * S, &[init], &[], &[]);
    let snapshot = story.snapshot(10 * S);
    let container = only(&snapshot).container.as_ref().unwrap();
    assert_eq!((container.id.as_str(), container.source.as_str()), ("c7", "exec.fifo"));
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
    assert_eq!(story.snapshot(10 * S).stuck, []);
}

/// A child that ended long ago and was never asked for is told, but holds nobody up.
#[test]
fn an_exit_nobody_asked_for() {
    let zombie = ProcessFact { state: 'Z', threads: 1, ..process(Component::Runc, 7, SHIM, 0) };
    let mut story = Story::node();
    story.census(S, std::slice::from_ref(&zombie), &[], &[]).census(20 * S, &[zombie], &[], &[]);
    let snapshot = story.snapshot(20 * S);
    assert!(matches!(only(&snapshot).what, What::Unreaped { pid: 7, parent: SHIM, .. }));
    assert!(!stalled(&snapshot));
}

/// The output of a command that has ended is held by what it left behind.
#[test]
fn an_output_that_is_held() {
    let shim = ProcessFact { pipes: vec![pipe_of(4_711, true)], ..process(Component::Shim, SHIM, 1, 0) };
    let mut story = Story::node();
    story.census(S, std::slice::from_ref(&shim), &[exec()], &[]).census(15 * S, &[shim], &[exec()], &[]);
    let snapshot = story.snapshot(15 * S);
    assert_eq!(only(&snapshot).what.pid(), 4_711);
    assert_eq!(waiters(only(&snapshot)), ["1 ExecSync"]);
}

/// A handler that hangs for a reason we do not see is told as such, with its stack; what is behind it is not told twice.
#[test]
fn a_request_without_a_cause() {
    let mut story = Story::node();
    story.census(S, &[], &[update(), lists()], &[]).census(20 * S, &[], &[update(), lists()], &[]);
    let snapshot = story.snapshot(20 * S);
    let What::Request(request) = &only(&snapshot).what else { panic!("{:?}", snapshot.stuck) };
    assert_eq!(request.operation, "UpdateContainerResources");
    assert_eq!(only(&snapshot).since, Age { ns: 19 * S, at_least: true });
    assert_eq!(waiters(only(&snapshot)), ["3 ListContainers"]);
}

/// What may take its time is not accused by the garbage collector's mark, unless others wait for its lock.
#[test]
fn an_old_stop_is_no_cause() {
    let stop = |frames: &[&str]| {
        let served = "k8s.io/cri-api/pkg/apis/runtime/v1._RuntimeService_StopContainer_Handler";
        let stop = group(&[7], "select", &[frames, &[served]].concat());
        GoroutineGroup { waiting_since_ns: Some(at(0).0), ..stop }
    };
    let drains = stop(&["github.com/containerd/containerd/pkg/cri/server.(*criService).waitContainerStop"]);
    let update = "github.com/containerd/containerd/pkg/cri/store/container.(*statusStorage).UpdateSync";
    let stuck = |groups: &[GoroutineGroup]| {
        let mut story = Story::node();
        story.census(600 * S, &[], groups, &[]).census(620 * S, &[], groups, &[]);
        story.snapshot(620 * S).stuck
    };
    let hook = GoroutineGroup { waiting_since_ns: Some(at(0).0), ..exec() };
    assert_eq!(stuck(&[drains.clone(), hook]), []);
    let [behind] = &stuck(&[stop(&["os.(*File).Write", update]), lists()])[..] else { panic!("one culprit") };
    assert!(matches!(&behind.what, What::Request(request) if request.operation == "StopContainer"));
    assert_eq!(waiters(behind), ["3 ListContainers"]);
    // One that holds nothing is not taken for the holder.
    let [alone] = &stuck(&[drains, lists()])[..] else { panic!("one culprit") };
    assert!(matches!(&alone.what, What::Request(request) if request.operation == "ListContainers"));
}

/// A stream of events is open for days, and waits for nothing that is late.
#[test]
fn a_stream_of_events_is_not_stuck() {
    let frames = [
        "github.com/containerd/containerd/pkg/cri/server.(*criService).GetContainerEvents",
        "k8s.io/cri-api/pkg/apis/runtime/v1._RuntimeService_GetContainerEvents_Handler",
    ];
    let stream = GoroutineGroup { waiting_since_ns: Some(at(0).0), ..group(&[7], "select", &frames) };
    let mut story = Story::node();
    story.read_open(S).census(600 * S, &[], std::slice::from_ref(&stream), &[]);
    story.relist(390 * S, 0).census(620 * S, &[], &[stream], &[]).read_open(620 * S);
    let snapshot = story.snapshot(620 * S);
    assert_eq!(snapshot.stuck, []);
    assert!(!stalled(&snapshot), "{:?}", snapshot.outcome);
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
        assert!(matches!(only(&snapshot).what, What::Frozen { .. }));
        assert_eq!(stalled(&snapshot), stall, "{component:?}");
    }
}

/// A round that did not look at goroutines leaves no requests of the round before: they may have ended.
#[test]
fn requests_are_of_the_last_round() {
    let mut story = Story::node();
    story.census(S, &[], &[update(), lists()], &[]);
    assert_eq!(story.snapshot(S).census.requests.len(), 2);
    let containerd = ProcessFact { at_ns: at(2 * S).0, ..process(Component::Containerd, CONTAINERD, 1, 0) };
    story.fact(2 * S, &Fact::Process(containerd));
    let round = CensusFact { began_ns: at(2 * S).0, ended_ns: at(2 * S).0, ..CensusFact::default() };
    story.fact(2 * S, &Fact::Census(round));
    assert_eq!(story.snapshot(20 * S).census.requests, []);
}

/// What a round does not tell any more is not there any more.
#[test]
fn a_round_replaces_the_one_before() {
    let mut story = Story::node();
    story.census(S, &[stopped(process(Component::Shim, SHIM, 1, 0))], &[], &[]).census(2 * S, &[], &[], &[]);
    assert_eq!(story.snapshot(2 * S).stuck, []);
}

/// The shim of a pod: its sandbox is `s1` for the pod `p1`.
fn shim_of(number: u32) -> ProcessFact {
    let id = format!("s{number}");
    let container = ContainerFact {
        sandbox: Some(id.clone()),
        id,
        pod: Some(format!("p{number}")),
        ..ContainerFact::default()
    };
    ProcessFact { container: Some(container), ..stopped(process(Component::Shim, SHIM + number, 1, 0)) }
}

/// An ExecSync that waits for the shim of a container.
fn exec_at(goid: u64) -> GoroutineGroup {
    let frames = [
        "github.com/containerd/ttrpc.(*Client).dispatch",
        "github.com/containerd/containerd/runtime/v2/task.(*taskClient).Start",
        "github.com/containerd/containerd/pkg/cri/server.(*instrumentedService).ExecSync",
        "k8s.io/cri-api/pkg/apis/runtime/v1._RuntimeService_ExecSync_Handler",
    ];
    group(&[goid], "select", &frames)
}

/// What two stopped shims are told to hold up, and whether that is certain.
fn behind_two(groups: &[GoroutineGroup]) -> [Vec<(String, bool)>; 2] {
    let container = |number: u32| ContainerFact {
        id: format!("c{number}"),
        sandbox: Some(format!("s{number}")),
        ..ContainerFact::default()
    };
    let mut story = Story::node();
    story.containers = [1, 2, 3].map(container).to_vec();
    story.census(S, &[shim_of(1), shim_of(2)], groups, &[]);
    let snapshot = story.snapshot(2 * S);
    [1, 2].map(|number| {
        let of = snapshot.stuck.iter().find(|stuck| stuck.what.pid() == SHIM + number);
        let requests = of.expect("both are stopped").waiters.iter().filter_map(|waiter| match waiter {
            Waiter::Requests(request) => {
                Some((format!("{} {}", request.count, request.operation), request.target_known))
            }
            _ => None,
        });
        requests.collect()
    })
}

/// Two pods, both slow: each request is told behind its own shim, and one of a third pod behind none, although all of
/// them wait alike.
#[test]
fn each_waiter_at_its_own_shim() {
    const SERVES: &str = ").ExecSync";
    let one = about(exec_at(1), SERVES, "c1");
    let mut both = about(exec_at(2), SERVES, "c2");
    let third = about(exec_at(3), SERVES, "c3");
    both.subjects.extend(third.subjects);
    (both.count, both.goids) = (2, vec![2, 3]);
    let exec = |certain| vec![("1 ExecSync".to_owned(), certain)];
    assert_eq!(behind_two(&[one.clone(), both]), [exec(true), exec(true)]);
    // What nobody knows may wait for either; what is about two containers is not believed, nor what no container is.
    assert_eq!(behind_two(&[exec_at(4)]), [exec(false), exec(false)]);
    let mut doubtful = one;
    let other = IdOnStack { id: "c2".into(), ..doubtful.subjects[0].ids[0].clone() };
    doubtful.subjects[0].ids.push(other);
    assert_eq!(behind_two(&[doubtful]), [exec(false), exec(false)]);
    assert_eq!(behind_two(&[about(exec_at(5), SERVES, "c9")]), [exec(false), exec(false)]);
}

/// Two containers are locked: the lists wait for the lock that they are at.
#[test]
fn each_list_at_its_own_lock() {
    const SERVES: &str = ").UpdateContainerResources";
    const LOCK: &str = "(*statusStorage).Get";
    let updates = ["c1", "c2"].map(|id| {
        let mut update = update();
        update.goids = if id == "c1" { vec![1] } else { vec![2] };
        about(update, SERVES, id)
    });
    let lists = about(lists(), LOCK, "c2");
    let [one, two] = behind_two(&[&updates[..], std::slice::from_ref(&lists)].concat());
    assert_eq!(one, [("1 UpdateContainerResources".to_owned(), true)]);
    let list = ("3 ListContainers".to_owned(), true);
    assert_eq!(two, [("1 UpdateContainerResources".to_owned(), true), list]);
}

/// A command whose shim was stopped meanwhile does not end; one in a healthy pod may take its time.
#[test]
fn the_output_of_a_command_behind_its_shim() {
    let serving = "github.com/containerd/containerd/pkg/cri/server.(*instrumentedService).ExecSync";
    let running = |id: &str| {
        let mut exec = exec();
        exec.frames.insert(1, serving.to_owned());
        about(exec, ").ExecSync", id)
    };
    assert_eq!(behind_two(&[running("c3")]), [vec![], vec![]]);
    assert_eq!(behind_two(&[running("c2")]), [vec![], vec![("1 ExecSync".to_owned(), true)]]);
    assert_eq!(behind_two(&[exec()]), [vec![], vec![]]);
}

fn c1() -> ContainerFact {
    ContainerFact { id: "c1".into(), pod: Some("p1".into()), ..ContainerFact::default() }
}

/// What the runtime says of a container.
fn says(state: &str) -> RuntimeSays {
    let said = RuntimeState { container: c1(), state: state.into(), runs: state == "running" };
    RuntimeSays { pid: CONTAINERD, version: "v1".into(), containers: vec![said], ..RuntimeSays::default() }
}

/// Rounds that find the first process of a container with this number gone, and what the runtime says at each.
fn unreported(rounds: &[(u64, u32, Option<RuntimeSays>)]) -> Vec<String> {
    let mut story = Story::node();
    for (ns, pid, says) in rounds {
        let (id, exec) = ("c1".into(), None);
        story.ended = vec![EndedInit { id, exec, pid: *pid, zombie: true, commands: 0 }];
        story.says.clone_from(says);
        story.census(*ns, &[], &[], &[]);
    }
    let snapshot = story.snapshot(30 * S);
    assert!(!stalled(&snapshot), "the node goes on");
    let kind = |stuck: &Stuck| format!("{} {} {}", stuck.what.name(), stuck.what.pid(), stuck.since.ns / S);
    snapshot.stuck.iter().map(kind).collect()
}

/// A container that has ended and runs, if one asks the runtime: told when two looks far enough apart found it so, and
/// not when the runtime knows, was not asked, did not answer, or speaks of another life of the container.
#[test]
fn ends_that_the_runtime_does_not_know_of() {
    let running = || Some(says("running"));
    assert_eq!(unreported(&[(S, 77, running()), (12 * S, 77, running())]), ["unreported 77 29"]);
    assert_eq!(unreported(&[(S, 77, running()), (9 * S, 77, running())]), [""; 0], "it may still be told");
    assert_eq!(unreported(&[(S, 77, running()), (12 * S, 77, Some(says("exited")))]), [""; 0]);
    assert_eq!(unreported(&[(S, 77, running()), (12 * S, 77, None)]), [""; 0], "nobody asked");
    let silent = RuntimeSays { version: String::new(), containers: Vec::new(), ..says("running") };
    assert_eq!(unreported(&[(S, 77, running()), (12 * S, 77, Some(silent))]), [""; 0], "no answer");
    assert_eq!(unreported(&[(S, 77, running()), (12 * S, 78, running())]), [""; 0], "started again");
}

/// Rounds that find `ended` commands of c1 gone while `commands` run there, and `waiting` ExecSync in flight; what is
/// told of it, and whether the node stalls.
fn commands(
    ended: &[&str],
    commands: u32,
    waiting: &[u64],
    processes: &[ProcessFact],
) -> (Vec<String>, bool) {
    let serving = "github.com/containerd/containerd/pkg/cri/server.(*instrumentedService).ExecSync";
    let group = |goid: &u64| {
        let mut exec = exec();
        exec.goids = vec![*goid];
        exec.frames.insert(1, serving.to_owned());
        about(exec, ").ExecSync", "c1")
    };
    let groups: Vec<GoroutineGroup> = waiting.iter().map(group).collect();
    let mut story = Story::node();
    story.containers = vec![c1()];
    let end = |exec: &&str| EndedInit {
        id: "c1".into(),
        exec: Some((*exec).to_owned()),
        pid: 77,
        zombie: false,
        commands,
    };
    story.ended = ended.iter().map(end).collect();
    for ns in [S, 12 * S] {
        story.census(ns, processes, &groups, &[]);
    }
    let snapshot = story.snapshot(13 * S);
    let told = snapshot.stuck.iter().filter(|stuck| stuck.what.name() == "unreported");
    (told.map(plegtrace::words::what).collect(), stalled(&snapshot))
}

/// A command that has ended while its ExecSync goes on: told when somebody must be waiting for it, and not when as many
/// commands run as requests wait, nobody waits, or its output is held open, which is another cause.
#[test]
fn ends_of_commands_that_the_runtime_does_not_know_of() {
    let (told, stalls) = commands(&["e1"], 0, &[1], &[]);
    assert_eq!(
        told,
        [format!(
            "a command in container c1 of pod p1 has ended (its process 77 is gone), and runtime {CONTAINERD} still waits for it"
        )]
    );
    assert!(stalls, "a probe hangs");
    assert_eq!(commands(&["e1"], 1, &[1], &[]), (vec![], false), "left by a runtime that was started anew");
    assert_eq!(commands(&["e1"], 1, &[1, 2], &[]).0.len(), 1);
    assert_eq!(commands(&["e1"], 0, &[], &[]), (vec![], false));
    assert_eq!(commands(&[], 0, &[1], &[]).0, [""; 0]);
    let shim = ProcessFact { pipes: vec![pipe_of(RUNC, true)], ..process(Component::Shim, SHIM, 1, 0) };
    assert_eq!(commands(&["e1"], 0, &[1], &[shim]).0, [""; 0], "R8");
}
