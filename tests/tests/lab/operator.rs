//! An operator at work on a healthy node: whatever they type, nobody is accused, neither the node nor they.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use plegtrace_lab::cri::Call;
use plegtrace_lab::process::{self, wait_for};
use plegtrace_lab::{Knobs, Node, host};
use plegtrace_tests::program::Running;
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);
/// How long commands last that are typed: far longer than any of the node's.
const LASTS: &str = "20";

/// A shell in which somebody typed a command; it lasts as long as that.
struct Shell(Child);

impl Shell {
    /// `runc exec` in a container, in the foreground of a shell.
    fn runc_exec(node: &Node, container: &str) -> Shell {
        let mut shell = Command::new("bash");
        // A shell that has something left to do does not become the command.
        shell.args(["-c", "\"$@\"; exit 0", "bash"]).arg(node.containerd().runc_program());
        shell.arg("--root").arg(runc_root(node)).args(["exec", container, "sleep", LASTS]);
        shell.stdin(Stdio::null()).stdout(Stdio::null());
        Shell(shell.spawn().unwrap())
    }

    /// The command that runs in it.
    fn command(&self) -> u32 {
        let is_ours = |pid: &u32| process::parent(*pid) == Some(self.0.id()) && process::name(*pid) == "runc";
        let child = || process::all().into_iter().find(is_ours);
        wait_for("runc in the shell", LIMIT, || Ok(child())).unwrap()
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _it_ends_by_itself = self.0.wait();
    }
}

/// A tool that somebody left running; killed at the end, as by Ctrl-C.
struct Tool(Child);

impl Tool {
    fn start(command: &mut Command) -> Tool {
        Tool(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// A debugger that holds a process; a tracer that lets it run.
    fn debug(pid: u32, of: u32) -> [Tool; 2] {
        host::ensure(&["gdb", "strace"]).unwrap();
        let (pid, of) = (pid.to_string(), of.to_string());
        let mut gdb = Command::new("gdb");
        gdb.args(["-nx", "-batch", "-p", &pid, "-ex", &format!("shell sleep {LASTS}")]);
        [Tool::start(&mut gdb), Tool::start(Command::new("strace").args(["-f", "-q", "-p", &of]))]
    }

    /// Its own client of containerd: a command with its output streamed, and the events.
    fn ctr(node: &Node, container: &str) -> [Tool; 2] {
        let ctr = |words: &[&str]| Tool::start(node.containerd().ctr().unwrap().args(words));
        [ctr(&["tasks", "exec", "--exec-id", "operator", container, "sleep", LASTS]), ctr(&["events"])]
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        let _ = process::signal(self.0.id(), libc::SIGINT);
        if process::wait(&mut self.0, Duration::from_secs(5)).is_err() {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

/// The first process of a container.
fn init_of(container: &str) -> u32 {
    let inside = || process::in_cgroup(container).into_iter().find(|pid| process::name(*pid) == "pause");
    wait_for("the container's process", LIMIT, || Ok(inside())).unwrap()
}

fn runc_root(node: &Node) -> std::path::PathBuf {
    node.containerd().scratch().path().join("runc/k8s.io")
}

/// Commands that end at once.
fn look_around(node: &Node, container: &str) {
    for words in [&["list"][..], &["state", container], &["ps", container]] {
        let mut runc = Command::new(node.containerd().runc_program());
        host::run(runc.arg("--root").arg(runc_root(node)).args(words)).unwrap();
    }
    let client = node.containerd().client();
    client.status(LIMIT).unwrap();
    client.list_containers(LIMIT).unwrap();
    client.list_pod_sandbox(LIMIT).unwrap();
    client.list_images(LIMIT).unwrap();
    client.container_status(container, LIMIT).unwrap();
    client.list_container_stats(LIMIT).unwrap();
}

/// `crictl exec -s CONTAINER sleep …`, by the call that it makes.
fn exec(node: &Node, container: &str) -> Call {
    let container = container.to_owned();
    Call::start(node.containerd().client(), "ExecSync", move |client| {
        client.exec_sync(&container, &["sleep", "8"], LIMIT).map(drop)
    })
    .unwrap()
}

/// Long commands that began before plegtrace and beside it, in shells, by containerd's own client and over the CRI, and tools
/// that trace or stop a process of a pod: the node is healthy, and runc is told as typed by a person.
#[test]
fn nobody_is_accused_of_what_an_operator_types() {
    host::require_root().unwrap();
    let node = Node::start(&Knobs { pods: 3, ..Knobs::default() }).unwrap();
    let (pod, other) = (node.pod("p1").unwrap(), node.pod("p2").unwrap());
    let debugged = node.pod("p3").unwrap();
    let _tools = Tool::debug(init_of(&debugged.container), init_of(&debugged.sandbox));
    let before = Shell::runc_exec(&node, &pod.container);
    let mut calls: Vec<Call> = (0..4).map(|_| exec(&node, &pod.container)).collect();
    let first = before.command();
    let (kubelet, runtime) = (node.kubelet().pid().to_string(), node.containerd().pid().to_string());
    let about = ["-o", "json", "-d", "16", "--kubelet-pid", &kubelet, "--runtime-pid", &runtime];
    let mut watching = Running::start(&about).unwrap();
    watching.wait_until_armed(LIMIT).unwrap();
    let beside = Shell::runc_exec(&node, &other.container);
    let second = beside.command();
    let _clients = Tool::ctr(&node, &other.container);
    calls.extend((0..4).map(|_| exec(&node, &other.container)));
    look_around(&node, &pod.container);
    for call in &mut calls {
        call.wait(LIMIT).unwrap().unwrap();
    }
    let ended = watching.finish(LIMIT).unwrap();
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    let diagnosis = &report["diagnosis"];
    assert_eq!(ended.status.code(), Some(0), "{diagnosis:#}");
    let findings = diagnosis["findings"].as_array().unwrap();
    assert!(findings.iter().all(|finding| finding["severity"] != "stall"), "{findings:#?}");
    assert_eq!((&report["stuck"], &diagnosis["reasons"]), (&Value::Array(vec![]), &Value::Array(vec![])));
    let typed = report["census"]["by_hand"].as_array().unwrap();
    for pid in [first, second] {
        let one = typed.iter().find(|one| one["pid"] == pid).unwrap_or_else(|| panic!("{pid}: {typed:#?}"));
        assert_eq!((&one["typed_in"], &one["command"]["sub"]), (&"bash".into(), &"exec".into()), "{one:#}");
    }
}
