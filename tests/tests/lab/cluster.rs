//! What the README types in a cluster, word for word: a real API server, controllers and scheduler, kubectl of today, and the release's own
//! files. The DaemonSet watches the node and names what holds it up, and the plugin of kubectl reports from a debug pod.

use std::{
    env, fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};

use plegtrace_lab::{Knobs, Node, fault::Kind, host, process};
use tempfile::TempDir;

use crate::contained::{dist, image};

/// A rollout, a debug pod, or the end of a pod, on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);
const README: &str = include_str!("../../../README.md");
/// Where the DaemonSet keeps its windows, on the node: the only path of the machine that this uses.
const WINDOWS: &str = "/var/lib/plegtrace";
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tracer/packaging/kubectl-plegtrace");

/// The directory of the DaemonSet's windows, which is gone when this is dropped.
struct Windows;

impl Windows {
    fn new() -> Windows {
        fs::create_dir(WINDOWS)
            .unwrap_or_else(|error| panic!("{WINDOWS}: {error}: this machine has a plegtrace"));
        Windows
    }
}

impl Drop for Windows {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(WINDOWS);
    }
}

/// An operator's machine: a directory with the release, kubectl and its plugin in the `PATH`.
struct Operator {
    dir: TempDir,
    path: String,
    kubeconfig: PathBuf,
}

impl Operator {
    fn of(node: &Node) -> Operator {
        let (dir, plane) = (tempfile::tempdir().unwrap(), node.control_plane().unwrap());
        let bin = dir.path().join("bin");
        fs::create_dir(&bin).unwrap();
        symlink(plane.kubectl().unwrap().get_program(), bin.join("kubectl")).unwrap();
        symlink(SCRIPT, bin.join("kubectl-plegtrace")).unwrap();
        for file in fs::read_dir(dist()).unwrap() {
            let file = file.unwrap();
            symlink(file.path(), dir.path().join(file.file_name())).unwrap();
        }
        let path = format!("{}:{}", bin.display(), env::var("PATH").unwrap());
        Operator { dir, path, kubeconfig: plane.kubeconfig().to_owned() }
    }

    /// Types a line; a word of it in capitals stands for something.
    fn types(&self, line: &str, words: &[(&str, &str)]) -> Output {
        let line = words.iter().fold(line.to_owned(), |line, (word, it)| line.replace(word, it));
        let mut shell = Command::new("sh");
        shell.args(["-c", &line]).current_dir(&self.dir).env("PATH", &self.path);
        shell.env("KUBECONFIG", &self.kubeconfig).output().unwrap()
    }
}

/// A command of the README, without its comment.
pub(super) fn readme(begin: &str) -> &'static str {
    let mut lines = README.lines().filter_map(|line| line.strip_prefix("    "));
    let line =
        lines.find(|line| line.starts_with(begin)).unwrap_or_else(|| panic!("no {begin} in the README"));
    line.split(" # ").next().unwrap().trim()
}

fn said(output: &Output) -> String {
    let [out, err] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    format!("{:?}: {out}{err}", output.status.code())
}

/// The only pod of the DaemonSet, once it runs.
fn pod(node: &Node) -> String {
    const RUNNING: &str = "jsonpath={.items[?(@.status.phase==\"Running\")].metadata.name}";
    let plane = node.control_plane().unwrap();
    let words = ["-n", "kube-system", "get", "pods", "-l", "app.kubernetes.io/name=plegtrace", "-o", RUNNING];
    process::wait_for("the pod of the DaemonSet", LIMIT, || {
        Ok(plane.ask(&words).ok().filter(|name| !name.is_empty()))
    })
    .unwrap()
}

#[test]
fn the_readme_works_in_a_cluster() {
    host::require_root().unwrap();
    let _windows = Windows::new();
    let node = Node::start(&Knobs { pods: 2, control_plane: true, ..Knobs::default() }).unwrap();
    let (archive, name) = image();
    node.containerd().import_as(&archive, &name).unwrap();
    let (operator, node_name) = (Operator::of(&node), node.name());

    let applied = operator.types(readme("tar -xzf plegtrace-0.1.0-kustomize"), &[]);
    assert!(applied.status.success(), "{}", said(&applied));
    let pod = pod(&node);
    let says = |line: &str, what: &str, words: &str| {
        let mut last = String::new();
        let answer = process::wait_for(what, LIMIT, || {
            let answer = operator.types(line, &[("POD", &pod)]);
            last = said(&answer);
            Ok((answer.status.success() && last.contains(words)).then_some(()))
        });
        answer.unwrap_or_else(|error| panic!("{error:#}: {last}"));
    };
    let exec = readme("kubectl exec ");
    says(exec, "a node that is well", "ok: ");
    let fault = Kind::LockHostage.inject(&node, "p1").unwrap();
    // For an exec the kubelet would list.
    says(readme("kubectl logs "), "a node that is held up", "R1");
    fault.heal().unwrap();
    says(exec, "a node that is well again", "ok: ");

    let report =
        operator.types(readme("kubectl plegtrace NODE --image=plegtrace:0.1.0"), &[("NODE", &node_name)]);
    assert!(report.status.success() && said(&report).contains("HEALTHY"), "{}", said(&report));
    let picture = readme("kubectl plegtrace NODE --image=plegtrace:0.1.0 -o svg").split(';').next().unwrap();
    let drawn = operator.types(picture, &[("NODE", &node_name)]);
    let file = operator.dir.path().join(format!("plegtrace-{node_name}.svg"));
    assert!(drawn.status.success() && fs::read_to_string(file).unwrap().contains("<svg"), "{}", said(&drawn));

    let deleted = operator.types("kubectl delete -k kustomize", &[]);
    assert!(deleted.status.success(), "{}", said(&deleted));
    process::wait_for("a node without a plegtrace", LIMIT, || {
        let others = process::all().into_iter().filter(|pid| process::name(*pid) == "plegtrace");
        Ok((others.count() == 0).then_some(()))
    })
    .unwrap();
    assert!(Path::new(WINDOWS).join("state.json").exists(), "the windows are on the node");
}
