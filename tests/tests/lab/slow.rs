//! A node that answers late is called slow, with the daemon that is held off; one that is merely busy is not.

use std::process::{Child, Command};
use std::time::Duration;

use plegtrace_lab::{Knobs, Node, fault, host};
use plegtrace_tests::program::{Running, end_with_parent};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(90);
/// Ten relists at least, also of a kubelet that waits half a second for each.
const OBSERVED: &str = "15";
/// Of each 100 ms, the least that the kernel grants: a relist takes some 300 ms then.
const QUOTA: Duration = Duration::from_millis(1);

/// The report of a run that ends with this code.
fn report(node: &Node, code: i32) -> Value {
    let (kubelet, runtime) = (node.kubelet().pid().to_string(), node.containerd().pid().to_string());
    let about = ["-d", OBSERVED, "-o", "json", "--kubelet-pid", &kubelet, "--runtime-pid", &runtime];
    let ended = Running::start(&about).unwrap().finish(LIMIT).unwrap();
    let report: Value = serde_json::from_str(&ended.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}\n{}", ended.stdout, ended.stderr));
    let told = format!("{:#}\n{:#}\n{:#}", report["diagnosis"], report["relist_time"], report["cpu"]);
    assert_eq!(ended.status.code(), Some(code), "{told}");
    report
}

/// containerd may use 1 % of a CPU: nothing hangs, and everything is late.
#[test]
fn a_throttled_containerd_is_named() {
    host::require_root().unwrap();
    let node = Node::start(&Knobs { pods: 4, exec_probes: true, ..Knobs::default() }).unwrap();
    node.wait_for_relists(3, LIMIT).unwrap();
    let containerd = node.containerd().pid();
    let throttled = fault::throttled(&node, containerd, QUOTA).unwrap();
    let told = report(&node, 1);
    let diagnosis = &told["diagnosis"];
    assert_eq!(diagnosis["verdict"], "slow", "{diagnosis:#}\n{:#}", told["relist_time"]);
    let first = &diagnosis["findings"][0];
    assert_eq!((&first["id"], &first["severity"]), (&"O1".into(), &"slow".into()), "{diagnosis:#}");
    assert_eq!(first["culprit"]["pid"], containerd, "{first:#}");
    assert_eq!(first["culprit"]["component"], "containerd", "{first:#}");
    assert_eq!(diagnosis["slow"][0]["kind"], "relists", "{diagnosis:#}");
    throttled.heal().unwrap();
    let told = report(&node, 0);
    assert_eq!(told["diagnosis"]["verdict"], "healthy", "{:#}", told["diagnosis"]);
}

/// Programs that use all processors, ended when dropped.
struct Hogs(Vec<Child>);

impl Hogs {
    fn start() -> Self {
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        let hog = |_| {
            let mut command = Command::new("sh");
            end_with_parent(command.args(["-c", "while :; do :; done"]));
            command.spawn().unwrap()
        };
        Self((0..count).map(hog).collect())
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        for hog in &mut self.0 {
            let _ = hog.kill();
            let _ = hog.wait();
        }
    }
}

/// All processors are busy, and the node answers in time all the same.
#[test]
fn a_busy_node_is_not_slow() {
    host::require_root().unwrap();
    let node = Node::start(&Knobs { pods: 4, exec_probes: true, ..Knobs::default() }).unwrap();
    node.wait_for_relists(3, LIMIT).unwrap();
    let hogs = Hogs::start();
    let told = report(&node, 0);
    drop(hogs);
    assert_eq!(told["diagnosis"]["verdict"], "healthy", "{:#}", told["diagnosis"]);
    let parts = told["relist_time"]["parts"].as_array().unwrap();
    let sum: u64 = parts.iter().map(|part| part["sum_ns"].as_u64().unwrap()).sum();
    assert_eq!(told["relist_time"]["wall_ns"], sum, "the parts are the whole");
    eprintln!("{} relists took {} ms", told["relist_time"]["count"], sum / 1_000_000);
}
