//! Docker's API below a real kubelet and its dockershim: each request is counted, and R11 is named with the container.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

use plegtrace::clock::monotonic_ns;
use plegtrace::decode::DockerRequest;
use plegtrace_lab::promtext::Page;
use plegtrace_lab::{Generation, Knobs, Network, Node, fault, host, process};
use plegtrace_tests::draw::Draw;
use plegtrace_tests::program::Running;
use plegtrace_tests::watching::Watching;
use serde_json::Value;

use crate::contained::image;

const LIMIT: Duration = Duration::from_secs(120);
const ROUNDS: u64 = 20;
/// Connections of nonsense.
const NONSENSE: usize = 200;
/// How they begin.
const BEGINS: [&str; 5] =
    ["", "GET /", "POST /containers/", "HTTP/1.1 200 OK\r\n", "GET /info HTTP/1.1\r\nHost: "];
/// Observes until a cause is certain.
const UNTIL_FOUND: &[&str] = &["-d", "60", "--until-found"];
/// How long the kubelet is watched.
const WATCHED: Duration = Duration::from_secs(20);
/// Of a request, what counts it: dockershim its client (`pkg/kubelet/dockershim/libdocker/instrumented_client.go`), which the four
/// requests of an exec do not pass, and the kubelet its calls.
const OPERATIONS: [(&str, &[(&str, &str)]); 5] = [
    ("GET /containers/json", &[(DOCKER, "list_containers")]),
    ("GET /containers/{id}/json", &[(DOCKER, "inspect_container"), (RUNTIME, "exec_sync")]),
    ("POST /containers/{id}/exec", &[(RUNTIME, "exec_sync")]),
    ("POST /exec/{id}/start", &[(RUNTIME, "exec_sync")]),
    ("GET /exec/{id}/json", &[(RUNTIME, "exec_sync")]),
];
const DOCKER: &str = "kubelet_docker_operations_total";
const RUNTIME: &str = "kubelet_runtime_operations_total";

fn node(knobs: Knobs) -> Node {
    host::require_root().unwrap();
    let node = Node::start(&Knobs { docker: true, ..knobs }).unwrap();
    node.wait_for_relists(2, LIMIT).unwrap();
    node
}

/// Watches requests of this process to dockerd.
fn watch(client: u32, dockerd: u32) -> Watching {
    let (client, runtime) = (client.to_string(), dockerd.to_string());
    let about = ["--kubelet-pid", &client, "--runtime-pid", &runtime, "--sources", "wire"];
    let watching = Watching::start(&[&["-d", "600"], &about[..]].concat()).unwrap();
    watching.wait_until_armed().unwrap();
    watching
}

fn by_method<'a>(requests: impl Iterator<Item = &'a DockerRequest>) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    requests.for_each(|request| *counts.entry(request.message.method.clone()).or_default() += 1);
    counts
}

/// Each request that this process sends is counted once, by what it is about, with its status.
fn requests_are_exact(generation: Generation) {
    let node = node(Knobs { pods: 1, generation, ..Knobs::default() });
    let (docker, pod) = (node.docker().unwrap(), node.pod("p1").unwrap());
    let watching = watch(std::process::id(), docker.pid());
    let inspect = format!("/containers/{}/json", pod.container);
    let wink = format!("/v1.40/containers/{}/kill?signal=WINCH", pod.container);
    for _ in 0..ROUNDS {
        docker.api().get("/v1.40/containers/json?all=1", LIMIT).unwrap();
        docker.api().get(&inspect, LIMIT).unwrap();
        docker.api().get("/containers/there-is-none/json", LIMIT).unwrap_err();
        docker.api().post(&wink, "text/plain", b"", LIMIT).unwrap();
    }
    process::wait_for("all answers", LIMIT, || {
        Ok((watching.seen().docker.len() as u64 >= 4 * ROUNDS).then_some(()))
    })
    .unwrap();
    let (snapshot, seen) = watching.interrupt().unwrap();
    assert_eq!((seen.undecoded, snapshot.docker.open.len()), (0, 0), "{:?}", snapshot.docker.open);
    assert_eq!(snapshot.real_losses().count(), 0, "{:?}", snapshot.losses);
    let expected = [
        ("GET /containers/json", ROUNDS),
        ("GET /containers/{id}/json", 2 * ROUNDS),
        ("POST /containers/{id}/kill", ROUNDS),
    ];
    let expected: BTreeMap<String, u64> = expected.map(|(method, count)| (method.to_owned(), count)).into();
    assert_eq!(by_method(seen.docker.iter()), expected);
    let of_pod = seen.docker.iter().filter(|request| request.container == pod.container).count() as u64;
    let missing = seen.docker.iter().filter(|request| request.status == 404).count() as u64;
    assert_eq!((of_pod, missing), (2 * ROUNDS, ROUNDS));
    for request in &seen.docker {
        let message = &request.message;
        assert_eq!((message.asker, message.answerer), (std::process::id(), docker.pid()));
    }
}

/// Docker 20.10 of bookworm, on containerd 1.6.
#[test]
fn requests_to_docker_on_containerd_1_6_are_exact() {
    requests_are_exact(Generation::V1_6);
}

/// Docker 20.10 of bullseye, on containerd 1.4.
#[test]
fn requests_to_docker_on_containerd_1_4_are_exact() {
    requests_are_exact(Generation::V1_4);
}

fn operations(page: &Page) -> BTreeMap<&'static str, u64> {
    let count = |(metric, name): &(&str, &str)| page.sum(metric, &[("operation_type", name)]) as u64;
    OPERATIONS.map(|(method, counters)| (method, counters.iter().map(count).sum())).into()
}

/// The requests of a real dockershim, execs of probes included, lie between what dockershim itself has counted inside of the time
/// that was watched and what it has counted around it.
#[test]
fn requests_of_dockershim_are_as_it_counts_them() {
    let node = node(Knobs { pods: 3, exec_probes: true, ..Knobs::default() });
    let kubelet = node.kubelet();
    let metrics = || operations(&kubelet.metrics(LIMIT).unwrap());
    let watching = watch(kubelet.pid(), node.docker().unwrap().pid());
    // It counts a request after it has read the answer, which is well before another relist has ended.
    let counted = || node.wait_for_relists(1, LIMIT).unwrap();
    let outer_from = monotonic_ns();
    counted();
    let (before, inner_from) = (metrics(), monotonic_ns());
    let begun = std::time::Instant::now();
    process::wait_for("some relists and probes", LIMIT, || Ok((begun.elapsed() >= WATCHED).then_some(())))
        .unwrap();
    let inner_to = monotonic_ns();
    counted();
    let (after, outer_to) = (metrics(), monotonic_ns());
    let (snapshot, seen) = watching.interrupt().unwrap();
    assert_eq!(snapshot.real_losses().count(), 0, "{:?}", snapshot.losses);
    let inside = |request: &&DockerRequest| {
        request.message.id.start.0 >= inner_from && request.message.end.0 <= inner_to
    };
    let around = |request: &&DockerRequest| {
        request.message.end.0 >= outer_from && request.message.id.start.0 <= outer_to
    };
    let least = by_method(seen.docker.iter().filter(inside));
    let most = by_method(seen.docker.iter().filter(around));
    for (method, _) in OPERATIONS {
        let counted = after[method] - before[method];
        let (least, most) = (least.get(method).copied().unwrap_or(0), most.get(method).copied().unwrap_or(0));
        assert!(counted > 0, "{method}: the kubelet has counted none");
        // cAdvisor is in the kubelet as well, and inspects by a client of its own.
        let is_least = method == "GET /containers/{id}/json" && counted <= most;
        let is_all = (least..=most).contains(&counted);
        assert!(is_least || is_all, "{method}: {counted} counted, {least} to {most} seen");
    }
}

/// A process that asks a dockerd which is not watched is not followed: nobody would see the answers. cAdvisor does so in a kubelet of
/// another runtime.
#[test]
fn requests_to_a_docker_that_is_not_the_runtime_are_left_alone() {
    let node = node(Knobs { pods: 1, ..Knobs::default() });
    let (kubelet, docker) = (node.kubelet(), node.docker().unwrap());
    let asked = || operations(&kubelet.metrics(LIMIT).unwrap())["GET /containers/json"];
    let watching = watch(kubelet.pid(), node.containerd().pid());
    let before = asked();
    process::wait_for("lists of the kubelet", LIMIT, || Ok((asked() >= before + 5).then_some(()))).unwrap();
    docker.api().get("/info", LIMIT).unwrap();
    let (snapshot, seen) = watching.interrupt().unwrap();
    assert_eq!((seen.docker.len(), seen.open_docker.open.len()), (0, 0), "{:?}", snapshot.docker.open);
    assert_eq!(snapshot.real_losses().count(), 0, "{:?}", snapshot.losses);
}

/// The image of the release is one for Docker, too: it loads by the name that the README gives it, and runs.
#[test]
fn the_image_loads_and_runs() {
    let node = node(Knobs { pods: 1, ..Knobs::default() });
    let docker = node.docker().unwrap();
    let client = docker.program().ancestors().nth(2).unwrap().join("bin/docker");
    let ask = |words: &[&str]| {
        let mut command = Command::new(&client);
        command.arg("-H").arg(format!("unix://{}", docker.api().socket().display()));
        host::run(command.args(words)).unwrap()
    };
    let (archive, name) = image();
    let loaded = ask(&["load", "-i", archive.to_str().unwrap()]);
    let short = name.rsplit('/').next().unwrap();
    assert!(loaded.contains(&format!("Loaded image: {short}")), "{loaded}");
    let said = ask(&["run", "--rm", "--network=none", short, "--version"]);
    assert!(said.starts_with("plegtrace "), "{said}");
}

/// Bytes that make no sense, and a client that writes a request byte by byte, change nothing but counters.
#[test]
fn hostile_clients_change_no_count() {
    let node = node(Knobs { pods: 1, ..Knobs::default() });
    let docker = node.docker().unwrap();
    let watching = watch(std::process::id(), docker.pid());
    let mut draw = Draw::from_environment();
    eprintln!("{draw}");
    for nth in 0..NONSENSE {
        let mut rough = UnixStream::connect(docker.api().socket()).unwrap();
        let begin = BEGINS[draw.below(BEGINS.len())];
        let bytes: Vec<u8> = (0..draw.below(600)).map(|_| u8::try_from(draw.below(256)).unwrap()).collect();
        // dockerd may have hung up before the end.
        let _ = rough.write_all(&[begin.as_bytes(), &bytes].concat());
        if nth % 10 == 0 {
            docker.api().get("/info", LIMIT).unwrap();
        }
    }
    let mut slow = UnixStream::connect(docker.api().socket()).unwrap();
    slow.set_read_timeout(Some(LIMIT)).unwrap();
    let edge = Edge::new();
    for byte in b"GET /info HTTP/1.1\r\nHost: a\r\n\r\n" {
        slow.write_all(edge.last(*byte)).unwrap();
    }
    slow.read_exact(&mut [0; 16]).unwrap();
    let asked = NONSENSE.div_ceil(10) as u64;
    process::wait_for("all answers", LIMIT, || {
        let seen = watching.seen();
        let info = seen.docker.iter().filter(|request| request.message.method == "GET /info").count() as u64;
        Ok((info >= asked).then_some(()))
    })
    .unwrap();
    let (snapshot, seen) = watching.interrupt().unwrap();
    let info = by_method(seen.docker.iter().filter(|request| request.status == 200));
    assert_eq!((seen.undecoded, info.get("GET /info")), (0, Some(&asked)), "{info:?}");
    let unreadable = snapshot.losses.iter().find(|loss| loss.reason == "message_unreadable");
    assert!(unreadable.is_none(), "what is behind a write is not read: {unreadable:?}");
    let alone = snapshot.losses.iter().find(|loss| loss.reason == "answer_alone");
    assert!(alone.is_some_and(|loss| loss.count > 0), "the slow one: {:?}", snapshot.losses);
}

/// The end of a page behind which there is one that cannot be read.
struct Edge(*mut u8);

impl Edge {
    const PAGE: usize = 4096;

    fn new() -> Self {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: two new pages of which nobody else knows.
        unsafe {
            let pages = libc::mmap(std::ptr::null_mut(), 2 * Self::PAGE, access, kind, -1, 0);
            assert_ne!(pages, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(pages.byte_add(Self::PAGE), Self::PAGE, libc::PROT_NONE), 0);
            Self(pages.cast())
        }
    }

    /// The last byte before it, which is this one.
    fn last(&self, byte: u8) -> &[u8] {
        // SAFETY: inside of the page, which lives as long as this.
        unsafe {
            let last = self.0.add(Self::PAGE - 1);
            last.write(byte);
            std::slice::from_raw_parts(last, 1)
        }
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        // SAFETY: the pages are ours.
        unsafe { libc::munmap(self.0.cast(), 2 * Self::PAGE) };
    }
}

/// A CNI plugin that does not end: dockershim holds the lock of its pod, and the status of the sandbox waits for it (N1).
#[test]
fn a_plugin_below_the_dockershim_is_named() {
    let network = Network::Bridge;
    let node = node(Knobs { pods: 1, gates: true, network, ..Knobs::default() });
    let mut before = report(&node, UNTIL_FOUND);
    before.wait_until_armed(LIMIT).unwrap();
    let fault = fault::sleeping_cni_of_dockershim(&node).unwrap();
    let (before, after) =
        (before.finish(LIMIT).unwrap(), report(&node, &["-d", "15"]).finish(LIMIT).unwrap());
    for (who, ended) in [("there before", before), ("came later", after)] {
        let report: Value =
            serde_json::from_str(&ended.stdout).unwrap_or_else(|e| panic!("{e}: {}", ended.stderr));
        let finding = &report["diagnosis"]["findings"][0];
        let culprit = finding["culprit"]["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
        assert_eq!(finding["id"], "N1", "{who}: {:#}", report["diagnosis"]);
        assert!(culprit.is_some_and(|pid| fault.facts().culprits.contains(&pid)), "{who}: {finding:#}");
    }
    fault.heal().unwrap();
}

/// The report of one run about this node.
fn report(node: &Node, duration: &[&str]) -> Running {
    let (kubelet, runtime) = (node.kubelet().pid().to_string(), node.docker().unwrap().pid().to_string());
    let about = ["-o", "json", "--kubelet-pid", &kubelet, "--runtime-pid", &runtime];
    Running::start(&[duration, &about].concat()).unwrap()
}

/// One fault, seen by who was there and by who came later: the lock of one container, whose shim is stopped while dockerd sends it a
/// signal.
#[test]
fn the_lock_of_a_container_is_named() {
    let node = node(Knobs { pods: 2, containers: 2, ..Knobs::default() });
    let mut before = report(&node, &["-d", "40"]);
    before.wait_until_armed(LIMIT).unwrap();
    let pod = node.pod("p1").unwrap();
    let inspect = format!("/containers/{}/json", pod.container);
    let inspected = node.docker().unwrap().api().get(&inspect, LIMIT).unwrap();
    let labels = &inspected["Config"]["Labels"];
    assert!(labels["io.kubernetes.pod.name"].is_string(), "{inspected:#}");
    let lock = fault::container_lock(&node, &pod).unwrap();
    lock.stall_relist(&node).unwrap();
    let (before, after) =
        (before.finish(LIMIT).unwrap(), report(&node, &["-d", "15"]).finish(LIMIT).unwrap());
    for (who, ended) in [("there before", before), ("came later", after)] {
        let report: Value =
            serde_json::from_str(&ended.stdout).unwrap_or_else(|e| panic!("{e}: {}", ended.stderr));
        let census = &report["census"];
        let about =
            format!("{who}: {:#}\n{:#}\n{:#}", report["diagnosis"], report["docker"], census["requests"]);
        assert_eq!(ended.status.code(), Some(1), "{about}");
        let finding = &report["diagnosis"]["findings"][0];
        assert_eq!(
            (&finding["id"], &finding["culprit"]["pid"]),
            (&"R11".into(), &lock.shim().into()),
            "{about}"
        );
        assert_eq!((&finding["severity"], &finding["reach"]), (&"stall".into(), &3.into()), "{about}");
        let container = &finding["culprit"]["container"];
        assert_eq!(container["id"], Value::from(lock.pod().container.clone()), "{about}");
        for (key, label) in [("namespace", "pod.namespace"), ("pod", "pod.name"), ("name", "container.name")]
        {
            assert_eq!(container[key], labels[format!("io.kubernetes.{label}")], "{about}");
        }
    }
    lock.release().unwrap();
}
