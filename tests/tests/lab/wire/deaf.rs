//! A client of the runtime that asks and stops reading: it waits by its own fault, as a `crictl` that was stopped with Ctrl-Z. The node is
//! healthy, and the report says what this client waits for.

use plegtrace_lab::cri::Extra;
use plegtrace_lab::{Knobs, Node, image};
use plegtrace_tests::program::{Ended, Running};
use serde_json::Value;

use super::rough::{Rough, request};
use super::{LIMIT, host, process};

/// Lists that it asks for at once, and of what size: the first one fills the window of its connection (65,535 bytes), and the others
/// wait for that.
const LISTS: u32 = 20;
const BALLAST: usize = 300_000;
/// How long plegtrace looks: longer than a request may wait before that is a stall.
const SECONDS: &str = "16";

fn observe(node: &Node) -> Running {
    let (kubelet, runtime) = (node.kubelet().pid().to_string(), node.containerd().pid().to_string());
    let about = ["--kubelet-pid", &kubelet, "--runtime-pid", &runtime];
    Running::start(&[&["-o", "json", "-d", SECONDS, "--sources", "all"], about.as_slice()].concat()).unwrap()
}

/// Requests of this process that are open, each with what it has not read.
fn open(report: &Value) -> u32 {
    let ours = Value::from(std::process::id());
    let clients = report["other_clients"].as_array().into_iter().flatten();
    let of = |client: &&Value| client["pids"].as_array().is_some_and(|pids| pids.contains(&ours));
    let open = clients.filter(of).flat_map(|client| client["open"].as_array().unwrap());
    open.map(|open| assert!(open["unread"].as_u64() > Some(0), "{open:#}")).count().try_into().unwrap()
}

/// Whoever was there before, and whoever comes later, has nothing against the node, and knows who waits.
#[test]
fn a_client_that_stops_reading_is_no_stall() {
    host::require_root().unwrap();
    let node = Node::start(&Knobs { pods: 2, ..Knobs::default() }).unwrap();
    let (containerd, pod) = (node.containerd(), node.pod("p1").unwrap());
    let heavy = Extra {
        name: "heavy".to_owned(),
        image: image::REFERENCE.to_owned(),
        command: vec!["/pause".to_owned()],
        ballast: BALLAST,
        log_directory: containerd.scratch().path().to_owned(),
        ..Extra::default()
    };
    containerd.client().create_extra(&pod.sandbox, &heavy, LIMIT).unwrap();
    let mut early = observe(&node);
    early.wait_until_armed(LIMIT).unwrap();
    let mut deaf = Rough::connect(containerd, usize::MAX);
    let package = format!("runtime.{}", containerd.client().api());
    for nth in 0..LISTS {
        deaf.write(&request(2 * nth + 1, &package, "ListContainers"));
    }
    process::wait_for("answers that nobody reads", LIMIT, || Ok((deaf.unread() > 0).then_some(()))).unwrap();
    let early = early.finish(LIMIT * 2).unwrap();
    let late = observe(&node).finish(LIMIT * 2).unwrap();
    drop(deaf);
    let [early, late] = [early, late].map(|ended| healthy(&ended));
    assert_eq!(open(&early), LISTS, "{:#}", early["other_clients"]);
    assert_eq!(open(&late), 0, "nobody has seen these begin: {:#}", late["other_clients"]);
}

fn healthy(ended: &Ended) -> Value {
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(ended.status.code(), Some(0), "{:#}\n{:#}", report["diagnosis"], report["refused"]);
    report
}
