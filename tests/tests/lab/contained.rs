//! From where operators run it on nodes that let nothing be installed: the static binary in a privileged container with the
//! node's pid namespace and a root file system that is read-only, and in which there is no library. It says what plegtrace
//! says on the node itself.

use std::{fs, path::Path, process::Command, time::Duration};

use plegtrace_lab::{Knobs, Node, fault::Kind, host, kubelet::TOOLS, process};
use plegtrace_tests::{
    matrix,
    program::{self, Running},
};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(90);
/// Each of another kind: a unit's daemon, a lock, a freezer, a process, a plugin.
const FAULTS: [Kind; 5] =
    [Kind::LockHostage, Kind::ContainerFrozen, Kind::ShimStopped, Kind::Cni, Kind::KubeletStopped];
/// How long a frozen container has to be observed.
const FROZEN: &[&str] = &["-d", "12"];
const UNTIL_FOUND: &[&str] = &["-d", "60", "--until-found"];

/// A node with a pod to debug it from, and the first process of that pod's container.
fn node(tools: &Path) -> (Node, u32) {
    let node = Node::start(&Knobs { gates: true, pods: 2, ..Knobs::default() }).unwrap();
    node.kubelet().add_debugger("debugger", tools).unwrap();
    let pid = process::wait_for("the debugger's container", LIMIT, || {
        let Ok(pod) = node.pod("debugger") else { return Ok(None) };
        Ok(process::in_cgroup(&pod.container).first().copied())
    });
    (node, pid.unwrap())
}

/// The command line of a run in the container whose first process is `pid`, like `kubectl exec` into it.
fn contained(pid: u32) -> Command {
    let mut command = Command::new("nsenter");
    command.args(["--target", &pid.to_string(), "--mount", "--uts", "--ipc", "--net", "--cgroup", "--root"]);
    command.args(["--wd=/", "--"]).arg(Path::new(TOOLS).join("plegtrace")).env_clear();
    command
}

fn arguments(node: &Node, kind: Kind) -> Vec<String> {
    let (kubelet, runtime) = (node.kubelet().pid().to_string(), node.containerd().pid().to_string());
    let length = if kind == Kind::ContainerFrozen { FROZEN } else { UNTIL_FOUND };
    let about = ["-q", "-o", "json", "--kubelet-pid", &kubelet, "--runtime-pid", &runtime];
    about.iter().chain(length).map(|word| (*word).to_owned()).collect()
}

/// What a report comes to: the exit code, the verdict, and of each cause the id, the process and the container.
#[derive(Debug)]
struct Said {
    code: Option<i32>,
    verdict: Value,
    causes: Vec<[Value; 3]>,
    diagnosis: Value,
}

impl Said {
    fn by(run: Running) -> Said {
        let ended = run.finish(LIMIT).unwrap();
        let mut report: Value = serde_json::from_str(&ended.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}\n{}", ended.stdout, ended.stderr));
        let diagnosis = report["diagnosis"].take();
        let findings = diagnosis["findings"].as_array().unwrap().iter();
        let causes = findings.map(|one| {
            [one["id"].clone(), one["culprit"]["pid"].clone(), one["culprit"]["container"]["id"].clone()]
        });
        let causes = causes.collect();
        Said { code: ended.status.code(), verdict: diagnosis["verdict"].clone(), causes, diagnosis }
    }

    fn summary(&self) -> (Option<i32>, &Value, &[[Value; 3]]) {
        (self.code, &self.verdict, &self.causes)
    }
}

#[test]
fn the_verdict_is_that_of_the_host() {
    host::require_root().unwrap();
    let tools = tempfile::tempdir().unwrap();
    fs::copy(program::path().unwrap(), tools.path().join("plegtrace")).unwrap();
    let (node, debugger) = node(tools.path());
    for kind in FAULTS {
        let fault = kind.inject(&node, "p1").unwrap_or_else(|error| panic!("{kind:?}: {error:#}"));
        let words = arguments(&node, kind);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let inside = Running::spawn(contained(debugger).args(&words)).unwrap();
        let outside = Running::start(&words).unwrap();
        let (inside, outside) = (Said::by(inside), Said::by(outside));
        fault.heal().unwrap_or_else(|error| panic!("{kind:?}: {error:#}"));
        let cause = inside.causes.first();
        matrix::log(&format!("{kind:?}: {} {cause:?}", inside.verdict));
        let both = || format!("{kind:?}: {:#}\n{:#}", inside.diagnosis, outside.diagnosis);
        assert_eq!(inside.summary(), outside.summary(), "{}", both());
        assert_eq!(cause.map(|cause| &cause[0]), kind.root_cause().map(Value::from).as_ref(), "{}", both());
        node.wait_for_relists(3, LIMIT).unwrap();
    }
}
