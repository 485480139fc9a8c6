//! R16: a runtime that has locked itself out of NRI, and who waits for one of its locks without that.

use plegtrace::correlate::Snapshot;
use plegtrace::diagnose::{Confidence, Diagnosis, Severity, Verdict, diagnose};
use plegtrace::input::{Component, GoroutineGroup, Layer, ProcessFact};
use plegtrace_common::rec::CALL_FAILED;
use plegtrace_tests::found::{group, process, stopped};
use plegtrace_tests::story::{CONTAINERD, MS, S, Story};

use super::{SHIM, culprit, ids, none, only, runc::init_at_fifo};

const LOCK: [&str; 3] =
    ["sync.runtime_SemacquireMutex", "internal/sync.(*Mutex).lockSlow", "sync.(*Mutex).Lock"];
const ADAPTATION: &str = "github.com/containerd/nri/pkg/adaptation";
const CALL: [&str; 2] =
    ["github.com/containerd/ttrpc.(*Client).dispatch", "github.com/containerd/ttrpc.(*Client).Call"];

/// A goroutine that waits for a mutex in these functions.
fn at_lock(goid: u64, frames: &[String]) -> GoroutineGroup {
    let frames: Vec<&str> = LOCK.into_iter().chain(frames.iter().map(String::as_str)).collect();
    group(&[goid], "sync.Mutex.Lock", &frames)
}

/// The handler of a CRI method in containerd 2.x, from where it asks NRI on.
fn handler(operation: &str) -> [String; 3] {
    [
        format!("github.com/containerd/containerd/v2/internal/cri/nri.(*API).{operation}"),
        format!("github.com/containerd/containerd/v2/internal/cri/server.(*criService).{operation}"),
        format!("k8s.io/cri-api/pkg/apis/runtime/v1._RuntimeService_{operation}_Handler"),
    ]
}

fn local(function: &str) -> String {
    format!("github.com/containerd/containerd/v2/internal/nri.(*local).{function}")
}

fn adaptation(function: &str) -> String {
    format!("{ADAPTATION}.(*Adaptation).{function}")
}

/// A call of the kubelet that has the runtime's lock and wants that of NRI's plugins.
fn inner(goid: u64, operation: &str) -> GoroutineGroup {
    at_lock(goid, &[&[adaptation(operation), local(operation)], &handler(operation)[..]].concat())
}

/// One that wants the runtime's lock.
fn outer(goid: u64, operation: &str) -> GoroutineGroup {
    at_lock(goid, &[&[local(operation)], &handler(operation)[..]].concat())
}

/// An update that a plugin asked for: it has the lock of NRI's plugins and wants the runtime's.
fn update_of_plugin(goid: u64) -> GoroutineGroup {
    let api = "github.com/containerd/nri/pkg/api.RegisterRuntimeService.func2".to_owned();
    let plugin = format!("{ADAPTATION}.(*plugin).UpdateContainers");
    at_lock(goid, &[local("updateFromPlugin"), adaptation("updateContainers"), plugin, api])
}

/// Looks at these goroutines of containerd, at these times.
fn looked(looks: &[(u64, Vec<GoroutineGroup>)]) -> Snapshot {
    let mut story = Story::node();
    let last = looks.last().expect("a look").0;
    for (ns, groups) in looks {
        story.census(*ns, &[process(Component::Shim, SHIM, 1, 0)], groups, &[]);
    }
    story.relist(last - S, 0).read_open(last).snapshot(last)
}

fn twice(groups: &[GoroutineGroup]) -> Snapshot {
    looked(&[(2 * S, groups.to_vec()), (8 * S, groups.to_vec())])
}

/// Each has the lock that the other one wants: nobody gets either any more, and lists go on.
#[test]
fn r16_names_the_runtime() {
    let deadlock =
        [update_of_plugin(50), inner(60, "PostUpdateContainerResources"), outer(61, "StopPodSandbox")];
    let snapshot = twice(&deadlock);
    let finding = only(&snapshot, "R16");
    assert_eq!((culprit(&finding), finding.severity), (Some(CONTAINERD), Severity::Stall));
    assert_eq!((finding.reach, finding.since.unwrap().ns), (2, 6 * S));
    assert_eq!((finding.confidence, finding.doubts.len()), (Confidence::High, 0));
    let victims = "StopPodSandbox";
    assert!(finding.victims[0].contains(victims), "{:?}", finding.victims);
    let told = |words: &str| finding.evidence.iter().any(|seen| seen.text.contains(words));
    assert!(told("updateFromPlugin") && told("an update that an NRI plugin asked for"), "{finding:#?}");
    assert!(finding.next[0].contains("restart"), "{:?}", finding.next);
    assert_eq!(diagnose(&snapshot).verdict, Verdict::Stall);
}

/// NRI's plugins are asked between create and start of a container: an init that waits to be started is one more victim, and no orphan
/// (seen in the lab).
#[test]
fn r16_and_an_init_that_waits_to_be_started() {
    let deadlock =
        [update_of_plugin(50), inner(60, "PostUpdateContainerResources"), outer(61, "RunPodSandbox")];
    let mut story = Story::node();
    for ns in [2 * S, 14 * S] {
        story.census(ns, &[process(Component::Shim, SHIM, 1, 0), init_at_fifo(SHIM)], &deadlock, &[]);
    }
    let snapshot = story.relist(13 * S, 0).read_open(14 * S).snapshot(14 * S);
    only(&snapshot, "R16");
    // Without them it is one.
    let mut story = Story::node();
    for ns in [2 * S, 14 * S] {
        story.census(ns, &[process(Component::Shim, SHIM, 1, 0), init_at_fifo(SHIM)], &[], &[]);
    }
    only(&story.relist(13 * S, 0).read_open(14 * S).snapshot(14 * S), "U2");
}

/// The one that has the runtime's lock may be no call at all, and the other one a plugin that registers.
#[test]
fn r16_of_an_exit_and_a_registration() {
    let exit = at_lock(
        60,
        &[adaptation("StopContainer"), local("stopContainer"), local("NotifyContainerExit.func1")],
    );
    let registers = at_lock(50, &[local("syncPlugin"), adaptation("acceptPluginConnections.func1")]);
    let alone = only(&twice(&[exit.clone(), registers.clone()]), "R16");
    assert_eq!((alone.severity, alone.reach), (Severity::Stall, 1), "the next call will hang");
    assert!(alone.evidence.iter().any(|seen| seen.text.contains("the registration of an NRI plugin")));
    let sync = at_lock(62, &[&[adaptation("BlockPluginSync")], &handler("RunPodSandbox")[..]].concat());
    let finding = only(&twice(&[exit, registers, sync, outer(61, "StartContainer")]), "R16");
    assert_eq!(finding.reach, 2);
    let victims = &finding.victims[0];
    assert!(victims.contains("RunPodSandbox") && victims.contains("StartContainer"), "{victims}");
}

/// CRI-O has the same two locks.
#[test]
fn r16_of_crio() {
    let of_crio = |group: GoroutineGroup| {
        let rename = |frame: &String| {
            frame.replace("containerd/containerd/v2/internal/nri", "cri-o/cri-o/internal/nri")
        };
        GoroutineGroup { frames: group.frames.iter().map(rename).collect(), ..group }
    };
    only(&twice(&[of_crio(update_of_plugin(50)), of_crio(inner(60, "StartContainer"))]), "R16");
}

/// Locks are taken all the time. Both must be waited for by the same goroutines for five seconds; one that only waits, or a plugin that
/// takes its time, is no deadlock.
#[test]
fn r16_needs_both_for_a_while() {
    let (a, b) = (update_of_plugin(50), inner(60, "StartContainer"));
    none(&looked(&[(2 * S, vec![a.clone(), b.clone()]), (6 * S, vec![a.clone(), b.clone()])]));
    let busy = |first: [u64; 2]| {
        let then = vec![update_of_plugin(50), inner(60, "StartContainer")];
        looked(&[(2 * S, vec![update_of_plugin(first[0]), inner(first[1], "StartContainer")]), (8 * S, then)])
    };
    none(&busy([51, 60]));
    none(&busy([50, 61]));
    only(&busy([50, 60]), "R16");
    none(&twice(std::slice::from_ref(&a)));
    none(&twice(std::slice::from_ref(&b)));
    none(&twice(&[b.clone(), outer(61, "StopPodSandbox")]));
    none(&twice(&[outer(62, "StartContainer"), outer(61, "StopPodSandbox")]));
    let moved =
        looked(&[(2 * S, vec![a.clone(), b.clone()]), (8 * S, vec![b.clone()]), (14 * S, vec![a, b])]);
    assert!(!ids(&diagnose(&moved)).contains(&"R16"), "it came back in between");
}

/// A call that waits for a plugin's answer, with both locks.
fn asks_plugin() -> GoroutineGroup {
    let plugin = format!("{ADAPTATION}.(*plugin).startContainer");
    let client = "github.com/containerd/nri/pkg/api.(*pluginClient).StartContainer".to_owned();
    let inner = CALL.map(str::to_owned);
    let nri = [client, plugin, adaptation("StartContainer"), local("StartContainer")];
    let frames = [&inner[..], &nri, &handler("StartContainer")[..]].concat();
    group(&[60], "select", &frames.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Who asks a plugin waits for that, not for a shim that is stopped; who wants the lock that it has waits behind it.
#[test]
fn a_plugin_is_no_shim() {
    let shim: ProcessFact = stopped(process(Component::Shim, SHIM, 1, 0));
    let mut story = Story::node();
    for look in [S, 15 * S] {
        story.census(look, std::slice::from_ref(&shim), &[asks_plugin(), outer(61, "RemoveContainer")], &[]);
    }
    let diagnosis = diagnose(&story.snapshot(15 * S));
    let waits_for = |diagnosis: &Diagnosis, pid| {
        let of = |stuck: &&plegtrace::stuck::Stuck| stuck.what.pid() == pid;
        diagnosis.stuck.iter().find(of).map_or(0, |stuck| stuck.waiters.len())
    };
    assert_eq!(waits_for(&diagnosis, SHIM), 0, "{:#?}", diagnosis.stuck);
    assert_eq!(waits_for(&diagnosis, CONTAINERD), 1, "{:#?}", diagnosis.stuck);
}

/// A StopPodSandbox that the kubelet has given up on and that waits for a lock of the runtime: no process of its pod is to blame.
#[test]
fn l3_leaves_it_to_the_locks() {
    let stopped = |groups: &[GoroutineGroup]| {
        let mut story = Story::node();
        for layer in [Layer::KubeletClient, Layer::Handler] {
            story.hook(layer, "StopPodSandbox");
        }
        story.begin(Layer::KubeletClient, "StopPodSandbox", 6, 900, 0);
        story.begin(Layer::Handler, "StopPodSandbox", 61, 700, MS);
        story.end(Layer::KubeletClient, "StopPodSandbox", 6, 7 * S, CALL_FAILED);
        for look in [2 * S, 8 * S] {
            story.census(look, &[], groups, &[]);
        }
        story.relist(10 * S, 0).relist(11 * S, 0).read_open(12 * S);
        ids(&diagnose(&story.snapshot(12 * S)))
    };
    let [a, b, c] = [update_of_plugin(50), inner(60, "StartContainer"), outer(61, "StopPodSandbox")];
    assert_eq!(stopped(&[a, b, c.clone()]), ["R16"]);
    assert_eq!(stopped(&[c]), [""; 0], "who has the lock is not known");
    assert_eq!(stopped(&[]), ["L3"]);
}
