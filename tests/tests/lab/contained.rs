//! From where operators run it on nodes that let nothing be installed: the static binary in a privileged container with the
//! node's pid namespace and a root file system that is read-only, and in which there is no library. It says what plegtrace
//! says on the node itself.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use plegtrace_lab::{Knobs, Node, fault::Kind, host, kubelet::TOOLS, process};
use plegtrace_tests::{
    matrix,
    program::{self, Running},
};
use serde_json::Value;

const IMAGE: &str = "docker.io/library/plegtrace:";
const DAEMON: &str = include_str!("../../../tracer/packaging/kustomize/daemonset.yaml");

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

/// The directory of the release: `$PLEGTRACE_DIST`, else where `cargo xtask dist` puts it.
pub(super) fn dist() -> PathBuf {
    env::var_os("PLEGTRACE_DIST").map_or_else(|| program::target_dir().join("dist"), PathBuf::from)
}

/// Its image, and how pods name it.
pub(super) fn image() -> (PathBuf, String) {
    let dir = dist();
    let entries = fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}: `cargo xtask dist`", dir.display()));
    let files = entries.map(|entry| entry.unwrap().path());
    let version = |file: &Path| {
        let name = file.file_name()?.to_str()?.strip_prefix("plegtrace-")?;
        Some(format!("{IMAGE}{}", name.strip_suffix("-x86_64-image.tar")?))
    };
    files
        .into_iter()
        .find_map(|file| version(&file).map(|name| (file, name)))
        .expect("a release has an image")
}

/// The image of the release in a pod with what the DaemonSet has, and no more: what it watches is the node, and it names the cause.
#[test]
fn the_image_watches_the_node() {
    host::require_root().unwrap();
    let privileges = |text: &str| {
        const WORDS: [&str; 6] = ["host", "privileged", "readOnly", "capabilities", "runAs", "seccomp"];
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
        let wanted = lines
            .filter(|line| WORDS.iter().any(|word| line.starts_with(word)) && !line.ends_with("hostPath:"));
        wanted.map(str::to_owned).filter(|line| !line.starts_with("hostPath")).collect::<Vec<_>>()
    };
    let has = ["hostPID: true", "hostNetwork: true", "privileged: true", "readOnlyRootFilesystem: true"];
    assert_eq!(privileges(DAEMON), has, "the lab's pod has others: kubelet/manifest.rs");
    assert!(DAEMON.contains("args: [watch, --quiet]") && DAEMON.contains("mountPath: /var/lib/plegtrace"));

    let (archive, name) = image();
    let node = Node::start(&Knobs { pods: 2, ..Knobs::default() }).unwrap();
    node.containerd().import_as(&archive, &name).unwrap();
    let windows = tempfile::tempdir().unwrap();
    node.kubelet().add_daemon("daemon", &name, &["watch", "--quiet"], windows.path()).unwrap();
    let check = || {
        let mut check = Command::new(program::path().unwrap());
        let said = check.args(["check", "--dir"]).arg(windows.path()).output().unwrap();
        (said.status.code(), String::from_utf8(said.stdout).unwrap())
    };
    process::wait_for("a node that is watched", LIMIT, || Ok((check().0 == Some(0)).then_some(()))).unwrap();
    let pid = process::in_cgroup(&node.pod("daemon").unwrap().container)[0];
    assert_eq!(process::name(pid), "plegtrace");

    let fault = Kind::LockHostage.inject(&node, "p1").unwrap();
    let state = || -> Option<Value> {
        serde_json::from_slice(&fs::read(windows.path().join("state.json")).ok()?).ok()
    };
    let named =
        process::wait_for("a stall in the state", LIMIT, || Ok(state().filter(|state| state["id"] == "R1")));
    fault.heal().unwrap();
    assert_eq!(named.unwrap()["verdict"], "stall");
    process::wait_for("a node that is well", LIMIT, || Ok((check().0 == Some(0)).then_some(()))).unwrap();
    // What a pod may take to end, its grace period and all: it takes its probes off.
    node.kubelet().remove_pod("daemon").unwrap();
    let is_gone = || Ok((!Path::new(&format!("/proc/{pid}")).exists()).then_some(()));
    process::wait_for("the end of the pod", LIMIT, is_gone).unwrap();
    assert_eq!(state().unwrap()["verdict"], "ended", "{:?}", state());
}
