//! The whole census over a tree of files as Linux 3.10 (RHEL 7) has them: stacks with addresses and an end mark, no
//! `NSpid`, no `exec_update_lock`, cgroups of version 1 only, sockets from /proc/net/unix.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::Duration,
};

use plegtrace::{
    census::{self, Request},
    input::{CensusFact, Command, Component, Fact, FdTarget, Holder, Liveness, ProcessFact},
};
use plegtrace_tests::program;

const ID: &str = "51f2e49b8310aa51f2e49b8310aa51f2e49b8310aa51f2e49b8310aa51f2e49b";
const SANDBOX: &str = "aa00e49b8310aa51f2e49b8310aa51f2e49b8310aa51f2e49b8310aa51f2e49b";
const BUNDLES: &str = "run/containerd/io.containerd.runtime.v1.linux/k8s.io";

/// A tree below a directory.
struct Tree(tempfile::TempDir);

impl Tree {
    fn path(&self, path: &str) -> PathBuf {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }

    fn write(&self, path: &str, text: &str) {
        fs::write(self.path(path), text).unwrap();
    }

    fn link(&self, path: &str, to: &str) {
        symlink(to, self.path(path)).unwrap();
    }

    /// A process with one thread.
    fn process(&self, pid: u32, parent: u32, comm: &str, state: char, words: &str) {
        // 44 fields, as 3.10 has; the start is field 22.
        let rest = "1 1 0 -1 4202752 1 0 0 0 0 0 0 0 20 0 1 0 81234 1 1 18446744073709551615 1 1 1 1 1 0 0 0 0 1 0 0";
        let stat = format!("{pid} ({comm}) {state} {parent} 1 {rest}\n");
        self.write(&format!("proc/{pid}/stat"), &stat);
        self.write(&format!("proc/{pid}/task/{pid}/stat"), &stat);
        self.write(&format!("proc/{pid}/cmdline"), &(words.replace(' ', "\0") + "\0"));
        self.write(&format!("proc/{pid}/environ"), "SECRET=x\0");
        self.write(&format!("proc/{pid}/cgroup"), "9:freezer:/system.slice\n1:name=systemd:/system.slice\n");
        fs::create_dir_all(self.path(&format!("proc/{pid}/fd/x")).parent().unwrap()).unwrap();
        self.thread(pid, "202 0x1 0x80 0x0 0x0 0x0 0x0 0x7ffc 0x45f3a1", "futex_wait_queue_me");
    }

    /// In which call it waits, and the kernel functions.
    fn thread(&self, pid: u32, call: &str, functions: &str) {
        let task = format!("proc/{pid}/task/{pid}");
        self.write(&format!("{task}/syscall"), &format!("{call}\n"));
        let mut stack: String =
            functions.split(' ').map(|name| format!("[<ffffffff8119b1fb>] {name}+0x6b/0xa0\n")).collect();
        stack.push_str("[<ffffffffffffffff>] 0xffffffffffffffff\n");
        self.write(&format!("{task}/stack"), &stack);
        self.write(&format!("{task}/wchan"), functions.split(' ').next().unwrap());
    }

    fn fd(&self, pid: u32, fd: u32, to: &str, flags: &str) {
        self.link(&format!("proc/{pid}/fd/{fd}"), to);
        self.write(&format!("proc/{pid}/fdinfo/{fd}"), &format!("pos:\t0\nflags:\t{flags}\n"));
    }
}

fn node() -> Tree {
    let tree = Tree(tempfile::tempdir().unwrap());
    tree.process(1, 0, "systemd", 'S', "/usr/lib/systemd/systemd");
    tree.process(100, 1, "kubelet", 'S', "/usr/bin/kubelet --v=2");
    tree.process(200, 1, "containerd", 'S', "/usr/bin/containerd");
    tree.process(300, 200, "containerd-shim", 'S', "containerd-shim -namespace k8s.io -workdir /x");
    tree.process(400, 300, "runc:[2:INIT]", 'S', "runc init");
    tree.process(500, 100, "mount.nfs", 'D', "mount.nfs server:/x /var/lib/kubelet/x");
    tree.process(600, 300, "nginx", 'D', "nginx");
    for (pid, exe) in
        [(100, "/usr/bin/kubelet"), (200, "/usr/bin/containerd"), (300, "/usr/bin/containerd-shim")]
    {
        tree.link(&format!("proc/{pid}/exe"), exe);
    }
    tree.link("proc/400/exe", "/usr/bin/runc (deleted)");
    // The rc93 hang.
    tree.thread(
        400,
        "1 0x9 0xc000010000 0x3000 0x0 0x0 0x0 0x7ffc 0x45f3a1",
        "pipe_wait pipe_write vfs_write",
    );
    tree.fd(400, 8, "pipe:[777]", "0");
    tree.fd(400, 9, "pipe:[777]", "01");
    tree.fd(200, 7, "socket:[888]", "02");
    // Bundles of a containerd that writes pod names only to its sandboxes.
    tree.link("proc/300/cwd", &format!("/{BUNDLES}/{SANDBOX}"));
    let sandbox =
        r#"{"annotations":{"io.kubernetes.cri.sandbox-log-directory":"/var/log/pods/default_p1_4c5f"}}"#;
    tree.write(&format!("{BUNDLES}/{SANDBOX}/config.json"), sandbox);
    let inside = format!(r#"{{"annotations":{{"io.kubernetes.cri.sandbox-id":"{SANDBOX}"}}}}"#);
    tree.write(&format!("{BUNDLES}/{ID}/config.json"), &inside);
    // A frozen container.
    for pid in [400, 600] {
        tree.write(&format!("proc/{pid}/cgroup"), &format!("9:freezer:/kubepods/pod1/{ID}\n"));
    }
    let freezer = format!("sys/fs/cgroup/freezer/kubepods/pod1/{ID}");
    tree.write(&format!("{freezer}/freezer.state"), "FREEZING\n");
    tree.write(&format!("{freezer}/freezer.self_freezing"), "1\n");
    tree.write(
        "proc/self/mountinfo",
        "25 20 0:21 / /sys/fs/cgroup/freezer rw,nosuid shared:9 - cgroup cgroup rw,freezer\n",
    );
    tree.write(
        "proc/net/unix",
        "Num       RefCount Protocol Flags    Type St Inode Path\n\
         ffff8800: 00000002 00000000 00010000 0001 01 888 /run/containerd/containerd.sock\n",
    );
    tree
}

fn census(root: &Path) -> (Vec<ProcessFact>, CensusFact) {
    let request = Request { root: root.to_path_buf(), ..Request::new(program::path().unwrap()) };
    let mut facts = census::round(&request);
    let Some(Fact::Census(round)) = facts.pop() else { panic!("{facts:?}") };
    let process = |fact| match fact {
        Fact::Process(process) => process,
        other => panic!("{other:?}"),
    };
    (facts.into_iter().map(process).collect(), round)
}

/// Everything there is to see.
#[test]
fn linux_3_10() {
    let tree = node();
    let (processes, round) = census(tree.0.path());
    let pids: Vec<(u32, Component)> = processes.iter().map(|one| (one.pid, one.component)).collect();
    let want = [
        (100, Component::Kubelet),
        (200, Component::Containerd),
        (300, Component::Shim),
        (400, Component::Runc),
        (500, Component::Helper),
        (600, Component::Helper),
    ];
    assert_eq!(pids, want);
    assert_eq!((round.unanswered.as_slice(), round.left_out), (&[][..], 0));
    let of = |pid: u32| processes.iter().find(|one| one.pid == pid).unwrap();

    let init = of(400);
    assert_eq!(init.command, Some(Command::Runc { sub: "init".into(), container: None, bundle: None }));
    let [park] = init.parked.as_slice() else { panic!("{init:?}") };
    assert_eq!(park.kernel_stack, ["pipe_wait", "pipe_write", "vfs_write"]);
    if cfg!(target_arch = "x86_64") {
        let call = park.syscall.as_ref().unwrap();
        assert_eq!(call.name.as_deref(), Some("write"));
        let Some(FdTarget::Pipe(pipe)) = call.fd.as_ref().map(|fd| &fd.target) else { panic!("{call:?}") };
        // Both ends: only procfs gives a link the permissions of what was opened.
        let holds = |holders: &[Holder], fd| holders.iter().any(|one| (one.pid, one.fd) == (400, fd));
        assert!(holds(&pipe.readers, 8) && holds(&pipe.writers, 9), "{pipe:?}");
    }
    let container = init.container.as_ref().unwrap();
    assert_eq!((container.id.as_str(), container.source.as_str()), (ID, "bundle"));
    assert_eq!((container.pod.as_deref(), container.namespace.as_deref()), (Some("p1"), Some("default")));

    let freezer = of(600).freezer.as_ref().unwrap();
    assert_eq!((freezer.version, freezer.state.as_str(), freezer.own), (1, "FREEZING", true));
    assert_eq!(of(300).container.as_ref().map(|one| one.id.as_str()), Some(SANDBOX));
    assert_eq!(
        (of(500).state, of(500).command.clone()),
        ('D', Some(Command::Other { program: "mount.nfs".into() }))
    );
    let [socket] = of(200).sockets.as_slice() else { panic!("{:?}", of(200).sockets) };
    assert!(socket.listening && socket.path.as_deref() == Some("/run/containerd/containerd.sock"));
    assert_eq!(round.containers.len(), 2);
}

/// A kernel without stacks, files that are no texts, and a list that cannot be read: said, never a hang or a crash.
#[test]
fn broken_trees() {
    let tree = node();
    for pid in [100, 200, 300, 400, 500] {
        fs::remove_file(tree.path(&format!("proc/{pid}/task/{pid}/stack"))).unwrap();
    }
    fs::write(tree.path("proc/200/task/200/syscall"), [0xff; 4000]).unwrap();
    fs::write(tree.path("proc/300/stat"), "300 (x").unwrap();
    let (processes, round) = census(tree.0.path());
    let refused: Vec<_> = round.unanswered.iter().map(|one| (one.what.as_str(), one.why.as_str())).collect();
    assert_eq!(refused, [("kernel stacks", "this kernel does not tell")]);
    let init = processes.iter().find(|one| one.pid == 400).unwrap();
    assert_eq!(init.parked[0].kernel_stack, ["pipe_wait"], "wchan must do");
    let empty = tempfile::tempdir().unwrap();
    let (processes, round) = census(empty.path());
    assert_eq!((processes.len(), round.unanswered[0].what.as_str()), (0, "list of processes"));
}

/// Whether goroutines are still there is read by a child: the same id and not dead is alive, another id or dead is over,
/// and whoever cannot be read is not known.
#[test]
fn goroutines_of_calls() {
    const GOID: usize = 19;
    let mut g = [0u64; 20];
    g[GOID] = 77;
    g[GOID - 1] = 4; // waiting
    let ask = |goid: u64, g: &[u64; 20]| census::Asked {
        tgid: std::process::id(),
        goid,
        g_addr: g.as_ptr() as u64,
        goid_offset: 8 * GOID as u32,
    };
    let dead = [6u64; 20];
    let [alive, other, dead] = [ask(77, &g), ask(78, &g), ask(6, &dead)];
    let gone = census::Asked { g_addr: 8, ..alive };
    let request = Request::new(program::path().unwrap());
    let answers = census::ask_all(&request, vec![alive, other, dead, gone], Duration::from_secs(60));
    let of = |one| answers.get(one).copied();
    assert_eq!(
        [&alive, &other, &dead, &gone].map(of),
        [Liveness::Alive, Liveness::Over, Liveness::Over, Liveness::Unknown].map(Some)
    );
}
