//! The lab proves itself, as root: real daemons come up, faults do what they say, and nothing is left afterwards.
//! `cargo test -p plegtrace-lab --test itself node`

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use plegtrace_lab::cri::{self, relist};
use plegtrace_lab::kubelet::KubeletBuild;
use plegtrace_lab::{Containerd, Generation, Knobs, Network, Node, fault, host, packages, process, scratch};

/// For one call on a healthy but busy machine.
const CALL: Duration = Duration::from_secs(30);

/// Starts the lab part that `start` names; `None`, said aloud, when its packages have left the archive.
pub(crate) fn unless_gone<T>(what: &str, start: anyhow::Result<T>) -> Option<T> {
    match start {
        Ok(started) => Some(started),
        Err(error) if packages::Error::is_gone(&error) => {
            host::declare_skip(what, &error);
            None
        }
        Err(error) => panic!("{what}: {error:#}"),
    }
}

/// Where the lab was, to look there after its end.
pub(crate) fn place(containerd: &Containerd) -> (PathBuf, String) {
    (containerd.scratch().path().to_owned(), containerd.scratch().id().to_owned())
}

pub(crate) fn assert_nothing_left((dir, id): &(PathBuf, String)) {
    assert_eq!(scratch::leftovers(dir, id), Vec::<String>::new());
}

/// What the lab has outside of its directory and that does not carry its name: sockets of shims, network namespaces.
fn nameless_paths(dir: &Path) -> Vec<PathBuf> {
    let text = |path: PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    let bundles = std::fs::read_dir(dir.join("state/io.containerd.runtime.v2.task/k8s.io")).unwrap();
    let files = bundles.flat_map(|bundle| {
        ["address", "bootstrap.json"].map(|name| bundle.as_ref().unwrap().path().join(name))
    });
    let sockets = files.filter_map(|file| {
        let text = text(file);
        let start = text.find("/run/containerd/s/")?;
        Some(PathBuf::from(text[start..].split('"').next()?.trim()))
    });
    let mut paths: Vec<PathBuf> = sockets.collect();
    let mounts = text("/proc/self/mountinfo".into());
    let points = mounts
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .filter(|point| point.contains("/netns/cni-"));
    paths.extend(points.map(PathBuf::from));
    paths
}

/// Pod by our own client, command inside, the runtime's own count of it, removal, teardown.
fn generation_works(generation: Generation) {
    host::require_root().unwrap();
    let knobs = Knobs { generation, network: Network::Bridge, ..Knobs::default() };
    let Some(containerd) = unless_gone(&format!("containerd {generation}"), Containerd::start(&knobs)) else {
        return;
    };
    let place = place(&containerd);
    let client = containerd.client();
    let version = client.version(CALL).unwrap().runtime_version;
    assert!(version.starts_with(&generation.to_string()), "{version} is not of the generation {generation}");

    let (one, two) = (containerd.run_pod("one").unwrap(), containerd.run_pod("two").unwrap());
    assert!(
        Path::new(&format!("/sys/class/net/ptlab{}", place.1)).exists(),
        "pods are on the private bridge"
    );
    assert_eq!(containerd.shims().len(), 2);
    let shim = containerd.shim_of(&one.sandbox).unwrap();
    assert_eq!(process::name(shim), "containerd-shim");
    let answer =
        client.exec_sync(&one.container, &["sh", "-c", "echo out; echo err >&2; exit 3"], CALL).unwrap();
    assert_eq!(
        (answer.stdout.as_slice(), answer.stderr.as_slice(), answer.exit_code),
        (&b"out\n"[..], &b"err\n"[..], 3)
    );

    let labels = [("grpc_method", "ExecSync"), ("grpc_code", "OK")];
    let counted = containerd.metrics(CALL).unwrap().sum("grpc_server_handled_total", &labels);
    assert_eq!(counted, 1.0, "the runtime counts the calls it has handled");

    let nameless = nameless_paths(&place.0);
    assert!(
        nameless.iter().any(|path| path.starts_with("/run/containerd/s") && path.exists()),
        "{nameless:?}"
    );
    client.remove_pod(&two, CALL).unwrap();
    assert_eq!(client.list_pod_sandbox(CALL).unwrap().len(), 1);
    assert!(client.container_status(&two.container, CALL).is_err(), "a removed container is not found");
    drop(containerd);
    assert_nothing_left(&place);
    // Another lab's namespace may be among them and live on: only 1.4 has its own where others could be.
    let is_own = |path: &&PathBuf| path.starts_with("/run/containerd/s") || path.starts_with(&place.0);
    assert_eq!(nameless.iter().filter(is_own).filter(|path| path.exists()).count(), 0, "{nameless:?}");
}

#[test]
fn containerd_1_4_runs_a_pod_and_leaves_nothing() {
    generation_works(Generation::V1_4);
}

#[test]
fn containerd_1_6_runs_a_pod_and_leaves_nothing() {
    generation_works(Generation::V1_6);
}

#[test]
fn containerd_1_7_runs_a_pod_and_leaves_nothing() {
    generation_works(Generation::V1_7);
}

#[test]
fn containerd_2_1_runs_a_pod_and_leaves_nothing() {
    generation_works(Generation::V2_1);
}

#[test]
fn a_kubelet_with_three_pods_relists() {
    let node = Node::start(&Knobs { pods: 3, exec_probes: true, ..Knobs::default() }).unwrap();
    let place = place(node.containerd());
    node.wait_for_relists(3, CALL).unwrap();
    let page = node.kubelet().metrics(CALL).unwrap();
    let count = page.sum("kubelet_pleg_relist_duration_seconds_count", &[]);
    let mean = page.sum("kubelet_pleg_relist_duration_seconds_sum", &[]) / count;
    assert!(count >= 3.0 && mean > 0.0 && mean < 1.0, "{count} relists of {mean} s");
    process::wait_for("three probed pods", CALL, || {
        let page = node.kubelet().metrics(CALL)?;
        let probes = page.sum("kubelet_runtime_operations_total", &[("operation_type", "exec_sync")]);
        Ok((probes >= 6.0).then_some(()))
    })
    .unwrap();
    node.kubelet().healthz(CALL).unwrap();
    assert_eq!(node.kubelet().running_pods().unwrap().len(), 3);
    drop(node);
    assert_nothing_left(&place);
}

#[test]
fn the_kubelet_drives_containerd_1_4_and_1_7() {
    for generation in [Generation::V1_4, Generation::V1_7] {
        let started = Node::start(&Knobs { generation, ..Knobs::default() });
        let Some(node) = unless_gone(&format!("kubelet on containerd {generation}"), started) else {
            continue;
        };
        node.wait_for_relists(2, CALL).unwrap();
    }
}

#[test]
fn a_kubelet_of_the_stack_abi_relists() {
    let knobs = Knobs { kubelet: KubeletBuild::Go115, ..Knobs::default() };
    let Some(node) = unless_gone("kubelet built with Go 1.15", Node::start(&knobs)) else { return };
    node.wait_for_relists(2, CALL).unwrap();
    let page = node.kubelet().metrics(CALL).unwrap();
    let go = page.find("go_info", &[]).next().unwrap().label("version").unwrap().to_owned();
    assert!(go.starts_with("go1.15"), "built with {go}");
}

/// The one whose relist waits asks by v1alpha2 only; any other asks by v1 there, and relists.
#[test]
fn a_kubelet_that_asks_by_v1_relists_on_containerd_2_1() {
    let knobs = Knobs { generation: Generation::V2_1, ..Knobs::default() };
    let waiting = Node::start(&Knobs { blocking_pleg: true, ..knobs.clone() });
    if waiting.as_ref().is_err_and(packages::Error::is_gone) {
        unless_gone::<()>("containerd 2.1", waiting.map(drop));
        return;
    }
    assert!(waiting.unwrap_err().to_string().contains("v1 of the CRI"));
    let node = Node::start(&knobs).unwrap();
    node.wait_for_relists(2, CALL).unwrap();
}

#[test]
fn a_lock_hostage_blocks_lists_of_containers_only_and_heals() {
    let node = Node::start(&Knobs { pods: 2, ..Knobs::default() }).unwrap();
    let place = place(node.containerd());
    let client = node.containerd().client();
    let pod = node.pod("p1").unwrap();
    let hostage = fault::lock_hostage(node.containerd(), &pod).unwrap();

    assert_eq!(process::state(hostage.shim()), Some('T'));
    let start = Instant::now();
    assert_eq!(client.list_pod_sandbox(CALL).unwrap().len(), 2);
    assert!(start.elapsed() < Duration::from_secs(5), "the other list answers at once");
    assert!(client.list_containers(Duration::from_secs(2)).unwrap_err().is_deadline());
    assert!(node.wait_for_relists(3, Duration::from_secs(5)).is_err(), "the relist hangs behind the lock");

    hostage.release().unwrap();
    assert_eq!(client.list_containers(CALL).unwrap().len(), 2);
    node.wait_for_relists(2, CALL).unwrap();

    // The end of the node must not wait for a stopped shim.
    let hostage = fault::lock_hostage(node.containerd(), &pod).unwrap();
    let start = Instant::now();
    drop(node);
    assert!(start.elapsed() < Duration::from_secs(20), "teardown took {:?}", start.elapsed());
    assert_nothing_left(&place);
    drop(hostage);
}

#[test]
fn churn_changes_the_pods() {
    let node = Node::start(&Knobs::default()).unwrap();
    let churn = node.kubelet().churn(Duration::from_secs(4));
    let names = |pods: Vec<cri::Pod>| pods.into_iter().map(|pod| pod.name).collect::<Vec<_>>();
    let limit = Duration::from_secs(60);
    process::wait_for("the second churning pod", limit, || {
        Ok(names(node.kubelet().running_pods()?).contains(&"churn1".to_owned()).then_some(()))
    })
    .unwrap();
    assert!(churn.stop().unwrap() >= 2);
    process::wait_for("the end of all churning pods", limit, || {
        Ok((names(node.kubelet().running_pods()?) == ["p1"]).then_some(()))
    })
    .unwrap();
}

#[test]
fn our_own_relist_loop_asks_for_the_status_of_changed_pods() {
    let knobs = Knobs { generation: Generation::V2_1, ..Knobs::default() };
    let Some(containerd) = unless_gone("relist loop on containerd 2.1", Containerd::start(&knobs)) else {
        return;
    };
    let client = containerd.client_of(knobs.generation.api()).unwrap();
    let relists = relist::Loop::start(client, Duration::from_millis(100), CALL);
    containerd.run_pod("one").unwrap();
    // A slow start is seen as two changes: created, then running.
    process::wait_for("a relist after those that saw the pod's start", CALL, || {
        let all = relists.relists();
        let changed = all.iter().any(|relist| relist.calls == 4);
        Ok((changed && all.last().is_some_and(|last| last.calls == 2)).then_some(()))
    })
    .unwrap();
    let relists = relists.stop();
    assert!(relists.iter().all(|relist| relist.error.is_none()), "{relists:?}");
    assert_eq!(relists.last().unwrap().calls, 2, "nothing changes any more: two lists");
}

#[test]
fn two_nodes_run_side_by_side_and_a_panic_leaves_nothing() {
    let first = Node::start(&Knobs { network: Network::Bridge, ..Knobs::default() }).unwrap();
    let places = std::sync::Mutex::new(Vec::new());
    let panicked = std::panic::catch_unwind(|| {
        let second = Node::start(&Knobs { network: Network::Bridge, ..Knobs::default() }).unwrap();
        places.lock().unwrap().push(place(second.containerd()));
        std::panic::resume_unwind(Box::new("as a failing test does"));
    });
    assert!(panicked.is_err());
    assert_nothing_left(&places.into_inner().unwrap()[0]);
    first.wait_for_relists(2, CALL).unwrap();
    assert_eq!(first.kubelet().running_pods().unwrap().len(), 1, "the first node lives on");
}

/// Starts `plegtrace-lab up` and waits until it says that it is ready; gives where its lab is.
fn up() -> (Child, (PathBuf, String)) {
    host::require_root().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_plegtrace-lab"));
    command.args(["up", "--pods", "1", "--bridge"]).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut dir = None;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        if let Some(path) = line.strip_prefix("lab ") {
            dir = Some(PathBuf::from(path.trim()));
        }
        if line.starts_with("ready") {
            let dir = dir.expect("the directory is printed before");
            let id = dir.to_str().unwrap().rsplit('-').next().unwrap().to_owned();
            return (child, (dir, id));
        }
    }
    panic!("plegtrace-lab up ended: {:?}", child.wait());
}

fn wait_until_nothing_is_left((dir, id): &(PathBuf, String)) {
    process::wait_for("an empty machine", Duration::from_secs(30), || {
        Ok(scratch::leftovers(dir, id).is_empty().then_some(()))
    })
    .unwrap_or_else(|error| panic!("{error:#}: {:?}", scratch::leftovers(dir, id)));
}

#[test]
fn a_killed_lab_is_removed_by_its_janitor() {
    let (mut child, place) = up();
    assert!(!scratch::leftovers(&place.0, &place.1).is_empty(), "the check sees a running lab");
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until_nothing_is_left(&place);
}

#[test]
fn an_interrupted_lab_is_gone_when_its_process_is() {
    let (mut child, place) = up();
    process::signal(child.id(), libc::SIGINT).unwrap();
    assert!(process::wait(&mut child, Duration::from_secs(60)).unwrap().success());
    assert_nothing_left(&place);
}

#[test]
fn a_lab_whose_janitor_was_killed_too_is_swept() {
    let (mut child, place) = up();
    let is_janitor = |pid: &u32| {
        let words = process::arguments(*pid);
        words.iter().any(|word| word == "plegtrace-lab-janitor") && words.contains(&place.1)
    };
    let janitors: Vec<u32> = process::all().into_iter().filter(is_janitor).collect();
    assert_eq!(janitors.len(), 1);
    process::signal(janitors[0], libc::SIGKILL).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!scratch::leftovers(&place.0, &place.1).is_empty(), "nobody is left to clean up");
    // Another test may start a lab, and so sweep, at this very moment: what counts is that it is gone.
    scratch::sweep().unwrap();
    wait_until_nothing_is_left(&place);
}

/// A kubelet that ends at its start is started again, as its unit would.
#[test]
fn a_kubelet_that_ends_at_its_start_is_started_again() {
    host::require_root().unwrap();
    let own = std::process::id();
    let killer = std::thread::spawn(move || {
        let is_ours = |pid: &u32| process::parent(*pid) == Some(own) && process::name(*pid) == "kubelet";
        process::wait_for("a kubelet that starts", CALL, || {
            let first = process::all().into_iter().find(is_ours);
            if let Some(pid) = first {
                process::signal(pid, libc::SIGKILL)?;
            }
            Ok(first)
        })
    });
    let node = Node::start(&Knobs { pods: 1, ..Knobs::default() }).unwrap();
    let killed = killer.join().unwrap().unwrap();
    assert_ne!(node.kubelet().pid(), killed);
    node.wait_for_relists(1, CALL).unwrap();
}
