//! Nodes on which nothing hangs and no pod starts: FAILING, with what the runtime says of itself; healthy again when that is over.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use plegtrace_lab::gate::{self, Order, Place};
use plegtrace_lab::{Knobs, Node};
use plegtrace_tests::claim;
use serde_json::Value;

use super::healthy;

const CALL: Duration = Duration::from_secs(10);
const LIMIT: Duration = Duration::from_secs(60);

/// The configuration of networks, moved away; put back when dropped.
struct Away(Vec<(PathBuf, PathBuf)>);

impl Away {
    fn take(directory: &Path) -> Away {
        let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        let files = files.filter(|path| path.is_file()).map(|path| (path.with_extension("away"), path));
        let away = Away(files.collect());
        assert!(!away.0.is_empty(), "there was no network in {}", directory.display());
        away.0.iter().for_each(|(away, path)| fs::rename(path, away).unwrap());
        away
    }
}

impl Drop for Away {
    fn drop(&mut self) {
        self.0.iter().for_each(|(away, path)| drop(fs::rename(away, path)));
    }
}

fn has_network(node: &Node) -> bool {
    let status = node.containerd().client().status(CALL).unwrap().status.unwrap_or_default();
    let network = status.conditions.iter().find(|condition| condition.r#type == "NetworkReady");
    network.expect("a condition of the network").status
}

fn wait_for_network(node: &Node, wanted: bool) {
    claim::works("what the runtime says of its network", || Ok((has_network(node) == wanted).then_some(())));
}

/// One look at the runtime is enough.
fn look(node: &Node, code: i32) -> Value {
    healthy::report_after(node, &["-d", "5"], code)
}

/// The commonest NotReady there is: a runtime without a configuration of a network.
pub(super) fn without_network(node: &Node) {
    wait_for_network(node, true);
    assert_eq!(look(node, 0)["diagnosis"]["verdict"], "healthy");
    let away = Away::take(&node.containerd().cni_directory());
    wait_for_network(node, false);
    let report: Value = look(node, 1);
    let (verdict, first) = (&report["diagnosis"]["verdict"], &report["diagnosis"]["failing"][0]);
    assert_eq!(
        (verdict, &first["name"]),
        (&"failing".into(), &"NetworkReady".into()),
        "{}",
        report["diagnosis"]
    );
    assert_eq!(first["pid"], node.containerd().pid(), "{first}");
    assert!(first["sentence"].as_str().unwrap().contains("NetworkPluginNotReady"), "{first}");
    drop(away);
    wait_for_network(node, true);
    assert_eq!(look(node, 0)["diagnosis"]["verdict"], "healthy");
}

/// How often containerd could not make a sandbox, by its own count.
fn failed_sandboxes(node: &Node) -> f64 {
    let page = node.containerd().metrics(CALL).unwrap();
    let handled = page.find("grpc_server_handled_total", &[("grpc_method", "RunPodSandbox")]);
    handled.filter(|sample| sample.label("grpc_code") != Some("OK")).map(|sample| sample.value).sum()
}

/// A network plugin that fails each time: what fails, how often, and why, in the runtime's own words.
pub(super) fn plugin_fails(node: &Node) {
    const POD: &str = "no-address";
    let words = "lab: open subnet.env: no such file";
    let order = Order::Fail(words.to_owned());
    let closed = gate::close(node.containerd().scratch().path(), Place::Cni, gate::ALL, &order).unwrap();
    let before = failed_sandboxes(node);
    let mut observer = healthy::start(node, &["-o", "json", "-d", "600"]);
    observer.wait_until_armed(LIMIT).unwrap();
    node.kubelet().add_pod_with_network(POD).unwrap();
    // The kubelet tries again after ten seconds and more.
    claim::works("two sandboxes that failed", || Ok((failed_sandboxes(node) >= before + 2.0).then_some(())));
    observer.signal(libc::SIGINT).unwrap();
    let ended = observer.finish(LIMIT).unwrap();
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    let diagnosis = &report["diagnosis"];
    assert_eq!((ended.status.code(), &diagnosis["verdict"]), (Some(1), &"failing".into()), "{diagnosis:#}");
    let failing = diagnosis["failing"].as_array().unwrap();
    let failing = failing.iter().find(|failing| failing["operation"] == "RunPodSandbox");
    let failing = failing.unwrap_or_else(|| panic!("{diagnosis:#}"));
    assert!(failing["error"].as_str().is_some_and(|error| error.contains(words)), "{failing}");
    assert!(failing["count"].as_u64().unwrap() >= 2, "{failing}");
    assert!(failing["program"].as_str().unwrap().contains("lab-gate"), "{failing}");
    node.kubelet().remove_pod(POD).unwrap();
    fs::remove_file(closed).unwrap();
}

#[test]
fn a_runtime_without_a_network() {
    without_network(&Node::start(&Knobs::default()).unwrap());
}

#[test]
fn a_plugin_that_fails() {
    plugin_fails(&Node::start(&Knobs { gates: true, ..Knobs::default() }).unwrap());
}
