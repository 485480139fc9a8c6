//! A node that answers late is called slow, with the daemon that is held off, which is also what has grown most in its flame
//! graph; one that is merely busy is not.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use plegtrace::commands;
use plegtrace::render::flame::{Per, Saved, folded};
use plegtrace_lab::{Knobs, Node, fault, host};
use plegtrace_tests::program::{Running, end_with_parent};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(90);
/// Ten relists at least, also of a kubelet that waits half a second for each.
const OBSERVED: &str = "15";
/// The text of a recorded report.
fn text_of(recording: &Path) -> String {
    Running::start(&["report", recording.to_str().unwrap()]).unwrap().finish(LIMIT).unwrap().stdout
}

/// The report of a run that ends with this code, and is recorded.
fn report(node: &Node, recording: &Path, code: i32) -> Value {
    let (kubelet, runtime) = (node.kubelet().pid().to_string(), node.containerd().pid().to_string());
    let about =
        ["record", "-d", OBSERVED, "-o", "json", "--kubelet-pid", &kubelet, "--runtime-pid", &runtime];
    let about = [&about[..], &[recording.to_str().unwrap()]].concat();
    let ended = Running::start(&about).unwrap().finish(LIMIT).unwrap();
    let report: Value = serde_json::from_str(&ended.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}\n{}", ended.stdout, ended.stderr));
    let told = format!("{:#}\n{:#}\n{:#}", report["diagnosis"], report["relist_time"], report["cpu"]);
    assert_eq!(ended.status.code(), Some(code), "{told}");
    report
}

/// By how much each stack of the mean relist has grown, microseconds; most first.
fn grown(before: &Path, now: &Path) -> Vec<(i64, String)> {
    let fold = |file: &Path| commands::replay_and_fold(File::open(file).unwrap()).unwrap().flame.unwrap();
    let mut text = Vec::new();
    folded(&fold(before), Per::Whole, None, &mut text).unwrap();
    let (before, mut text) = (Saved::read(text.as_slice()).unwrap(), Vec::new());
    folded(&fold(now), Per::Relist, Some(&before), &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let growth = |line: &str| {
        let mut parts = line.rsplitn(3, ' ');
        let mut us = || parts.next().unwrap().parse::<i64>().unwrap();
        (us() - us(), parts.next().unwrap().to_owned())
    };
    let mut grown: Vec<_> = text.lines().filter(|line| !line.starts_with("# ")).map(growth).collect();
    grown.sort_by(|a, b| b.cmp(a));
    grown
}

/// The widest frame that has grown is the wait for containerd: of the kubelet for an answer, of a request for its handler, or of
/// a handler for the processor. Nothing of the kubelet's own has grown.
fn it_is_containerd_that_has_grown(grown: &[(i64, String)]) {
    const FOR_CONTAINERD: [&str; 3] = [
        ";[between client and handler]",
        ";[waiting];v1alpha2.(*runtimeServiceClient).List",
        ";containerd List",
    ];
    let waits = |stack: &str| {
        stack.starts_with("relist;kubelet GetPods, list phase;kubelet List")
            && FOR_CONTAINERD.iter().any(|frame| stack.contains(frame))
    };
    assert!(grown[0].0 > 10_000 && waits(&grown[0].1), "{grown:#?}");
    let sum = |all: &mut dyn Iterator<Item = &(i64, String)>| all.map(|(us, _)| us).sum::<i64>();
    let all = sum(&mut grown.iter().filter(|(us, _)| *us > 0));
    let for_containerd = sum(&mut grown.iter().filter(|(us, stack)| *us > 0 && waits(stack)));
    assert!(for_containerd * 100 >= all * 95, "{for_containerd} of {all} us: {grown:#?}");
}

/// The node is slow, and the cause is that containerd is throttled, as JSON and as text.
fn it_is_containerd_that_lacks_a_cpu(node: &Node, recording: &Path) {
    let told = report(node, recording, 1);
    let diagnosis = &told["diagnosis"];
    assert_eq!(diagnosis["verdict"], "slow", "{diagnosis:#}\n{:#}", told["relist_time"]);
    let first = &diagnosis["findings"][0];
    assert_eq!((&first["id"], &first["severity"]), (&"O1".into(), &"slow".into()), "{diagnosis:#}");
    assert_eq!(first["culprit"]["pid"], node.containerd().pid(), "{first:#}");
    assert_eq!(first["culprit"]["component"], "containerd", "{first:#}");
    assert_eq!(diagnosis["slow"][0]["kind"], "relists", "{diagnosis:#}");
    let text = text_of(recording);
    assert!(text.contains("\nSLOW O1  containerd is throttled "), "{text}");
}

/// containerd gets too little processor time: nothing hangs, and everything is late. That others take it is in the matrix.
#[test]
fn a_containerd_without_processor_time_is_named() {
    host::require_root().unwrap();
    let node = Node::start(&Knobs { pods: 4, exec_probes: true, ..Knobs::default() }).unwrap();
    node.wait_for_relists(3, LIMIT).unwrap();
    let throttled = fault::quota(&node).unwrap();
    let temp = tempfile::tempdir().unwrap();
    let [slow, healthy] = ["slow", "healthy"].map(|name| temp.path().join(name));
    it_is_containerd_that_lacks_a_cpu(&node, &slow);
    throttled.heal().unwrap();
    let told = report(&node, &healthy, 0);
    assert_eq!(told["diagnosis"]["verdict"], "healthy", "{:#}", told["diagnosis"]);
    it_is_containerd_that_has_grown(&grown(&healthy, &slow));
}

/// Programs that use all processors, ended when dropped.
pub(crate) struct Hogs(Vec<Child>);

impl Hogs {
    pub(crate) fn start() -> Self {
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
    let temp = tempfile::tempdir().unwrap();
    let told = report(&node, &temp.path().join("busy"), 0);
    drop(hogs);
    assert_eq!(told["diagnosis"]["verdict"], "healthy", "{:#}", told["diagnosis"]);
    let parts = told["relist_time"]["parts"].as_array().unwrap();
    let sum: u64 = parts.iter().map(|part| part["sum_ns"].as_u64().unwrap()).sum();
    assert_eq!(told["relist_time"]["wall_ns"], sum, "the parts are the whole");
    eprintln!("{} relists took {} ms", told["relist_time"]["count"], sum / 1_000_000);
}
