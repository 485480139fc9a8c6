//! What an operator types: commands in a shell, tools that go on until Ctrl-C, calls of `crictl`.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use plegtrace_lab::cri::{Call, Session};
use plegtrace_lab::process::{self, Process, wait_for};
use plegtrace_lab::{Node, host, image};

use super::LIMIT;

/// How long commands last that are typed: far longer than any of the node's.
const LASTS: &str = "20";
/// How long a tool has to end.
const ENDS: Duration = Duration::from_secs(5);

/// A shell in which somebody typed a command; it lasts as long as that.
pub(super) struct Shell(Child);

impl Shell {
    /// `runc exec` in a container, in the foreground of a shell.
    pub(super) fn runc_exec(node: &Node, container: &str) -> Shell {
        let mut shell = Command::new("bash");
        // A shell that has something left to do does not become the command.
        shell.args(["-c", "\"$@\"; exit 0", "bash"]).arg(node.containerd().runc_program());
        shell.arg("--root").arg(runc_root(node)).args(["exec", container, "sleep", LASTS]);
        shell.stdin(Stdio::null()).stdout(Stdio::null());
        Shell(shell.spawn().unwrap())
    }

    /// The command that runs in it.
    pub(super) fn command(&self) -> u32 {
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

/// A tool that somebody left running; ended as by Ctrl-C, or with what it runs in a container, which no Ctrl-C reaches.
pub(super) struct Tool {
    tool: Child,
    runs: Option<Process>,
}

impl Tool {
    fn start(command: &mut Command) -> Tool {
        let tool = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        Tool { tool: tool.unwrap(), runs: None }
    }

    /// A debugger that holds a process; a tracer that lets it run.
    pub(super) fn debug(pid: u32, of: u32) -> [Tool; 2] {
        host::ensure(&["gdb", "strace"]).unwrap();
        let (pid, of) = (pid.to_string(), of.to_string());
        let mut gdb = Command::new("gdb");
        gdb.args(["-nx", "-batch", "-p", &pid, "-ex", &format!("shell sleep {LASTS}")]);
        [Tool::start(&mut gdb), Tool::start(Command::new("strace").args(["-f", "-q", "-p", &of]))]
    }

    /// Its own client of containerd: a command with its output streamed, the events, and a container of its own; and somebody
    /// who follows a log.
    pub(super) fn ctr(node: &Node, container: &str, number: usize) -> [Tool; 4] {
        let ctr = |words: &[&str]| Tool::start(node.containerd().ctr().unwrap().args(words));
        let scratch = node.containerd().scratch();
        let (id, root) = (format!("operator{number}"), scratch.path().join("runc").display().to_string());
        let cgroup = format!("/{}/{id}", scratch.network());
        let snapshotter = node.containerd().snapshotter();
        let run = ["run", "--rm", "--net-host", "--snapshotter", snapshotter, "--runc-root", &root];
        let run = [&run[..], &["--cgroup", &cgroup, image::REFERENCE, &id, "sleep", LASTS]].concat();
        let exec = ["tasks", "exec", "--exec-id", &id, container, "sleep", LASTS];
        let log = scratch.path().join("containerd.log");
        let mut run = ctr(&run);
        let inside = || process::in_cgroup(&id).into_iter().find(|pid| process::name(*pid) == "sleep");
        let command = wait_for("the command of ctr run", LIMIT, || Ok(inside())).unwrap();
        run.runs = Process::running(command);
        [ctr(&exec), ctr(&["events"]), run, Tool::start(Command::new("tail").arg("-f").arg(log))]
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        let _ = match &self.runs {
            Some(command) => command.kill(ENDS),
            None => process::signal(self.tool.id(), libc::SIGINT),
        };
        if process::wait(&mut self.tool, ENDS).is_err() {
            let _ = self.tool.kill();
            let _ = self.tool.wait();
        }
    }
}

/// The first process of a container.
pub(super) fn init_of(container: &str) -> u32 {
    let inside = || process::in_cgroup(container).into_iter().find(|pid| process::name(*pid) == "pause");
    wait_for("the container's process", LIMIT, || Ok(inside())).unwrap()
}

fn runc_root(node: &Node) -> std::path::PathBuf {
    node.containerd().scratch().path().join("runc/k8s.io")
}

/// Commands that end at once.
pub(super) fn look_around(node: &Node, container: &str) {
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
pub(super) fn exec(node: &Node, container: &str) -> Call {
    let container = container.to_owned();
    Call::start(node.containerd().client(), "ExecSync", move |client| {
        client.exec_sync(&container, &["sleep", "8"], LIMIT).map(drop)
    })
    .unwrap()
}

/// `crictl exec`, `attach` and `port-forward`, as long as they are kept.
pub(super) fn sessions(node: &Node, container: &str, sandbox: &str) -> [Session; 3] {
    let client = node.containerd().client();
    let port = node.kubelet().healthz_address().port();
    [
        client.exec(container, &["sleep", LASTS], LIMIT).unwrap(),
        client.attach(container, LIMIT).unwrap(),
        client.port_forward(sandbox, port, LIMIT).unwrap(),
    ]
}
