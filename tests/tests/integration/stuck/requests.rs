//! Requests that hang: each behind what it waits for, and none that may take its time.

use plegtrace::correlate::Age;
use plegtrace::input::{CensusFact, Component, ContainerFact, Fact, GoroutineGroup, IdOnStack, ProcessFact};
use plegtrace::stuck::{StuckKind, Waiter, find};
use plegtrace_tests::found::{about, group, lists, process, stopped, update};
use plegtrace_tests::story::{CONTAINERD, S, Story, at};

use super::{SHIM, exec, exec_at_shim, only, stalled, waiters};

/// A handler that hangs for a reason we do not see is told as such, with its stack; what is behind it is not told twice.
#[test]
fn a_request_without_a_cause() {
    let mut story = Story::node();
    story.census(S, &[], &[update(), lists()], &[]).census(20 * S, &[], &[update(), lists()], &[]);
    let snapshot = story.snapshot(20 * S);
    let StuckKind::Request(request) = &only(&snapshot).what else { panic!("{:?}", find(&snapshot)) };
    assert_eq!(request.operation, "UpdateContainerResources");
    assert_eq!(only(&snapshot).since, Age { ns: 19 * S, at_least: true });
    assert_eq!(waiters(&only(&snapshot)), ["3 ListContainers"]);
}

/// An update that writes its container's new size to the metadata holds that transaction and the status: the lists are behind it.
#[test]
fn one_that_holds_two_locks() {
    let mut commits = update();
    let inner = ["syscall.Fdatasync", "go.etcd.io/bbolt.(*Tx).Commit"].map(str::to_owned);
    commits.frames.splice(..2, inner);
    let mut story = Story::node();
    let groups = [commits, lists()];
    story.census(S, &[], &groups, &[]).census(20 * S, &[], &groups, &[]);
    let stuck = only(&story.snapshot(20 * S));
    assert!(
        matches!(&stuck.what, StuckKind::Request(request) if request.operation == "UpdateContainerResources")
    );
    assert_eq!(waiters(&stuck), ["3 ListContainers"]);
}

/// What may take its time is not accused by the garbage collector's mark, unless others wait for its lock.
#[test]
fn an_old_stop_is_no_cause() {
    let stop = |frames: &[&str]| {
        let served = "k8s.io/cri-api/pkg/apis/runtime/v1._RuntimeService_StopContainer_Handler";
        let stop = group(&[7], "select", &[frames, &[served]].concat());
        GoroutineGroup { parked_by_ns: Some(at(0).0), ..stop }
    };
    let drains = stop(&["github.com/containerd/containerd/pkg/cri/server.(*criService).waitContainerStop"]);
    let update = "github.com/containerd/containerd/pkg/cri/store/container.(*statusStorage).UpdateSync";
    let stuck = |groups: &[GoroutineGroup]| {
        let mut story = Story::node();
        story.census(600 * S, &[], groups, &[]).census(620 * S, &[], groups, &[]);
        find(&story.snapshot(620 * S))
    };
    let hook = GoroutineGroup { parked_by_ns: Some(at(0).0), ..exec() };
    assert_eq!(stuck(&[drains.clone(), hook]), []);
    let [behind] = &stuck(&[stop(&["os.(*File).Write", update]), lists()])[..] else { panic!("one culprit") };
    assert!(matches!(&behind.what, StuckKind::Request(request) if request.operation == "StopContainer"));
    assert_eq!(waiters(behind), ["3 ListContainers"]);
    // One that holds nothing is not taken for the holder.
    let [alone] = &stuck(&[drains, lists()])[..] else { panic!("one culprit") };
    assert!(matches!(&alone.what, StuckKind::Request(request) if request.operation == "ListContainers"));
}

/// A stream of events is open for days, and waits for nothing that is late.
#[test]
fn a_stream_of_events_is_not_stuck() {
    let frames = [
        "github.com/containerd/containerd/pkg/cri/server.(*criService).GetContainerEvents",
        "k8s.io/cri-api/pkg/apis/runtime/v1._RuntimeService_GetContainerEvents_Handler",
    ];
    let stream = GoroutineGroup { parked_by_ns: Some(at(0).0), ..group(&[7], "select", &frames) };
    let client =
        group(&[9], "IO wait", &["k8s.io/cri-client/pkg.(*remoteRuntimeService).GetContainerEvents"]);
    let (stream, client) = ([stream], [client]);
    let mut story = Story::node();
    story.read_open(S).census(600 * S, &[], &stream, &client);
    story.relist(390 * S, 0).census(620 * S, &[], &stream, &client).read_open(620 * S);
    let snapshot = story.snapshot(620 * S);
    assert_eq!(find(&snapshot), []);
    assert!(!stalled(&snapshot), "{:?}", find(&snapshot));
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
        let all = find(&snapshot);
        let of = all.iter().find(|stuck| stuck.what.pid() == SHIM + number);
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
    let one = about(exec_at_shim(1), SERVES, "c1");
    let mut both = about(exec_at_shim(2), SERVES, "c2");
    let third = about(exec_at_shim(3), SERVES, "c3");
    both.subjects.extend(third.subjects);
    (both.count, both.goids) = (2, vec![2, 3]);
    let exec = |certain| vec![("1 ExecSync".to_owned(), certain)];
    assert_eq!(behind_two(&[one.clone(), both]), [exec(true), exec(true)]);
    // What nobody knows may wait for either; what is about two containers is not believed, nor what no container is.
    assert_eq!(behind_two(&[exec_at_shim(4)]), [exec(false), exec(false)]);
    let mut doubtful = one;
    let other = IdOnStack { id: "c2".into(), ..doubtful.subjects[0].ids[0].clone() };
    doubtful.subjects[0].ids.push(other);
    assert_eq!(behind_two(&[doubtful]), [exec(false), exec(false)]);
    assert_eq!(behind_two(&[about(exec_at_shim(5), SERVES, "c9")]), [exec(false), exec(false)]);
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
