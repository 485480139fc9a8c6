//! 2,000 calls a second, and a kubelet that is replaced meanwhile by one on a disk that answers after three seconds: nothing is lost.

use std::thread;
use std::time::Duration;

use plegtrace_lab::slow_file::SlowFile;
use plegtrace_lab::{Knobs, Node, host, process};
use plegtrace_tests::bench::rpc::{Clients, Load};
use plegtrace_tests::program::Running;
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(120);
const PODS: usize = 10;
const LOAD: Load = Load { clients: 64, rate: 2000 };
/// From when the new kubelet serves: its program is read meanwhile, on processors that have much to do.
const LOADED: Duration = Duration::from_secs(60);
/// The load is there before the kubelet goes.
const BEFORE: Duration = Duration::from_secs(15);
const DELAY: Duration = Duration::from_secs(3);
/// Relists of the new kubelet that must have been seen when the minute is over.
const RELISTS: u64 = 10;

fn nothing_is_lost(attach: &str) {
    host::require_root().unwrap();
    let node = Node::start(&Knobs { pods: PODS, ..Knobs::default() }).unwrap();
    let clients = Clients::start(&node, LOAD).unwrap();
    let socket = node.containerd().socket();
    let about =
        ["-o", "json", "-d", "600", "--attach", attach, "--runtime-endpoint", socket.to_str().unwrap()];
    let mut running = Running::start(&about).unwrap();
    running.wait_until_armed(LIMIT).unwrap();
    let before = clients.calls();
    thread::sleep(BEFORE);
    let kubelet = node.kubelet();
    let slow =
        SlowFile::mount(kubelet.program(), &node.containerd().scratch().path().join("slow"), DELAY).unwrap();
    kubelet.daemon().kill().unwrap();
    kubelet.daemon().restart_from(slow.path()).unwrap();
    process::wait_for("the new kubelet", LIMIT, || Ok(kubelet.healthz(LIMIT).ok())).unwrap();
    thread::sleep(LOADED);
    let calls = clients.calls() - before;
    running.signal(libc::SIGINT).unwrap();
    let ended = running.finish(LIMIT).unwrap();
    clients.stop().unwrap();

    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert!(slow.late() > 0, "nobody has read from the slow disk");
    let losses = report["losses"].as_array().unwrap();
    assert!(losses.iter().all(|loss| loss["is_loss"] == false), "{losses:#?}");
    let count = |side: &str, pid: u32| -> u64 {
        let rows = report["operations"].as_array().unwrap().iter();
        let own = rows.filter(|row| row["side"] == side && row["pid"] == pid);
        own.filter_map(|row| row["count"].as_u64()).sum()
    };
    let (served, relists) = (count("server", node.containerd().pid()), count("relist", kubelet.pid()));
    eprintln!(
        "{attach}: {calls} calls, {served} served, {relists} relists of the new kubelet, {} waited",
        slow.late()
    );
    assert!(served >= calls, "{served} of {calls} calls were seen");
    assert!(relists >= RELISTS, "{relists} relists of the new kubelet: {:#}", report["refused"]);
}

#[test]
#[ignore = "takes two minutes: cargo xtask soak"]
fn nothing_is_lost_by_uprobe_multi() {
    nothing_is_lost("multi");
}

#[test]
#[ignore = "takes two minutes: cargo xtask soak"]
fn nothing_is_lost_by_perf_events() {
    nothing_is_lost("cookie");
}
