//! A node that answers late is called slow, with the daemon that is held off, which is also what has grown most in its flame
//! graph; one that is merely busy is not.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use plegtrace::commands;
use plegtrace::render::flame::{Per, Saved, folded};
use plegtrace_lab::fault::Fault;
use plegtrace_lab::{Knobs, Node, fault, host};
use plegtrace_tests::program::{Running, end_with_parent};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(90);
/// Ten relists at least, also of a kubelet that waits half a second for each.
const OBSERVED: &str = "15";
/// Relists take so long at least when containerd is throttled enough: well above what is normal, and far from a stall.
const SLOW: Duration = Duration::from_millis(400);
/// So long another thread has the processor of containerd, and so long it lets it go. A relist that ends while it does is
/// followed by one a second later, which is 70 ms after three such turns: that waits for 220 ms, and so does each after it.
const RUNS: Duration = Duration::from_millis(290);
const RESTS: Duration = Duration::from_millis(20);
/// The first share of a CPU that containerd gets, and what the next one is of the one before.
const SHARE: f64 = 0.015;
const NEXT: f64 = 0.7;
/// Relists of which the mean is taken.
const ASKED: u32 = 3;
const RELISTS: [&str; 2] =
    ["kubelet_pleg_relist_duration_seconds_sum", "kubelet_pleg_relist_duration_seconds_count"];

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

/// What the next relists take, by the kubelet's own word.
fn relist_time(node: &Node) -> Duration {
    let read = || {
        let page = node.kubelet().metrics(LIMIT).unwrap();
        RELISTS.map(|name| page.sum(name, &[]))
    };
    let before = read();
    node.wait_for_relists(ASKED, LIMIT).unwrap();
    let after = read();
    Duration::from_secs_f64((after[0] - before[0]) / (after[1] - before[1]))
}

/// Lets a daemon have so little of a CPU, at most `share`, that each relist takes so long at least, on any machine. The first
/// that are so slow may only have waited for what had piled up.
pub(crate) fn throttle(node: &Node, pid: u32, mut share: f64, slow: Duration) -> Fault {
    let fault = fault::throttled(node, pid, share).unwrap();
    loop {
        let takes = [(); 2].map(|()| relist_time(node));
        eprintln!("with {:.2} % of a CPU a relist takes {takes:.0?}", 100.0 * share);
        if takes.iter().all(|takes| *takes >= slow) || share * NEXT < fault::LEAST_SHARE {
            return fault;
        }
        share *= NEXT;
        fault::throttle(&fault, share).unwrap();
    }
}

/// A thread that has one processor nearly all the time, before all others; containerd may use only that one. Ended when dropped.
struct Hogged {
    containerd: u32,
    stop: Arc<AtomicBool>,
    hog: Option<JoinHandle<()>>,
}

impl Hogged {
    fn start(node: &Node) -> Self {
        let (containerd, stop) = (node.containerd().pid(), Arc::new(AtomicBool::new(false)));
        let cpu = processors() - 1;
        may_use(containerd, &cpu.to_string());
        let stopped = Arc::clone(&stop);
        let run = move || {
            take(cpu);
            while !stopped.load(Ordering::Relaxed) {
                let began = Instant::now();
                while began.elapsed() < RUNS {
                    std::hint::spin_loop();
                }
                std::thread::sleep(RESTS);
            }
        };
        Self { containerd, stop, hog: Some(std::thread::spawn(run)) }
    }
}

impl Drop for Hogged {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.hog.take().map(JoinHandle::join);
        may_use(self.containerd, &format!("0-{}", processors() - 1));
    }
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Lets all threads of a process use these processors.
fn may_use(pid: u32, processors: &str) {
    host::run(Command::new("taskset").args(["-a", "-c", "-p", processors, &pid.to_string()])).unwrap();
}

/// Has this thread run on one processor, before all that are not real-time.
fn take(cpu: usize) {
    // SAFETY: a set of processors is plain bits; the calls read it and a number, of this thread.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &raw const set), 0);
        let first = libc::sched_param { sched_priority: 1 };
        assert_eq!(libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const first), 0);
    }
}

/// The node is slow, and the cause is that containerd lacks a processor, in this way, as JSON and as text. The text.
fn it_is_containerd_that_lacks_a_cpu(node: &Node, recording: &Path, how: &str) -> String {
    let told = report(node, recording, 1);
    let diagnosis = &told["diagnosis"];
    assert_eq!(diagnosis["verdict"], "slow", "{diagnosis:#}\n{:#}", told["relist_time"]);
    let first = &diagnosis["findings"][0];
    assert_eq!((&first["id"], &first["severity"]), (&"O1".into(), &"slow".into()), "{diagnosis:#}");
    assert_eq!(first["culprit"]["pid"], node.containerd().pid(), "{first:#}");
    assert_eq!(first["culprit"]["component"], "containerd", "{first:#}");
    assert_eq!(diagnosis["slow"][0]["kind"], "relists", "{diagnosis:#}");
    let text = text_of(recording);
    assert!(text.contains(&format!("\nSLOW O1  containerd {how} ")), "{text}");
    text
}

/// containerd gets too little processor time, by a quota or because others have it: nothing hangs, and everything is late.
#[test]
fn a_containerd_without_processor_time_is_named() {
    host::require_root().unwrap();
    let node = Node::start(&Knobs { pods: 4, exec_probes: true, ..Knobs::default() }).unwrap();
    node.wait_for_relists(3, LIMIT).unwrap();
    let containerd = node.containerd().pid();
    let throttled = throttle(&node, containerd, SHARE, SLOW);
    let temp = tempfile::tempdir().unwrap();
    let [slow, hogged, healthy] = ["slow", "hogged", "healthy"].map(|name| temp.path().join(name));
    it_is_containerd_that_lacks_a_cpu(&node, &slow, "is throttled");
    throttled.heal().unwrap();
    let hog = Hogged::start(&node);
    let text = it_is_containerd_that_lacks_a_cpu(&node, &hogged, "waits for a CPU");
    drop(hog);
    let ourselves = format!(" {} ran ", std::process::id());
    assert!(text.contains("others run, most of all ") && text.contains(&ourselves), "{text}");
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
