//! The faults prove themselves, as root, each by the state of the kernel that makes it one, by what hangs and what does
//! not, and by the end of all of it after the healing. `cargo test -p plegtrace-lab --test itself faults`

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use plegtrace_lab::fault::{self, Fault, Kind};
use plegtrace_lab::{Knobs, Node, host, http, packages, process, scratch};

/// For one call on a healthy but busy machine.
const CALL: Duration = Duration::from_secs(30);
/// For what is to hang.
const SHORT: Duration = Duration::from_secs(1);

/// Where a node was and what it had, to look for it after its end.
struct Place {
    dir: PathBuf,
    id: String,
    containers: Vec<String>,
}

impl Place {
    fn new(node: &Node) -> Place {
        let scratch = node.containerd().scratch();
        let dir = scratch.path().to_owned();
        Place { containers: scratch::container_ids(&dir), dir, id: scratch.id().to_owned() }
    }

    fn assert_nothing_left(&self) {
        assert!(!self.containers.is_empty());
        assert_eq!(scratch::leftovers(&self.dir, &self.id), Vec::<String>::new());
        assert_eq!(scratch::container_leftovers(&self.containers), Vec::<String>::new());
    }
}

fn assert_lists_answer(node: &Node) {
    let client = node.containerd().client();
    client.list_pod_sandbox(CALL).unwrap();
    client.list_containers(CALL).unwrap();
}

fn waits_in(pid: u32, syscall: i64) -> bool {
    process::blocked_threads(pid).iter().any(|thread| thread.syscall == syscall)
}

/// Injects, lets `check` look at it, heals; then nobody who waited or was waited for is left waiting.
fn proven(node: &Node, kind: Kind, hanging: &[&str], check: impl FnOnce(&mut Fault)) {
    let mut fault = kind.inject(node, "p1").unwrap_or_else(|error| panic!("{kind:?}: {error:#}"));
    assert_eq!(fault.hanging(), hanging, "{kind:?}");
    check(&mut fault);
    assert_eq!(fault.hanging(), hanging, "{kind:?} hangs to the end");
    let facts = fault.facts().clone();
    fault.heal().unwrap_or_else(|error| panic!("{kind:?}: {error:#}"));
    assert_lists_answer(node);
    for pid in facts.victims.iter().chain(&facts.culprits) {
        assert_ne!(process::state(*pid), Some('T'), "{kind:?}: {pid} is stopped");
    }
    assert_eq!(
        node.containerd()
            .client()
            .exec_sync(&node.pod("p1").unwrap().container, &["true"], CALL)
            .unwrap()
            .exit_code,
        0
    );
    let extra = |name: &str| !["p1", "p2"].iter().any(|own| name.starts_with(own));
    let pods = node.containerd().client().list_pod_sandbox(CALL).unwrap();
    assert!(!pods.iter().any(|pod| extra(pod.pod_name())), "{kind:?} left a pod: {pods:?}");
    assert_eq!(
        node.containerd().client().list_containers(CALL).unwrap().len(),
        2,
        "{kind:?} left a container"
    );
}

#[test]
fn shims_and_containers_hang_and_heal() {
    let node = Node::start(&Knobs { pods: 2, ..Knobs::default() }).unwrap();
    let client = node.containerd().client();
    let other = node.pod("p2").unwrap();
    proven(&node, Kind::ShimStopped, &["ExecSync"], |fault| {
        assert_eq!(process::state(fault.facts().culprits[0]), Some('T'));
        assert_lists_answer(&node);
        client.exec_sync(&other.container, &["true"], CALL).unwrap();
        let own = &fault.facts().ids[1];
        assert!(client.exec_sync(own, &["true"], SHORT).unwrap_err().is_deadline());
    });
    proven(&node, Kind::ShimFrozen, &["ExecSync"], |fault| {
        let state = std::fs::read_to_string(fault.facts().path.as_ref().unwrap()).unwrap();
        assert!(["FROZEN", "1"].contains(&state.trim()), "{state}");
        assert!(fault.facts().path.as_ref().unwrap().to_str().unwrap().contains("frozen-shim"));
        assert_lists_answer(&node);
        assert!(client.exec_sync(&fault.facts().ids[1], &["true"], SHORT).unwrap_err().is_deadline());
    });
    proven(&node, Kind::ContainerFrozen, &["StopContainer"], |fault| {
        let facts = fault.facts();
        let path = facts.path.as_ref().unwrap();
        assert!(path.to_str().unwrap().contains(&facts.ids[1]), "{path:?} is the container's cgroup");
        assert!(["FROZEN", "1"].contains(&std::fs::read_to_string(path).unwrap().trim()));
        assert!(!facts.victims.is_empty());
        assert_lists_answer(&node);
    });
    proven(&node, Kind::ExecPipe, &["ExecSync"], |fault| {
        let facts = fault.facts();
        assert!(facts.path.as_ref().unwrap().to_str().unwrap().starts_with("pipe:"), "{facts:?}");
        assert!(
            waits_in(facts.culprits[0], libc::SYS_nanosleep)
                || waits_in(facts.culprits[0], libc::SYS_clock_nanosleep)
        );
        // The shell ends: of the container only the sleeper and its first process are left. Who left the sleeper behind
        // can still be waiting for the shim to reap it, and so can a command of the fault before.
        process::wait_for("a container of two processes", CALL, || {
            let inside = process::in_cgroup(&facts.ids[1]);
            Ok((inside.len() == 2 && inside.contains(&facts.culprits[0])).then_some(()))
        })
        .unwrap();
        assert_lists_answer(&node);
        client.exec_sync(&facts.ids[1], &["true"], CALL).unwrap();
    });
    proven(&node, Kind::LockHostage, &["UpdateContainerResources"], |fault| {
        assert_eq!(process::state(fault.facts().culprits[0]), Some('T'));
        assert!(client.list_containers(SHORT).unwrap_err().is_deadline());
        client.list_pod_sandbox(CALL).unwrap();
    });
    // A panic heals as well.
    let shim = node.containerd().shim_of(&other.sandbox).unwrap();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _fault = fault::stop_shim(&node, &other).unwrap();
        assert_eq!(process::state(shim), Some('T'));
        std::panic::resume_unwind(Box::new("as a failing test does"));
    }));
    assert!(panicked.is_err() && process::state(shim) != Some('T'));
    client.exec_sync(&other.container, &["true"], CALL).unwrap();
    let place = Place::new(&node);
    drop(node);
    place.assert_nothing_left();
}

#[test]
fn daemons_stop_and_die_and_come_back() {
    let node = Node::start(&Knobs { pods: 2, ..Knobs::default() }).unwrap();
    let (client, kubelet) = (node.containerd().client(), node.kubelet());
    let is_silent = || http::get(kubelet.healthz_address(), "/healthz", SHORT).is_err();
    proven(&node, Kind::ContainerdStopped, &["ListPodSandbox"], |fault| {
        assert_eq!(fault.facts().culprits, [node.containerd().pid()]);
        assert_eq!(process::state(fault.facts().culprits[0]), Some('T'));
        assert!(client.list_containers(SHORT).unwrap_err().is_deadline());
    });
    proven(&node, Kind::KubeletStopped, &[], |fault| {
        assert_eq!(process::state(fault.facts().culprits[0]), Some('T'));
        assert!(is_silent());
        assert_lists_answer(&node);
    });
    proven(&node, Kind::KubeletKilled, &[], |fault| {
        assert_eq!(process::identity(fault.facts().culprits[0]), None, "dead and reaped");
        assert!(is_silent());
        assert_lists_answer(&node);
    });
    node.wait_for_relists(2, CALL).unwrap();
    let before = node.containerd().pid();
    let shims = node.containerd().shims();
    proven(&node, Kind::ContainerdKilled, &[], |fault| {
        assert_eq!(process::identity(fault.facts().culprits[0]), None, "dead and reaped");
        assert_eq!(node.containerd().shims(), shims, "shims live on");
        assert!(!client.version(SHORT).unwrap_err().is_deadline(), "refused, not unanswered");
    });
    assert_ne!(node.containerd().pid(), before);
    node.wait_for_relists(2, CALL).unwrap();
    let place = Place::new(&node);
    drop(node);
    place.assert_nothing_left();
}

#[test]
fn hooks_and_plugins_hang_and_heal() {
    let node = Node::start(&Knobs { pods: 2, ..Kind::Hook.knobs() }).unwrap();
    for (kind, verb, call) in
        [(Kind::Hook, "create", "StartContainer"), (Kind::Poststop, "delete", "StopContainer")]
    {
        proven(&node, kind, &[call], |fault| {
            let facts = fault.facts();
            assert!(waits_in(facts.culprits[0], libc::SYS_clock_nanosleep));
            assert_eq!(process::parent(facts.culprits[0]), Some(facts.victims[0]));
            let runc = process::arguments(facts.victims[0]);
            assert!(runc.iter().any(|word| word == verb) && runc.last() == Some(&facts.ids[1]), "{runc:?}");
            assert_lists_answer(&node);
        });
    }
    proven(&node, Kind::Cni, &["RunPodSandbox"], |fault| {
        let plugin = fault.facts().culprits[0];
        assert_eq!(process::parent(plugin), Some(node.containerd().pid()));
        assert!(waits_in(plugin, libc::SYS_clock_nanosleep));
        assert_lists_answer(&node);
    });
    proven(&node, Kind::CniFlock, &["RunPodSandbox", "RunPodSandbox"], |fault| {
        let facts = fault.facts();
        let locks = std::fs::read_to_string("/proc/locks").unwrap();
        let holds = |word: &str, pid: u32| {
            locks.lines().any(|line| {
                line.contains(word) && line.split_whitespace().any(|field| field == pid.to_string())
            })
        };
        assert!(holds("-> FLOCK", facts.victims[0]), "{locks}");
        assert!(holds(": FLOCK", facts.culprits[0]) && !holds("-> FLOCK", facts.culprits[0]), "{locks}");
        assert!(waits_in(facts.victims[0], libc::SYS_flock));
        assert_lists_answer(&node);
    });
    for (kind, state) in [(Kind::CniAgent, 'S'), (Kind::CniAgentStopped, 'T')] {
        proven(&node, kind, &["RunPodSandbox"], |fault| {
            let (plugin, agent) = (fault.facts().victims[0], fault.facts().culprits[0]);
            assert_eq!(process::parent(plugin), Some(node.containerd().pid()));
            assert!(waits_in(plugin, libc::SYS_recvfrom));
            assert_eq!((process::name(agent).as_str(), process::state(agent)), ("lab-agent", Some(state)));
            assert_lists_answer(&node);
        });
    }
    let mut slow = fault::slow_cni(&node, 3).unwrap();
    assert_eq!(slow.hanging(), ["RunPodSandbox"]);
    process::wait_for("the end of the decoy", CALL, || Ok(slow.hanging().is_empty().then_some(()))).unwrap();
    slow.heal().unwrap();
    let place = Place::new(&node);
    drop(node);
    place.assert_nothing_left();
}

#[test]
fn an_orphaned_init_waits_at_its_fifo() {
    let node = Node::start(&Knobs { pods: 2, ..Knobs::default() }).unwrap();
    proven(&node, Kind::OrphanedInit, &[], |fault| {
        let init = fault.facts().victims[0];
        assert!(waits_in(init, libc::SYS_openat));
        assert_eq!(process::arguments(init), ["runc", "init"]);
        assert_ne!(process::name(process::parent(init).unwrap()), "runc");
        use std::os::unix::fs::FileTypeExt as _;
        let fifo = std::fs::metadata(fault.facts().path.as_ref().unwrap()).unwrap();
        assert!(fifo.file_type().is_fifo());
    });
    let fault = fault::orphaned_init(&node).unwrap();
    let place = Place::new(&node);
    drop(node);
    // The janitor has found it by its cgroup.
    place.assert_nothing_left();
    drop(fault);
}

/// The pipe of U1: a thread writes to a pipe whose two ends only its own process has.
fn assert_own_pipe(fault: &Fault) {
    let facts = fault.facts();
    let init = facts.victims[0];
    assert_eq!(process::arguments(init), ["runc", "init"]);
    let writer = process::blocked_threads(init).into_iter().find(|thread| thread.syscall == libc::SYS_write);
    let writer = writer.expect("a thread of runc init writes");
    assert!(writer.wchan.ends_with("pipe_write") || writer.wchan == "0", "{writer:?}");
    let pipe = facts.path.as_ref().unwrap().to_str().unwrap();
    assert_eq!(process::descriptor(init, writer.argument).as_deref(), Some(pipe));
    let holders: Vec<u32> = process::all()
        .into_iter()
        .filter(|&pid| process::descriptors(pid).iter().any(|to| to == pipe))
        .collect();
    assert_eq!(holders, [init]);
    let parent = process::arguments(facts.victims[1]);
    assert!(parent.iter().any(|word| word == "create"), "{parent:?}");
}

#[test]
fn the_genuine_rc93_hangs_on_its_own_pipe() {
    let node = match Node::start(&Knobs { pods: 2, ..Kind::Rc93.knobs() }) {
        Err(error) if packages::Error::is_gone(&error) => {
            return host::declare_skip("runc 1.0.0-rc93", &error);
        }
        started => started.unwrap(),
    };
    proven(&node, Kind::Rc93, &["StartContainer"], |fault| {
        assert_own_pipe(fault);
        let shim = process::parent(fault.facts().victims[1]).unwrap();
        assert_eq!(shim, node.containerd().shim_of(&fault.facts().ids[0]).unwrap());
        assert_lists_answer(&node);
    });
    proven(&node, Kind::Rc93Standalone, &[], |fault| assert_own_pipe(fault));
    let place = Place::new(&node);
    drop(node);
    place.assert_nothing_left();
}

/// Faults that nobody heals: the node's end must not wait for them, and leave nothing of them.
#[test]
fn a_node_full_of_faults_leaves_nothing() {
    let node = Node::start(&Knobs { pods: 4, ..Kind::Hook.knobs() }).unwrap();
    let kinds = [
        (Kind::CniFlock, "p1"),
        (Kind::Hook, "p1"),
        (Kind::ExecPipe, "p2"),
        (Kind::ContainerFrozen, "p2"),
        (Kind::CniAgentStopped, ""),
        (Kind::OrphanedInit, ""),
        (Kind::ShimFrozen, "p3"),
        (Kind::ShimStopped, "p4"),
        (Kind::KubeletStopped, ""),
        (Kind::ContainerdStopped, ""),
    ];
    let faults: Vec<Fault> = kinds.iter().map(|(kind, pod)| kind.inject(&node, pod).unwrap()).collect();
    let pids: Vec<u32> = faults.iter().flat_map(|fault| fault.facts().culprits.clone()).collect();
    let place = Place::new(&node);
    let seen = scratch::leftovers(&place.dir, &place.id);
    for (what, count) in
        [(" pause", 8), (" lab-gate", 4), (" lab-agent", 1), (" sleep", 1), (" kubelet", 1), ("cgroup ", 4)]
    {
        let found = seen.iter().filter(|line| line.contains(what)).count();
        assert!(found >= count, "the search sees {found} of {count}{what}: {seen:?}");
    }
    drop(node);
    place.assert_nothing_left();
    // The agent is a child of this process, which asks how it ended when its fault is dropped.
    let lives = |pid: &&u32| process::state(**pid).is_some_and(|state| state != 'Z');
    let alive: Vec<&u32> = pids.iter().filter(lives).collect();
    assert!(alive.is_empty(), "culprits live on: {alive:?}");
    drop(faults);
    assert!(pids.iter().all(|&pid| process::state(pid).is_none()), "and nobody is left to be asked");
}

/// Who was started while a daemon was confined stays in its cgroup, and must not keep it there: the shim of a pod is one.
#[test]
fn a_shim_that_a_throttled_runtime_started_does_not_keep_its_cgroup() {
    let node = Node::start(&Knobs { pods: 2, ..Knobs::default() }).unwrap();
    let fault = fault::throttled(&node, node.containerd().pid(), 0.9).unwrap();
    let group = fault.facts().path.clone().unwrap();
    node.kubelet().add_pod("later").unwrap();
    let later = process::wait_for("a pod", CALL, || Ok(node.pod("later").ok())).unwrap();
    let shim = node.containerd().shim_of(&later.sandbox).unwrap();
    let inside = std::fs::read_to_string(group.join("cgroup.procs")).unwrap();
    assert!(inside.lines().any(|line| line == shim.to_string()), "{shim} is not in {inside:?}");
    fault.heal().unwrap();
    assert!(!group.exists());
    assert!(process::identity(shim).is_some(), "the shim lives on");
    let place = Place::new(&node);
    drop(node);
    place.assert_nothing_left();
}

#[test]
fn the_command_line_shows_a_fault_and_heals_it() {
    use std::io::{BufRead as _, BufReader};
    host::require_root().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_plegtrace-lab"));
    command.args(["fault", "shim-stopped", "--pods", "1"]).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap) {
        let is_ready = line.starts_with("ready");
        lines.push(line);
        if is_ready {
            break;
        }
    }
    let text = lines.join("\n");
    assert!(text.contains("cause       S10") && text.contains("hanging     ExecSync"), "{text}");
    let culprit = text.split("culprit     pid ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert_eq!(process::state(culprit), Some('T'));
    process::signal(child.id(), libc::SIGINT).unwrap();
    assert!(process::wait(&mut child, Duration::from_secs(60)).unwrap().success());
    assert_eq!(process::identity(culprit), None);
}
