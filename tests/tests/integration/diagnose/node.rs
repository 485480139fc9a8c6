//! Causes around the runtime: plugins of the network, load, and what only looks like a stall.

use plegtrace::diagnose::{Confidence, Finding, Severity, Verdict, diagnose};
use plegtrace::input::{
    CensusFact, Command, Component, Fact, FdFact, FdTarget, Freezer, GoroutineGroup, Holder, Layer, PipeFact,
    Pressure, ProcessFact, SocketFact, SyscallFact, TaskLimit,
};
use plegtrace_common::rec::{CALL_FAILED, PROCESS_EXECED};
use plegtrace_common::role::Role;
use plegtrace_tests::found::{group, process, stopped};
use plegtrace_tests::life::Life as _;
use plegtrace_tests::story::{CONTAINERD, KUBELET, MS, S, Story, at};

use super::{CHILD, SHIM, cni, culprit, holder, ids, none, only, park, seen_twice, syscall};

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
    let tells =
        |finding: &Finding| finding.evidence.iter().any(|seen| seen.text.contains("holds the network lock"));
    let held = finding("syscall.openat", &[2, 11, 12]).unwrap();
    assert_eq!((culprit(&held), held.confidence), (Some(CONTAINERD), Confidence::High));
    assert!(tells(&held), "{:?}", held.evidence);
    assert!(!tells(&finding("sync.(*RWMutex).Lock", &[2, 11, 12]).unwrap()));
    assert!(finding("syscall.openat", &[]).is_none(), "no relist ends");
}

/// Goroutines of a runtime around the lock of its networks: Status and a reload wait for it, another pod as well, and the
/// set-up of a network is where `inside` says.
fn network_lock(inside: &[&str]) -> Vec<GoroutineGroup> {
    const LOCK: &str = "sync.runtime_SemacquireRWMutexR";
    const SETUP: &str = "github.com/containerd/go-cni.(*libcni).Setup";
    let served =
        |method: &str| format!("k8s.io/cri-api/pkg/apis/runtime/v1._RuntimeService_{method}_Handler");
    let (status, sandbox) = (served("Status"), served("RunPodSandbox"));
    let load = ["sync.(*RWMutex).Lock", "github.com/containerd/go-cni.(*libcni).Load", "server.syncLoop"];
    vec![
        group(
            &[622],
            "sync.RWMutex.RLock",
            &[LOCK, "github.com/containerd/go-cni.(*libcni).Status", &status],
        ),
        group(&[41], "sync.RWMutex.Lock", &load),
        group(&[50], "sync.RWMutex.RLock", &[LOCK, SETUP, &sandbox]),
        group(&[51], "select", &[inside, &[SETUP, &sandbox]].concat()),
    ]
}

/// Who past the lock waits for a plugin.
const PLUGIN: &[&str] =
    &["os/exec.(*Cmd).Wait", "github.com/containernetworking/cni/libcni.(*CNIConfig).AddNetworkList"];
/// Who holds the lock wants it once more.
const AGAIN: &[&str] = &["sync.(*RWMutex).RLock", "github.com/containerd/go-cni.(*libcni).Networks"];

/// What is named while Status waits for the lock of the networks, with a plugin of this age, if there is one.
fn at_the_network_lock(groups: &[GoroutineGroup], plugin: Option<u64>) -> Vec<Finding> {
    let processes: Vec<ProcessFact> = plugin
        .map(|age| ProcessFact {
            started_ns: Some(at(13 * S - age).0),
            ..cni(CHILD, park(syscall("read", None)))
        })
        .into_iter()
        .collect();
    let mut story = Story::node();
    story.census(S, &processes, groups, &[]);
    for second in [2, 11, 12] {
        story.relist(second * S, 0);
    }
    story.read_open(13 * S).census(13 * S, &processes, groups, &[]);
    diagnose(&story.snapshot(13 * S)).findings
}

fn named(findings: &[Finding]) -> Vec<&'static str> {
    findings.iter().map(|finding| finding.rule.id).collect()
}

/// A plugin that hangs keeps the lock for which a reload waits, and Status behind it: the plugin is to blame, as of N1, and
/// nobody else. Without a reload Status does not wait for it; before the plugin is old, nothing is said.
#[test]
fn r6_names_the_plugin_that_keeps_the_lock() {
    let all = network_lock(PLUGIN);
    let findings = at_the_network_lock(&all, Some(12 * S));
    assert_eq!(named(&findings), ["R6"]);
    assert_eq!((culprit(&findings[0]), findings[0].confidence), (Some(CHILD), Confidence::High));
    assert_eq!(findings[0].also, ["N1"]);
    assert!(findings[0].victims[0].contains("runtime's status"), "{:?}", findings[0].victims);
    let without = |place: usize| {
        let mut groups = all.clone();
        groups.remove(place);
        named(&at_the_network_lock(&groups, Some(12 * S)))
    };
    assert_eq!(without(0), ["N1"], "nobody asks for the status");
    assert_eq!(without(1), ["N1", "L2"], "no reload waits");
    assert!(!named(&at_the_network_lock(&all, Some(8 * S))).contains(&"R6"), "the plugin is young");
    let mut unseen = all.clone();
    unseen.remove(3);
    assert_eq!(
        named(&at_the_network_lock(&unseen, Some(12 * S))),
        ["R6"],
        "who started the plugin was not seen"
    );
}

/// Runtimes before containerd 2 keep the lock for a moment only. One look that finds everybody at it proves nothing.
#[test]
fn r6_needs_a_status_that_waits_for_more_than_a_moment() {
    let plugin = ProcessFact { started_ns: Some(at(S).0), ..cni(CHILD, park(syscall("read", None))) };
    let mut story = Story::node();
    story.relist(12 * S, 0).read_open(13 * S).census(13 * S, &[plugin], &network_lock(PLUGIN), &[]);
    assert_eq!(named(&diagnose(&story.snapshot(13 * S)).findings), ["N1"]);
}

/// Nobody is past the lock, and no plugin runs: go-cni waits for itself. As long as somebody may let go, it is not that.
#[test]
fn r5_needs_a_lock_that_nobody_holds_for_work() {
    let findings = at_the_network_lock(&network_lock(AGAIN), None);
    assert_eq!(named(&findings), ["R5"]);
    assert_eq!((culprit(&findings[0]), findings[0].confidence), (Some(CONTAINERD), Confidence::High));
    let again = |finding: &Finding| {
        let ends = "RWMutex).RLock < go-cni.(*libcni).Networks < go-cni.(*libcni).Setup";
        finding
            .evidence
            .iter()
            .any(|seen| seen.text.contains("waits for it again") && seen.text.ends_with(ends))
    };
    assert!(again(&findings[0]), "{:?}", findings[0].evidence);
    let mut unseen = network_lock(AGAIN);
    unseen.remove(3);
    let doubted = &at_the_network_lock(&unseen, None)[0];
    assert_eq!((doubted.rule.id, doubted.confidence, again(doubted)), ("R5", Confidence::Medium, false));
    assert!(
        !named(&at_the_network_lock(&network_lock(PLUGIN), None)).contains(&"R5"),
        "somebody is past the lock"
    );
    assert!(!named(&at_the_network_lock(&network_lock(AGAIN), Some(S))).contains(&"R5"), "a plugin runs");
    let mut groups = network_lock(AGAIN);
    groups.remove(1);
    assert_eq!(named(&at_the_network_lock(&groups, None)), ["L2"], "no reload waits");
}

/// A Status of the kubelet that is late hangs in the runtime, whose handler began a little later.
#[test]
fn l2_is_the_runtime_s_as_soon_as_it_serves() {
    let late = |handler: bool| {
        let mut story = Story::node();
        for layer in [Layer::KubeletCall, Layer::KubeletClient, Layer::Handler] {
            story.hook(layer, "Status");
        }
        story.begin(Layer::KubeletCall, "Status", 6, 900, 0);
        if handler {
            story.begin(Layer::Handler, "Status", 76, 700, 2 * MS);
        }
        let now = 10 * S + MS;
        story.relist(now - 2 * S, 0).relist(now - S, 0).read_open(now);
        culprit(&only(&story.snapshot(now), "L2"))
    };
    assert_eq!((late(true), late(false)), (Some(CONTAINERD), Some(KUBELET)));
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

/// A plugin that waits for its agent, and one that queues for a lock: then the holder is to blame.
#[test]
fn n1_or_n2_by_what_it_waits_for() {
    let agent = SocketFact { peers: vec![holder(777), holder(778)], ..SocketFact::default() };
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

/// The one process at the other end of the one socket at which a plugin waits is its agent, also where the plugin waits in
/// epoll; with several sockets, with several holders, and when that process waits for the plugin, it is the plugin that hangs.
#[test]
fn n3_names_the_agent() {
    let to = |pids: &[u32]| {
        let peers = pids.iter().copied().map(holder).collect();
        FdTarget::Socket(SocketFact { path: Some("/run/agent.sock".into()), peers, ..SocketFact::default() })
    };
    let reads = |pids: &[u32]| cni(CHILD, park(syscall("recvfrom", Some(to(pids)))));
    let watches = |all: &[&[u32]]| {
        let watched = all.iter().map(|pids| FdFact { fd: 5, target: to(pids) }).collect();
        cni(CHILD, park(SyscallFact { watched, ..syscall("epoll_pwait", None) }))
    };
    let runtime = || process(Component::Containerd, CONTAINERD, 1, 0);
    let of = |plugin: ProcessFact| {
        diagnose(&seen_twice(12 * S, &[plugin, runtime()], &[], &[])).findings.swap_remove(0)
    };
    for plugin in [reads(&[777]), watches(&[&[777]])] {
        let found = of(plugin);
        assert_eq!((found.rule.id, culprit(&found), found.behind), ("N3", Some(777), Some(CHILD)));
        assert_eq!(found.confidence, Confidence::Medium, "not everybody was asked");
        assert!(
            found.headline.contains("x 777, the agent of the network plugin, does not answer"),
            "{}",
            found.headline
        );
        assert!(found.evidence.iter().any(|seen| seen.text.contains("/run/agent.sock")), "{found:#?}");
    }
    for plugin in [reads(&[777, 778]), reads(&[CONTAINERD]), watches(&[&[777], &[778]]), watches(&[&[]])] {
        assert_eq!(of(plugin).rule.id, "N1");
    }
    let tcp = FdFact { fd: 6, target: FdTarget::Other { link: "socket:[77]".into() } };
    let watched = vec![FdFact { fd: 5, target: to(&[777]) }, tcp];
    let either = cni(CHILD, park(SyscallFact { watched, ..syscall("epoll_pwait", None) }));
    assert_eq!(of(either).rule.id, "N1", "it may as well wait for the network");
    let bus = SocketFact { path: Some("/run/dbus/system_bus_socket".into()), ..SocketFact::default() };
    let bus = FdTarget::Socket(SocketFact { peers: vec![holder(777)], ..bus });
    assert_eq!(of(cni(CHILD, park(syscall("recvmsg", Some(bus))))).rule.id, "N1", "a bus passes on");
    let writes = cni(CHILD, park(syscall("write", Some(to(&[777])))));
    assert_eq!(of(writes).rule.id, "N1", "it does not wait for an answer");
    none(&seen_twice(8 * S, &[reads(&[777])], &[], &[]));
}

/// A plugin at a socket that these processes hold, of which everybody was asked.
fn asks(pid: u32, socket: &SocketFact, peers: &[u32]) -> ProcessFact {
    let peers = peers.iter().copied().map(holder).collect();
    let socket =
        SocketFact { path: Some("/run/agent.sock".into()), peers, asked_all: true, ..socket.clone() };
    cni(pid, park(syscall("recvfrom", Some(FdTarget::Socket(socket)))))
}

/// An agent that is stopped, or that has not accepted the connection yet, is to blame as well; systemd, which keeps sockets
/// for the services that it starts, is not.
#[test]
fn n3_names_an_agent_that_does_not_even_accept() {
    let of = |socket: SocketFact, peers: &[u32]| {
        diagnose(&seen_twice(12 * S, &[asks(CHILD, &socket, peers)], &[], &[])).findings.swap_remove(0)
    };
    let pending = || SocketFact { pending: true, ..SocketFact::default() };
    for peers in [&[777][..], &[1, 777]] {
        let found = of(pending(), peers);
        assert_eq!((found.rule.id, culprit(&found), found.confidence), ("N3", Some(777), Confidence::High));
        assert!(
            found
                .headline
                .starts_with("x 777, the agent of the network plugin, does not accept its connection"),
            "{}",
            found.headline
        );
        assert!(found.evidence.iter().any(|seen| seen.text.contains("has not accepted")), "{found:#?}");
    }
    for (socket, peers) in [
        (pending(), &[1][..]),
        (pending(), &[777, 778]),
        (SocketFact::default(), &[1, 777]),
        (SocketFact::default(), &[1]),
    ] {
        assert_eq!(of(socket, peers).rule.id, "N1", "{peers:?}");
    }
    let stopped = of(SocketFact { peer_state: Some('T'), ..pending() }, &[777]);
    assert!(
        stopped.headline.contains("x 777, the agent of the network plugin, is stopped (state T)"),
        "{}",
        stopped.headline
    );
    assert!(stopped.next[0].contains("kill -CONT 777"), "{:?}", stopped.next);
    let silent = of(SocketFact { peer_state: Some('S'), ..SocketFact::default() }, &[777]);
    assert!(silent.headline.contains("network plugin, does not answer: "), "{}", silent.headline);
    assert!(silent.next.iter().all(|advice| !advice.contains("CONT")), "{:?}", silent.next);
}

/// The node's own processes are no agents, nor what they run; one of a container is, also when it is frozen.
#[test]
fn n3_blames_nothing_of_the_node_itself() {
    let named = |agent: ProcessFact| {
        let plugin = asks(CHILD, &SocketFact::default(), &[777]);
        let diagnosis = diagnose(&seen_twice(12 * S, &[plugin, agent], &[], &[]));
        diagnosis.findings.iter().find(|found| found.behind.is_some()).map(|found| found.rule.id)
    };
    for component in [Component::Kubelet, Component::Shim, Component::BusDaemon, Component::Helper] {
        assert_eq!(named(process(component, 777, CONTAINERD, 11 * S)), None, "{component:?}");
    }
    let freezer = Freezer { path: "/kubepods/c1".into(), version: 2, state: "FROZEN".into(), own: true };
    let frozen = ProcessFact { freezer: Some(freezer), ..process(Component::Helper, 777, CONTAINERD, 0) };
    assert_eq!(named(frozen), Some("N3"));
}

/// All plugins that wait for one agent are one finding.
#[test]
fn n3_names_an_agent_once() {
    let plugins = [CHILD, CHILD + 1].map(|pid| asks(pid, &SocketFact::default(), &[777]));
    let finding = only(&seen_twice(12 * S, &plugins, &[], &[]), "N3");
    for pid in [CHILD, CHILD + 1] {
        let is_victim = |victim: &String| victim.contains(&format!("(pid {pid})"));
        assert!(finding.victims.iter().any(is_victim), "{:?}", finding.victims);
    }
    let two =
        [(CHILD, 777), (CHILD + 1, 778)].map(|(pid, agent)| asks(pid, &SocketFact::default(), &[agent]));
    assert_eq!(ids(&diagnose(&seen_twice(12 * S, &two, &[], &[]))), ["N3", "N3"]);
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

/// Once the holder hangs, the lock is what to look at, also while those behind it have not waited for long.
#[test]
fn n2_is_said_before_the_waiters_are_late() {
    let lock = SyscallFact { lock_holder: Some(holder(CHILD)), ..syscall("flock", None) };
    let waiter = |pid: u32| {
        let young = process(Component::Helper, pid, CONTAINERD, 9 * S);
        ProcessFact { started_ns: young.started_ns, ..cni(pid, park(lock.clone())) }
    };
    let hangs = cni(CHILD, park(syscall("nanosleep", None)));
    let diagnosis = diagnose(&seen_twice(12 * S, &[hangs.clone(), waiter(CHILD + 1)], &[], &[]));
    assert_eq!((ids(&diagnosis), culprit(&diagnosis.findings[0])), (vec!["N2"], Some(CHILD)));
    let more = diagnose(&seen_twice(12 * S, &[hangs, waiter(CHILD + 1), waiter(CHILD + 2)], &[], &[]));
    let headline = &more.findings[0].headline;
    assert!(headline.contains("and 1 more wait for a file lock that"), "{headline}");
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
    // Another one than theirs: a shim that starts commands is not stopped.
    only(&storm(&[stopped(process(Component::Shim, SHIM + 1, 1, 0))], None), "S10");
    // A pull, or a stop within its grace period, stays and is no culprit; a call that is late is one.
    only(&storm(&[], Some("PullImage")), "O2");
    only(&storm(&[], Some("StopContainer")), "O2");
    none(&storm(&[], Some("CreateContainer")));
}

/// A cgroup without room for another process is noticed once, whoever is in it; with room again, or before anybody was refused,
/// less or nothing is said.
#[test]
fn o4_names_the_cgroup_that_is_full() {
    let full = |refused| {
        let path = "/sys/fs/cgroup/pids/system.slice/containerd.service".to_owned();
        Some(TaskLimit { path, tasks: 512, limit: 512, refused })
    };
    let found = |limit: Option<TaskLimit>| {
        let shim = ProcessFact { task_limit: limit.clone(), ..process(Component::Shim, SHIM, 1, S) };
        let daemon = ProcessFact { task_limit: limit, ..process(Component::Containerd, CONTAINERD, 1, S) };
        let mut story = Story::node();
        story.census(2 * S, &[shim, daemon], &[], &[]).relist(3 * S, 0);
        diagnose(&story.snapshot(4 * S)).findings
    };
    let findings = found(full(3));
    assert_eq!(named(&findings), ["O4"]);
    let finding = &findings[0];
    assert_eq!((culprit(finding), finding.confidence), (Some(CONTAINERD), Confidence::High));
    assert_eq!((finding.severity, finding.victims.len()), (Severity::Notice, 1));
    assert!(finding.headline.contains("has 512 of 512 processes and threads"), "{}", finding.headline);
    assert!(finding.evidence[1].text.contains("3 times"), "{:?}", finding.evidence);
    let young = &found(full(0))[0];
    assert!(young.confidence < Confidence::High && young.evidence.len() == 1, "{young:?}");
    assert!(found(None).is_empty());
}
