//! Which processes of this machine are kubelet, runtime, shims and runc, and which traces they left when none runs.
//!
//! A kubelet that is not running is a finding, not an absence: its traces (`traces`) are looked for too. The root
//! directory is an argument, so that tests use a tree of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use plegtrace_common::role::Role;

use super::cmdline;
use super::node::{Listeners, Node};
use super::process::{Process, may_be_component, read_args};
use super::traces::Traces;

/// More processes than any node has.
const MAX_PROCESSES: usize = 200_000;

/// What the user said instead of what we would find.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// This process is the kubelet.
    pub kubelet: Option<u32>,
    /// This process is the runtime.
    pub runtime: Option<u32>,
    /// The kubelet's CRI endpoint is this socket.
    pub runtime_endpoint: Option<PathBuf>,
    /// What processes are that were looked at before, whatever they are called.
    pub recognised: Vec<Recognised>,
    /// Sockets of whose holders nothing is known, although they were looked for not long ago.
    pub fruitless: BTreeSet<u64>,
}

/// What a process is by what is in its executable, not by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recognised {
    /// The process.
    pub pid: u32,
    /// Its start, CLOCK_BOOTTIME: a number is used again.
    pub started_ns: u64,
    /// What it is; `None`: neither kubelet nor runtime.
    pub role: Option<Role>,
}

/// Why the search failed.
#[derive(Debug, thiserror::Error)]
pub enum DiscoverError {
    /// No process list at all.
    #[error("cannot list the processes in {path}")]
    Proc {
        /// The directory.
        path: String,
        /// What happened.
        #[source]
        source: std::io::Error,
    },
    /// The process that the user named does not exist, or is a zombie.
    #[error("the {role} given on the command line, process {pid}, does not exist or has ended")]
    NoSuchProcess {
        /// Which flag.
        role: &'static str,
        /// Its value.
        pid: u32,
    },
}

/// Searches the processes below `root/proc` and the traces below `root`. Waits for every process whose command line it
/// reads; [`discover_with`] leaves that to the caller.
///
/// # Errors
/// When there is no process list, or a process given by the user does not exist.
pub fn discover(root: &Path, overrides: &Overrides) -> Result<Node, DiscoverError> {
    let read = |pid: &u32| (*pid, read_args(&root.join("proc").join(pid.to_string())));
    discover_with(root, overrides, &mut |pids| pids.iter().map(read).collect())
}

/// Arguments by pid.
pub type CommandLines = BTreeMap<u32, Vec<String>>;

/// Like [`discover`]; `command_lines` is asked once for those of all processes that may be components. Whoever is not
/// in its answer has none.
///
/// # Errors
/// When there is no process list, or a process given by the user does not exist.
pub fn discover_with(
    root: &Path,
    overrides: &Overrides,
    command_lines: &mut dyn FnMut(&[u32]) -> CommandLines,
) -> Result<Node, DiscoverError> {
    let proc = root.join("proc");
    let mut pids = list_pids(&proc)?;
    pids.sort_unstable();
    let all = pids.clone();
    let forced = |pid: u32| forced_role(overrides, pid).or_else(|| recognised(overrides, pid)?.role);
    pids.retain(|pid| may_be_component(&proc, *pid, forced(*pid).is_some()));
    let lines = command_lines(&pids);
    let arguments = |pid: u32| lines.get(&pid).cloned().unwrap_or_default();
    let read = |pid: u32, forced| Process::read(&proc, pid, forced, &arguments);
    let mut processes: Vec<Process> =
        pids.iter().filter_map(|pid| known(read(*pid, forced(*pid))?, overrides, &read)).collect();
    for (role, wanted) in [("kubelet", overrides.kubelet), ("runtime", overrides.runtime)] {
        if let Some(pid) = wanted.filter(|pid| !processes.iter().any(|process| process.pid == *pid)) {
            return Err(DiscoverError::NoSuchProcess { role, pid });
        }
    }
    // A runtime given by the user keeps the role that its name says, if it is a runtime's.
    for process in processes.iter_mut().filter(|process| overrides.runtime == Some(process.pid)) {
        if let Some(named) = read(process.pid, None).filter(|named| named.role.is_runtime()) {
            *process = named;
        }
    }
    let owner_of_network = overrides.kubelet.or_else(|| first_kubelet(&processes)).unwrap_or(1);
    let Traces { evidence, leftovers } = Traces::below(root);
    let mut node = Node {
        processes,
        presence: evidence,
        leftovers,
        listeners: Listeners::read(&proc, owner_of_network),
        runtime_endpoint: overrides
            .runtime_endpoint
            .as_ref()
            .and_then(|path| cmdline::socket(path.to_str()?)),
        forced_kubelet: overrides.kubelet,
        forced_runtime: overrides.runtime,
        recognised: overrides.recognised.clone(),
        ..Node::default()
    };
    if node.is_ambiguous() {
        node.find_holders(&proc);
    }
    node.search(&proc, &all, overrides, &read);
    Ok(node)
}

/// What is known of this process, or of one that had its number.
fn recognised(overrides: &Overrides, pid: u32) -> Option<Recognised> {
    overrides.recognised.iter().find(|known| known.pid == pid).copied()
}

/// The process with what is known of it: whoever is neither kubelet nor runtime is not meant, and who has its number now is
/// somebody else.
fn known(
    process: Process,
    overrides: &Overrides,
    read: &dyn Fn(u32, Option<Role>) -> Option<Process>,
) -> Option<Process> {
    let pid = process.pid;
    match recognised(overrides, pid).filter(|_| forced_role(overrides, pid).is_none()) {
        Some(known) if known.started_ns != process.started_ns => read(pid, None),
        Some(Recognised { role: None, .. }) => None,
        Some(_) | None => Some(process),
    }
}

/// Whose network is looked at for sockets: those of a kubelet in a container are its own.
fn first_kubelet(processes: &[Process]) -> Option<u32> {
    let mut kubelets = processes.iter().filter(|process| process.role == Role::Kubelet);
    kubelets.find(|process| !process.is_nested() && !process.is_foreign()).map(|process| process.pid)
}

fn forced_role(overrides: &Overrides, pid: u32) -> Option<Role> {
    if overrides.kubelet == Some(pid) {
        return Some(Role::Kubelet);
    }
    (overrides.runtime == Some(pid)).then_some(Role::Containerd)
}

fn list_pids(proc: &Path) -> Result<Vec<u32>, DiscoverError> {
    let failed = |source| DiscoverError::Proc { path: proc.display().to_string(), source };
    let entries = fs::read_dir(proc).map_err(failed)?;
    let names =
        entries.take(MAX_PROCESSES).filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Ok(names.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::Component;
    use std::os::unix::fs::symlink;

    /// A fake /proc: pid, parent, exe, arguments.
    fn tree(processes: &[(u32, u32, &str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("proc")).unwrap();
        fs::write(root.path().join("proc/version"), "x").unwrap();
        for (pid, parent, exe, args) in processes {
            let dir = root.path().join(format!("proc/{pid}"));
            fs::create_dir(&dir).unwrap();
            let comm: String = exe.rsplit('/').next().unwrap().chars().take(15).collect();
            let stat =
                format!("{pid} ({comm}) S {parent} 1 1 0 -1 4 1 2 3 4 5 6 7 8 20 0 9 0 {pid}00 1 2 3\n");
            fs::write(dir.join("stat"), stat).unwrap();
            fs::write(dir.join("cmdline"), args.replace(' ', "\0") + "\0").unwrap();
            symlink(exe, dir.join("exe")).unwrap();
        }
        root
    }

    /// Puts a process into a pid namespace.
    fn place(root: &tempfile::TempDir, pid: u32, namespace: &str) {
        let dir = root.path().join(format!("proc/{pid}/ns"));
        fs::create_dir(&dir).unwrap();
        symlink(format!("pid:[{namespace}]"), dir.join("pid")).unwrap();
    }

    fn find(root: &tempfile::TempDir) -> Node {
        discover(root.path(), &Overrides::default()).unwrap()
    }

    /// A node with two containerds: the kubelet's endpoint decides, and each shim belongs to one.
    #[test]
    fn endpoint_chooses_the_runtime() {
        let root = tree(&[
            (1, 0, "/usr/lib/systemd/systemd", "/sbin/init"),
            (10, 1, "/usr/bin/kubelet", "kubelet --container-runtime-endpoint=unix:///run/b.sock"),
            (20, 1, "/usr/bin/containerd", "containerd -a /run/a.sock"),
            (21, 1, "/usr/bin/containerd", "containerd -a /run/b.sock"),
            (30, 1, "/usr/bin/containerd-shim-runc-v2", "containerd-shim-runc-v2 -id x -address /run/b.sock"),
            (31, 1, "/usr/bin/containerd-shim-runc-v2", "containerd-shim-runc-v2 -id y -address /run/a.sock"),
            (40, 1, "/usr/bin/bash (deleted)", "bash"),
            (50, 1, "/usr/bin/containerd", "containerd --version"),
        ]);
        let node = find(&root);
        assert_eq!(node.kubelet().unwrap().pid, 10);
        let runtime = node.runtime().unwrap();
        assert_eq!(runtime.pid, 21);
        assert_eq!(node.shims().iter().map(|shim| shim.pid).collect::<Vec<_>>(), [30]);
        assert_eq!(node.processes.len(), 5);
        let other = Overrides { runtime_endpoint: Some("/var/run/a.sock".into()), ..Overrides::default() };
        assert_eq!(discover(root.path(), &other).unwrap().runtime().unwrap().pid, 20);
        let nobody = Overrides { runtime_endpoint: Some("/run/c.sock".into()), ..Overrides::default() };
        assert_eq!(discover(root.path(), &nobody).unwrap().runtime(), None);
    }

    /// Two kubelets: the one that the given runtime serves.
    #[test]
    fn the_given_runtime_chooses_the_kubelet() {
        let root = tree(&[
            (10, 1, "/usr/bin/kubelet", "kubelet --container-runtime-endpoint=unix:///run/b.sock"),
            (11, 1, "/usr/bin/kubelet", "kubelet --container-runtime-endpoint=unix:///run/a.sock"),
            (20, 1, "/usr/bin/containerd", "containerd -a /run/a.sock"),
            (21, 1, "/usr/bin/containerd", "containerd -a /run/b.sock"),
        ]);
        assert_eq!(find(&root).kubelet().unwrap().pid, 10, "the oldest");
        let given = Overrides { runtime: Some(20), ..Overrides::default() };
        assert_eq!(discover(root.path(), &given).unwrap().kubelet().unwrap().pid, 11);
        fs::remove_dir_all(root.path().join("proc/11")).unwrap();
        assert_eq!(discover(root.path(), &given).unwrap().kubelet(), None, "the other one is not ours");
        fs::remove_dir_all(root.path().join("proc/21")).unwrap();
        let given = Overrides { kubelet: Some(10), ..Overrides::default() };
        assert_eq!(discover(root.path(), &given).unwrap().runtime(), None, "nor is the other runtime");
    }

    /// A given endpoint chooses the kubelet that calls it: while that one restarts, another node's is not taken for it.
    #[test]
    fn the_given_endpoint_chooses_the_kubelet() {
        let root = tree(&[
            (10, 1, "/usr/bin/kubelet", "kubelet --container-runtime-endpoint=unix:///run/b.sock"),
            (11, 1, "/usr/bin/kubelet", "kubelet --container-runtime-endpoint=unix:///run/a.sock"),
            (20, 1, "/usr/bin/containerd", "containerd -a /run/a.sock"),
            (21, 1, "/usr/bin/containerd", "containerd -a /run/b.sock"),
        ]);
        let given = Overrides { runtime_endpoint: Some("/run/a.sock".into()), ..Overrides::default() };
        let node = discover(root.path(), &given).unwrap();
        assert_eq!([node.kubelet(), node.runtime()].map(|found| found.unwrap().pid), [11, 20]);
        fs::remove_dir_all(root.path().join("proc/11")).unwrap();
        assert_eq!(discover(root.path(), &given).unwrap().kubelet(), None);
    }

    /// Docker's own containerd does not answer the kubelet; dockerd does when nothing else can.
    #[test]
    fn docker_and_its_containerd() {
        let docker = (50, 1, "/usr/bin/dockerd", "dockerd -H fd://");
        let private = (51, 50, "/usr/bin/containerd", "containerd --config /var/run/docker/c.toml");
        let root = tree(&[docker, private]);
        assert_eq!(find(&root).runtime().unwrap().pid, 50);
        let root = tree(&[docker, private, (60, 1, "/usr/bin/crio", "crio")]);
        assert_eq!(find(&root).runtime().unwrap().pid, 60);
    }

    /// A kubelet with dockershim is served by dockerd, also where containerd is a service of its own; that and its shims are watched, those
    /// of another containerd are not.
    #[test]
    fn docker_behind_a_dockershim() {
        let kubelet = (10, 1, "/usr/bin/kubelet", "kubelet --container-runtime=docker");
        let docker = (50, 1, "/usr/bin/dockerd", "dockerd -H fd://");
        let containerd = (60, 1, "/usr/bin/containerd", "containerd");
        let other = (61, 1, "/usr/bin/containerd", "containerd -a /run/other.sock");
        let shim = |pid, address: &'static str| (pid, 1, "/usr/bin/containerd-shim-runc-v2", address);
        let ours = shim(
            70,
            "containerd-shim-runc-v2 -namespace moby -id ab -address /run/containerd/containerd.sock",
        );
        let others = shim(71, "containerd-shim-runc-v2 -namespace k8s.io -id cd -address /run/other.sock");
        let root = tree(&[kubelet, docker, containerd, other, ours, others]);
        let node = find(&root);
        let pids = |all: Vec<&Process>| all.iter().map(|process| process.pid).collect::<Vec<_>>();
        assert_eq!(pids(node.runtime_and_behind()), [50, 60]);
        assert_eq!(pids(node.shims()), [70]);
        let remote = (10, 1, "/usr/bin/kubelet", "kubelet --container-runtime-endpoint=/run/other.sock");
        let root = tree(&[remote, docker, containerd, other, ours, others]);
        let node = find(&root);
        assert_eq!((pids(node.runtime_and_behind()), pids(node.shims())), (vec![61], vec![71]));
        let cri =
            (62, 1, "/usr/bin/cri-dockerd", "cri-dockerd --container-runtime-endpoint /run/cri-dockerd.sock");
        let remote =
            (10, 1, "/usr/bin/kubelet", "kubelet --container-runtime-endpoint=/run/cri-dockerd.sock");
        let root = tree(&[remote, docker, containerd, cri]);
        assert_eq!(pids(find(&root).runtime_and_behind()), [62, 50, 60]);
    }

    /// A kubelet that has Docker for a runtime is not the one of another runtime that the user names; one that says it calls that
    /// one is, whichever is older.
    #[test]
    fn a_kubelet_of_docker_beside_another_runtime() {
        let docker = (50, 1, "/usr/bin/dockerd", "dockerd -H fd://");
        let containerd = (60, 1, "/usr/bin/containerd", "containerd");
        let other = (61, 1, "/usr/bin/containerd", "containerd -a /run/other.sock");
        let shim = (10, 1, "/usr/bin/kubelet", "kubelet --container-runtime=docker");
        let remote = (11, 1, "/usr/bin/kubelet", "kubelet --container-runtime-endpoint=/run/other.sock");
        let silent = (12, 1, "/usr/bin/kubelet", "kubelet");
        let kubelet = |root: &tempfile::TempDir, runtime: Option<u32>, endpoint: Option<&str>| {
            let runtime_endpoint = endpoint.map(PathBuf::from);
            let given = Overrides { runtime, runtime_endpoint, ..Overrides::default() };
            discover(root.path(), &given).unwrap().kubelet().map(|kubelet| kubelet.pid)
        };
        let both = tree(&[docker, containerd, other, shim, remote]);
        assert_eq!(kubelet(&both, Some(61), None), Some(11));
        assert_eq!(kubelet(&both, None, Some("/run/other.sock")), Some(11));
        assert_eq!(kubelet(&both, Some(50), None), Some(10));
        assert_eq!(kubelet(&both, None, Some("/run/dockershim.sock")), Some(10));
        assert_eq!(kubelet(&both, Some(60), None), Some(10), "Docker's own containerd");
        let alone = tree(&[docker, containerd, other, shim]);
        assert_eq!(
            (kubelet(&alone, Some(61), None), kubelet(&alone, None, Some("/run/other.sock"))),
            (None, None)
        );
        let silent = tree(&[containerd, other, silent, remote]);
        assert_eq!(kubelet(&silent, Some(61), None), Some(11), "it says so");
    }

    /// Whatever runs in a container and is called like a component is not the node's; it is when nothing else is there.
    #[test]
    fn components_in_containers() {
        let (init, kubelet, runtime) = (
            (1, 0, "/sbin/init", "init"),
            (10, 1, "/usr/bin/kubelet", "kubelet --container-runtime-endpoint=/run/a.sock"),
            (20, 1, "/usr/bin/containerd", "containerd -a /run/a.sock"),
        );
        let (inner_kubelet, inner_runtime) = (
            (60, 50, "/usr/bin/kubelet", "kubelet --container-runtime-endpoint=/run/a.sock"),
            (61, 50, "/tmp/containerd", "containerd -a /run/a.sock"),
        );
        // On its way into a container, in its namespaces, but a process of the node.
        let entering = (70, 20, "/usr/bin/runc", "runc init");
        let node = |processes: &[(u32, u32, &str, &str)]| {
            let root = tree(processes);
            for (pid, ..) in processes {
                place(&root, *pid, if *pid >= 50 { "4026532222" } else { "4026531836" });
            }
            (find(&root), root)
        };
        let pids = |node: &Node| (node.kubelet().map(|p| p.pid), node.runtime().map(|p| p.pid));
        let (both, _) = node(&[init, kubelet, runtime, inner_kubelet, inner_runtime, entering]);
        assert_eq!(pids(&both), (Some(10), Some(20)));
        let nested: Vec<u32> = both.nested().map(|process| process.pid).collect();
        assert_eq!((nested, both.pid_namespace()), (vec![60, 61], Some(4_026_531_836)));
        let (inner, _) = node(&[init, runtime, inner_kubelet, inner_runtime]);
        assert_eq!(pids(&inner), (Some(60), Some(61)), "a node in a container, on a machine that is none");
        assert_eq!((inner.nested().count(), inner.pid_namespace()), (0, Some(4_026_532_222)));
        let (dead, root) = node(&[init, runtime, inner_kubelet, inner_runtime]);
        assert!(dead.kubelet().is_some());
        fs::create_dir_all(root.path().join("var/lib/kubelet/pods/x")).unwrap();
        assert_eq!(pids(&find(&root)), (None, Some(20)), "the node's own kubelet does not run");
    }

    /// The kubelet calls a socket where nobody listens: its runtime is down, whatever other one runs.
    #[test]
    fn nobody_listens_where_the_kubelet_calls() {
        let root = tree(&[
            (
                10,
                1,
                "/usr/bin/kubelet",
                "kubelet --container-runtime-endpoint=/run/containerd/containerd.sock",
            ),
            (50, 1, "/usr/bin/dockerd", "dockerd -H fd://"),
        ]);
        assert_eq!(find(&root).runtime().unwrap().pid, 50, "who listens is not known");
        let net = root.path().join("proc/10/net");
        fs::create_dir(&net).unwrap();
        let table = |path: &str| {
            let line = format!("ffff8f1a: 00000002 00000000 00010000 0001 01 20001 {path}\n");
            fs::write(net.join("unix"), format!("Num RefCount Protocol Flags Type St Inode Path\n{line}"))
                .unwrap();
        };
        table("/run/docker.sock");
        let node = find(&root);
        assert_eq!((node.runtime(), node.is_ambiguous()), (None, false));
        let unserved = node.unserved().unwrap();
        assert_eq!(
            (unserved.component, unserved.path.as_str()),
            (Component::Containerd, "/run/containerd/containerd.sock")
        );
        table("/run/containerd/containerd.sock");
        let node = find(&root);
        assert_eq!((node.unserved(), node.runtime().map(|p| p.pid)), (None, Some(50)));
    }

    /// The user has the last word, and is told when it makes no sense.
    #[test]
    fn overrides() {
        let root = tree(&[
            (10, 1, "/usr/bin/kubelet", "kubelet"),
            (11, 1, "/opt/my-kubelet", "my-kubelet --config /x"),
            (12, 1, "/opt/my-runtime", "my-runtime"),
            (13, 1, "/usr/bin/crio", "crio"),
        ]);
        let given = Overrides { kubelet: Some(11), runtime: Some(12), ..Overrides::default() };
        let node = discover(root.path(), &given).unwrap();
        assert_eq!(node.kubelet().unwrap().pid, 11);
        assert_eq!(node.runtime().map(|p| (p.pid, p.role)), Some((12, Role::Containerd)));
        let crio = discover(root.path(), &Overrides { runtime: Some(13), ..Overrides::default() }).unwrap();
        assert_eq!(crio.runtime().map(|p| (p.pid, p.role)), Some((13, Role::Crio)));
        let missing = Overrides { kubelet: Some(99), ..Overrides::default() };
        let error = discover(root.path(), &missing).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the kubelet given on the command line, process 99, does not exist or has ended"
        );
    }

    /// A stopped kubelet leaves a trace; a machine without anything has none, nor has one with an empty directory.
    #[test]
    fn stopped_components() {
        let root = tree(&[(1, 0, "/sbin/init", "init")]);
        assert!(find(&root).is_empty());
        fs::create_dir_all(root.path().join("etc/systemd/system")).unwrap();
        fs::create_dir_all(root.path().join("var/lib/kubelet")).unwrap();
        assert!(find(&root).is_empty());
        fs::write(root.path().join("etc/systemd/system/kubelet.service"), "[Service]\n").unwrap();
        fs::create_dir_all(root.path().join("var/lib/kubelet/pki/x")).unwrap();
        let node = find(&root);
        assert!(!node.is_empty() && node.kubelet().is_none());
        let paths: Vec<_> = node.presence.iter().map(|trace| trace.path.as_str()).collect();
        assert_eq!(paths, ["/etc/systemd/system/kubelet.service", "/var/lib/kubelet/pki"]);
    }

    /// No process list is an error that names the place; processes without readable files are passed over.
    #[test]
    fn broken_process_lists() {
        let root = tempfile::tempdir().unwrap();
        assert!(discover(root.path(), &Overrides::default()).is_err());
        fs::create_dir_all(root.path().join("proc/7")).unwrap();
        fs::create_dir_all(root.path().join("proc/8")).unwrap();
        fs::write(root.path().join("proc/8/stat"), [0xff; 100]).unwrap();
        assert!(find(&root).processes.is_empty());
    }
}
