//! Stories of CRI requests outside of relists: their trees, who called, and the programs that ran for them.

use plegtrace::correlate::{Caller, Limits, RequestTree, Snapshot};
use plegtrace::diagnose::diagnose;
use plegtrace::input::{Command, Layer};
use plegtrace::render::text::{self, Section, Shown, TextOptions};
use plegtrace::span::{Account, account, critical_path, violation};
use plegtrace_common::rec::{CALL_FAILED, CALL_OK, CALL_PARKS, PROCESS_EXECED, PROCESS_INIT};
use plegtrace_common::role::Role;
use plegtrace_tests::found;
use plegtrace_tests::life::Life as _;
use plegtrace_tests::story::{CONTAINERD, KUBELET, MS, S, Story, at};

const SHIM: u32 = 900;
const OK: u32 = CALL_OK | CALL_PARKS;
const SANDBOX: &str = "51f2e49b8310aa0b51f2e49b8310aa0b51f2e49b8310aa0b51f2e49b8310aa0b";

/// A node whose parks and processes are followed.
fn node() -> Story {
    let mut story = Story::node();
    story.follows_parks().found(CONTAINERD, Role::Containerd).found(SHIM, Role::Shim).read_processes(0);
    story
}

/// A network plugin of containerd begins.
fn plugin(story: &mut Story, pid: u32, action: &str, id: &str, ns: u64) {
    let plugin =
        Command::Cni { plugin: "slow".into(), action: Some(action.into()), container: Some(id.into()) };
    story.fork(CONTAINERD, pid, ns - MS).exec(pid, Role::Helper, PROCESS_EXECED, ns).told(pid, &plugin);
}

/// A runc of the shim begins.
fn runc(story: &mut Story, pid: u32, sub: &str, id: &str, ns: u64) {
    let runc = Command::Runc { sub: sub.into(), container: Some(id.into()), bundle: None };
    story.fork(SHIM, pid, ns - MS).exec(pid, Role::Runc, PROCESS_EXECED, ns).told(pid, &runc);
}

/// The kubelet asks for a sandbox; the handler is goroutine 77.
fn sandbox_begins(story: &mut Story, goid: u64, handler: u64, ns: u64) {
    story.begin(Layer::KubeletCall, "RunPodSandbox", goid, 900, ns);
    story.begin(Layer::KubeletClient, "RunPodSandbox", goid, 1000, ns + 10_000);
    story.begin(Layer::Handler, "RunPodSandbox", handler, 700, ns + MS);
}

fn sandbox_ends(story: &mut Story, goid: u64, handler: u64, ns: u64, flags: u32) {
    story.end(Layer::Handler, "RunPodSandbox", handler, ns - MS, flags);
    story.end(Layer::KubeletClient, "RunPodSandbox", goid, ns - 10_000, flags);
    story.end(Layer::KubeletCall, "RunPodSandbox", goid, ns, flags);
}

fn only(snapshot: &Snapshot) -> &RequestTree {
    let [request] = &snapshot.requests[..] else { panic!("{:#?}", snapshot.requests) };
    assert_eq!(violation(request.root()), None);
    request
}

/// Layers and operations from the root down.
fn shape(request: &RequestTree) -> Vec<(Layer, &str)> {
    request.root().walk().map(|span| (span.layer(), span.operation())).collect()
}

fn page(snapshot: &Snapshot, verbose: bool) -> String {
    let mut out = Vec::new();
    let options = TextOptions { verbose, show: Shown::from_iter(Section::ALL), ..TextOptions::default() };
    text::report(snapshot, &diagnose(snapshot), &options, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// The kubelet's call, the handler that answers it, and the programs that ran for it: each part of the time under its
/// own name.
#[test]
fn a_slow_sandbox() {
    let mut story = node();
    story.relist(0, 0);
    sandbox_begins(&mut story, 7, 77, S);
    plugin(&mut story, 2000, "ADD", SANDBOX, S + 100 * MS);
    story.exit(4100 * MS, 2000, 0);
    story.park(CONTAINERD, 77, S + 90 * MS, 4110 * MS, &[1, 2]);
    runc(&mut story, 2001, "create", SANDBOX, 4200 * MS);
    story.exit(4250 * MS, 2001, 0);
    sandbox_ends(&mut story, 7, 77, 4300 * MS, OK);
    story.names(S, &["os/exec.(*Cmd).Wait", "x/cri/server.(*criService).RunPodSandbox"]);
    story.relist(5 * S, 0).read_open(6 * S);
    let snapshot = story.snapshot(6 * S);
    let request = only(&snapshot);
    let wanted = [
        (Layer::KubeletCall, "RunPodSandbox"),
        (Layer::KubeletClient, "RunPodSandbox"),
        (Layer::Handler, "RunPodSandbox"),
        (Layer::Process, "CNI slow ADD"),
        (Layer::Process, "runc create"),
    ];
    assert_eq!(shape(request), wanted);
    assert_eq!(
        (request.container.as_deref(), request.left_out, request.caller),
        (Some(SANDBOX), 0, Caller::NotAsked)
    );
    let path: Vec<u32> =
        critical_path(request.root(), snapshot.now).iter().map(|span| span.id.tgid).collect();
    assert_eq!(path, [KUBELET, KUBELET, CONTAINERD, 2000]);
    let expected = Account {
        not_parked_ns: 3300 * MS - 3050 * MS - 20 * MS,
        parked_ns: 20 * MS,
        process_ns: 3050 * MS,
        ..Account::default()
    };
    assert_eq!(account(request.root(), snapshot.now), expected);
    let page = page(&snapshot, false);
    for wanted in
        ["Slowest request ", "CNI slow ADD, pid 2000", "in processes 3.1 s", "container 51f2e49b8310"]
    {
        assert!(page.contains(wanted), "{wanted}\n{page}");
    }
}

/// A handler that no call of the kubelet fits is a request of its own; so is the one that the kubelet gave up, which
/// says so, and what the kubelet asks in vain. What relists ask is no request.
#[test]
fn other_callers() {
    let mut story = node();
    story.relist(0, 2).call(Layer::Handler, "ExecSync", (70, 700), S, 3 * S, CALL_OK);
    let snapshot = story.read_open(4 * S).snapshot(4 * S);
    assert_eq!(shape(only(&snapshot)), [(Layer::Handler, "ExecSync")]);
    assert_eq!(only(&snapshot).caller, Caller::Foreign);

    let mut story = Story::node();
    story.relist_hangs(S).list_times_out(121 * S).read_open(123 * S);
    let snapshot = story.snapshot(125 * S);
    assert_eq!(
        (only(&snapshot).root().operation(), only(&snapshot).caller),
        ("ListContainers", Caller::Gone(at(121 * S)))
    );
    assert!(page(&snapshot, false).contains("given up by the kubelet 4.0 s ago"));

    let mut story = Story::node();
    story.call(Layer::KubeletClient, "PullImage", (5, 900), S, 4 * S, CALL_FAILED).relist(5 * S, 0);
    assert_eq!(shape(only(&story.snapshot(8 * S))), [(Layer::KubeletClient, "PullImage")]);
}

/// While it hangs, the plugin it waits for is below it, and is what the critical path ends in. The report shows the tree
/// of the oldest of each operation, three at most.
#[test]
fn open_requests() {
    let mut story = node();
    sandbox_begins(&mut story, 7, 77, S);
    plugin(&mut story, 2000, "ADD", SANDBOX, 2 * S);
    for n in 0..5 {
        story.begin(Layer::KubeletCall, "ExecSync", 20 + n, 900, 5 * S + n);
    }
    story.begin(Layer::Handler, "UpdateContainerResources", 90, 700, 6 * S);
    story.begin(Layer::Handler, "PullImage", 91, 700, 7 * S);
    story.relist(12 * S, 0).read_processes(13 * S).read_open(13 * S);
    let snapshot = story.snapshot(13 * S);
    let operations: Vec<&str> = snapshot.requests.iter().map(|request| request.root().operation()).collect();
    let exec = "ExecSync";
    assert_eq!(
        operations,
        ["RunPodSandbox", exec, exec, exec, exec, exec, "UpdateContainerResources", "PullImage"]
    );
    let sandbox = &snapshot.requests[0];
    assert_eq!(critical_path(sandbox.root(), snapshot.now).last().unwrap().operation(), "CNI slow ADD");
    assert_eq!(account(sandbox.root(), snapshot.now).process_ns, 11 * S);
    let page = page(&snapshot, false);
    let tree = page.split("Open requests").nth(1).unwrap();
    assert!(tree.starts_with("   8 open, oldest first") && tree.contains("CNI slow ADD, pid 2000"), "{page}");
    assert_eq!(
        (tree.matches("ExecSync").count(), tree.contains("UpdateContainer"), tree.contains("PullImage")),
        (1, true, false),
        "{page}"
    );
    assert!(tree.contains("… 5 more, -v"), "{page}");
    assert_eq!(verbose(&snapshot).matches("\n  ExecSync ").count(), 5);
}

/// What the verbose report says of open requests.
fn verbose(snapshot: &Snapshot) -> String {
    let page = page(snapshot, true);
    let section = page.split("Open requests").nth(1).unwrap();
    section.split("Not seen").next().unwrap().to_owned()
}

/// Two sandboxes are made at once: a plugin that began inside both belongs to neither, and both say so. One that began
/// while there was only one of them is its, and tells by its container whose the others are.
#[test]
fn what_may_be_of_two_is_of_none() {
    let two = |first: u64| {
        let mut story = node();
        sandbox_begins(&mut story, 7, 77, S);
        sandbox_begins(&mut story, 8, 88, 2 * S);
        plugin(&mut story, 2000, "ADD", "one", first);
        story.exit(5 * S, 2000, 0);
        plugin(&mut story, 2001, "ADD", "two", 3 * S);
        story.exit(4 * S, 2001, 0);
        sandbox_ends(&mut story, 7, 77, 6 * S, OK);
        sandbox_ends(&mut story, 8, 88, 7 * S, OK);
        story.relist(8 * S, 0).read_open(9 * S).snapshot(9 * S)
    };
    let programs = |snapshot: &Snapshot| {
        let pids = |request: &RequestTree| {
            let programs = request.root().walk().filter(|span| span.layer() == Layer::Process);
            (request.root().id.goid, programs.map(|span| span.id.tgid).collect::<Vec<_>>(), request.left_out)
        };
        snapshot.requests.iter().map(pids).collect::<Vec<_>>()
    };
    let ambiguous = two(2500 * MS);
    assert_eq!(programs(&ambiguous), [(7, vec![], 2), (8, vec![], 2)]);
    assert!(page(&ambiguous, false).contains("left out 2 processes"), "{}", page(&ambiguous, false));
    assert_eq!(programs(&two(1500 * MS)), [(7, vec![2000], 0), (8, vec![2001], 0)]);
}

/// A request that began before the probes is known by its stack: what it may have started is not taken for another's.
#[test]
fn requests_before_the_probes() {
    let snapshot = |early: bool| {
        let mut story = node();
        let frames = ["k8s.io/cri-api/pkg/apis/runtime/v1._RuntimeService_RunPodSandbox_Handler"];
        if early {
            story.census(500 * MS, &[], &[found::group(&[5], "select", &frames)], &[]);
        }
        sandbox_begins(&mut story, 7, 77, S);
        plugin(&mut story, 2000, "ADD", SANDBOX, 2 * S);
        story.read_processes(4 * S).read_open(4 * S).snapshot(4 * S)
    };
    assert_eq!((only(&snapshot(false)).left_out, only(&snapshot(false)).root().walk().count()), (0, 4));
    assert_eq!((only(&snapshot(true)).left_out, only(&snapshot(true)).root().walk().count()), (1, 3));
}

/// What a runc runs is below it: the hook it waits for is the end of the critical path; what it left behind, the init
/// that waits to be started, is not in its time.
#[test]
fn what_a_runc_runs() {
    let mut story = node();
    sandbox_begins(&mut story, 7, 77, S);
    runc(&mut story, 2000, "create", SANDBOX, 1100 * MS);
    story.fork(2000, 2001, 1200 * MS).exec(2001, Role::Runc, PROCESS_EXECED | PROCESS_INIT, 1210 * MS);
    story.fork(2000, 2002, 1300 * MS).exec(2002, Role::Helper, PROCESS_EXECED, 1310 * MS);
    story.told(2002, &Command::Other { program: "gate".into() });
    story.read_processes(9 * S).read_open(9 * S);
    let hangs = story.snapshot(9 * S);
    let path = critical_path(only(&hangs).root(), hangs.now);
    let names: Vec<&str> = path.iter().map(|span| span.operation()).collect();
    assert_eq!(names[names.len() - 2..], ["runc create", "hook gate"]);

    story.exit(10 * S, 2002, 0).exit(11 * S, 2000, 0);
    sandbox_ends(&mut story, 7, 77, 12 * S, OK);
    let snapshot = story.read_open(13 * S).snapshot(13 * S);
    let below: Vec<u32> = only(&snapshot).root().walk().skip(3).map(|span| span.id.tgid).collect();
    assert_eq!(below, [2000, 2002]);
}

/// Plugins that run side by side cannot all be in one tree: the longest is, the others are counted.
#[test]
fn side_by_side() {
    let mut story = node();
    sandbox_begins(&mut story, 7, 77, S);
    plugin(&mut story, 2000, "ADD", SANDBOX, 1100 * MS);
    plugin(&mut story, 2001, "ADD", SANDBOX, 1101 * MS);
    story.exit(1200 * MS, 2000, 0).exit(3 * S, 2001, 1 << 8);
    sandbox_ends(&mut story, 7, 77, 4 * S, CALL_FAILED);
    let snapshot = story.relist(5 * S, 0).read_open(6 * S).snapshot(6 * S);
    let request = only(&snapshot);
    assert_eq!((request.root().walk().last().unwrap().id.tgid, request.left_out), (2001, 1));
    assert_eq!(page(&snapshot, false).matches("s  failed\n").count(), 3, "{}", page(&snapshot, false));
}

/// What is slow outlives the calls, parks and processes of its time, with all that belongs to it; of each operation the
/// two longest stay.
#[test]
fn slow_requests_are_kept() {
    let mut story = node();
    sandbox_begins(&mut story, 7, 77, S);
    plugin(&mut story, 2000, "ADD", SANDBOX, S + 100 * MS);
    story.exit(3 * S, 2000, 0).park(CONTAINERD, 77, S + 90 * MS, 3010 * MS, &[1]);
    sandbox_ends(&mut story, 7, 77, 3300 * MS, OK);
    for n in 0..400 {
        let from = 4 * S + n * 20 * MS;
        story.rpc("ExecSync", 2000 + n, from, from + 10 * MS + n % 7 * 200 * MS);
        let pid = 5000 + u32::try_from(n).unwrap();
        runc(&mut story, pid, "exec", "c", from + 3 * MS);
        story.exit(from + 5 * MS, pid, 0).park(CONTAINERD, 3, from, from + MS, &[1]);
    }
    story.read_open(20 * S);
    let few = Limits {
        recent_calls: 64,
        ended_processes: 32,
        parks: 64,
        reorder_ns: 100 * MS,
        ..Limits::default()
    };
    let snapshot = story.snapshot_within(few, 20 * S);
    let operations: Vec<(&str, u64)> = snapshot
        .requests
        .iter()
        .map(|r| (r.root().operation(), r.root().duration_ns(snapshot.now) / MS))
        .collect();
    assert_eq!(operations, [("RunPodSandbox", 2300), ("ExecSync", 1210), ("ExecSync", 1210)]);
    let sandbox = &snapshot.requests[0];
    assert_eq!((sandbox.root().walk().count(), sandbox.container.as_deref()), (4, Some(SANDBOX)));
    let time = account(sandbox.root(), snapshot.now);
    assert_eq!((time.process_ns, time.parked_ns), (1900 * MS, 20 * MS));
    let bounded = story.snapshot_within(Limits { requests: 1, ..few }, 20 * S);
    assert_eq!(bounded.requests.len(), 1);
}

/// Of very many open requests the oldest have trees; how many have none is told.
#[test]
fn too_many_open_requests() {
    let mut story = node();
    for n in 0..20 {
        story.begin(Layer::KubeletCall, "ExecSync", 20 + n, 900, S + n);
    }
    story.read_open(5 * S);
    let snapshot = story.snapshot_within(Limits { open_requests: 6, ..Limits::default() }, 5 * S);
    let starts: Vec<u64> = snapshot.requests.iter().map(|r| r.root().start().since(at(S))).collect();
    assert_eq!(starts, [0, 1, 2, 3, 4, 5]);
    let told = snapshot.losses.iter().find(|loss| loss.reason == "request_trees_full").unwrap();
    assert_eq!((told.count, told.is_loss), (14, false));
}
