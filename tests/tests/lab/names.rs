//! Names of programs deceive nobody: a kubelet is one by what it is, whatever its file is called, and a process of a user that is merely
//! called like a component is none.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use plegtrace_lab::{Knobs, Node, host};
use plegtrace_tests::claim;
use plegtrace_tests::program::Running;
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(120);
/// `nobody` on Debian.
const NOBODY: u32 = 65_534;

/// A process of a user, called like a component of the node; ends when dropped.
struct Impostor(Child);

impl Impostor {
    fn start(dir: &Path, name: &str) -> Impostor {
        let program = dir.join(name);
        fs::copy("/bin/sleep", &program).unwrap();
        Impostor(Command::new(program).arg("3600").uid(NOBODY).gid(NOBODY).spawn().unwrap())
    }
}

impl Drop for Impostor {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The kubelet runs from a file of this name again.
fn run_kubelet_from(node: &Node, program: &Path) {
    let daemon = node.kubelet().daemon();
    daemon.kill().unwrap();
    daemon.restart_from(program).unwrap();
}

/// One look as a person takes it: nobody says which processes are meant.
fn look() -> (Option<i32>, Value) {
    let ended = Running::start(&["-o", "json", "-d", "8"]).unwrap().finish(LIMIT).unwrap();
    let report = serde_json::from_str(&ended.stdout);
    (ended.status.code(), report.unwrap_or_else(|error| panic!("{error}: {}{}", ended.stdout, ended.stderr)))
}

/// A kubelet of another file name, and users' programs with the names of components.
pub(super) fn deceive_nobody(node: &Node) {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    let impostors = ["kubelet", "containerd"].map(|name| Impostor::start(dir.path(), name));
    let copy = dir.path().join("kubelet-1.20");
    fs::copy(node.kubelet().program(), &copy).unwrap();
    run_kubelet_from(node, &copy);
    node.wait_for_relists(3, LIMIT).unwrap();
    let healthy = claim::works("a healthy node", || {
        let (code, report) = look();
        let diagnosis = &report["diagnosis"];
        assert!(diagnosis["findings"].as_array().unwrap().is_empty(), "{diagnosis:#}");
        Ok((code == Some(0) && diagnosis["verdict"] == "healthy").then_some(report))
    });
    let pids: Vec<u64> =
        healthy["targets"].as_array().unwrap().iter().filter_map(|target| target["pid"].as_u64()).collect();
    let is_there = |pid: u32| pids.contains(&u64::from(pid));
    assert!(is_there(node.kubelet().pid()) && is_there(node.containerd().pid()), "{:#}", healthy["targets"]);
    assert!(!impostors.iter().any(|impostor| is_there(impostor.0.id())), "{:#}", healthy["targets"]);
    run_kubelet_from(node, node.kubelet().program());
}

#[test]
fn of_programs_deceive_nobody() {
    host::require_root().unwrap();
    deceive_nobody(&Node::start(&Knobs::default()).unwrap());
}
