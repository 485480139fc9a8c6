//! One look at all processes of interest: first everything that does not wait for them, for all; then one after the
//! other is asked.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    path::Path,
    time::Duration,
};

use super::{
    answerers,
    classify::{Interest, Interests, Kind, classify, shares_files},
    connections,
    containers::Containers,
    files::Holders,
    freezer::Hierarchies,
    io_limit::IoGroup,
    kept::Kept,
    look::Looker,
    plugins, read, scan, scarce,
    sockets::Sockets,
    tell::Tell,
    unkillable,
};
use crate::{
    census::{
        clock,
        protocol::{Answer, Step},
        text::{container_id, memberships, pressure, unwritten},
    },
    input::{Component, ContainerFact, Freezer, Pressure, ProcessFact, SocketFact, TaskLimit},
};

/// Sockets and pipes that are told, per process.
const MAX_SOCKETS: usize = 64;
const MAX_PIPES: usize = 64;
/// Processes in containers whose descriptors are looked at.
const MAX_WORKLOADS: usize = 4096;
/// How long is looked at these descriptors: workloads can have any number of them.
const OTHERS_TIME: Duration = Duration::from_millis(400);
/// Whoever may hold the other end of a socket that a component waits for, beside the components.
const OTHER_HOLDERS: &[&str] = &["systemd", "dbus-daemon", "dbus-broker", "dbus-broker-lau"];

/// Everything that is known of the node without asking a process.
pub(super) struct Node {
    pub(super) holders: Holders,
    pub(super) sockets: Sockets,
    pub(super) containers: Containers,
    pub(super) hierarchies: Hierarchies,
    /// For which container runc processes work, and what they start.
    pub(super) works_for: HashMap<u32, String>,
    /// All processes, by pid and name.
    pub(super) everybody: Vec<(u32, String)>,
    /// Was everybody asked what it holds open? `None`: not yet.
    pub(super) asked_all: Option<bool>,
}

/// Tells of all processes of interest.
pub(super) fn processes(tell: &mut Tell, kept: &mut Kept) -> io::Result<()> {
    let tree = scan::scan(tell)?;
    let proc = tell.path("/proc");
    let interests = classify(&tree, &proc, |pid| tell.is_elsewhere(pid));
    let others =
        tree.iter().filter(|(pid, seen)| **pid == 1 || OTHER_HOLDERS.contains(&seen.stat.comm.as_str()));
    let others: Vec<(u32, String)> = others.map(|(pid, seen)| (*pid, seen.stat.comm.clone())).collect();
    let mut node = first_look(tell, kept, &interests, &others)?;
    node.everybody = tree.iter().map(|(pid, seen)| (*pid, seen.stat.comm.clone())).collect();
    tell.say(&Answer::Found { left_out: interests.left_out })?;
    for interest in interests.told.iter().filter(|one| !tell.is_finished(one.pid)).collect::<Vec<_>>() {
        tell.say(&Answer::Process(Box::new(fact(interest, &node, clock::now_ns()))))?;
    }
    bundles(tell, &interests, &mut node.containers)?;
    let mut looker = Looker::default();
    for interest in &interests.told {
        if !tell.is_finished(interest.pid) {
            looker.look(tell, interest, &mut node, kept)?;
            tell.say(&Answer::Finished { pid: interest.pid })?;
        }
    }
    frozen_workloads(tell, &interests, &node)?;
    let awaits_answerers = unkillable::tell(tell, &interests, &node)?;
    plugins::tell(tell, &interests, &mut node, kept)?;
    if looker.awaits_answerers || awaits_answerers {
        answerers::tell(tell, &tree)?;
    }
    if let Some(pressure) = pressures(&tell.path("/proc/pressure")) {
        tell.say(&Answer::Pressure(pressure))?;
    }
    if let Some(unwritten) = read::text(&tell.path("/proc/meminfo")).ok().and_then(|text| unwritten(&text)) {
        tell.say(&Answer::Unwritten(unwritten))?;
    }
    let (containers, ended) = (node.containers.all(), node.containers.ended());
    tell.say(&Answer::Containers { containers, ended })?;
    connections::tell(tell, &interests, &node, kept)?;
    scarce::tell(tell, &interests, &node, kept)
}

fn first_look(
    tell: &mut Tell,
    kept: &mut Kept,
    interests: &Interests,
    others: &[(u32, String)],
) -> io::Result<Node> {
    let mut holders = Holders::default();
    let alive = interests.told.iter().filter(|one| one.kind != Kind::Zombie);
    for interest in alive {
        holders.add(tell, interest.pid, &interest.seen.stat.comm, true)?;
    }
    let workloads = interests.workloads.iter().take(MAX_WORKLOADS);
    let workloads = workloads.map(|one| (one.pid, one.seen.stat.comm.as_str()));
    // Process 1 is the first of the others; their names are those of anybody.
    let others = others.iter().map(|(pid, comm)| (*pid, comm.as_str()));
    holders.add_others(tell, others.chain(workloads), OTHERS_TIME)?;
    let sockets = Sockets::read(tell, kept)?;
    let hierarchies = match Hierarchies::find(tell) {
        Ok(found) => found,
        Err(error) => {
            tell.refused(0, "", "mounts of cgroups", &error)?;
            Hierarchies::default()
        }
    };
    Ok(Node {
        holders,
        sockets,
        containers: Containers::default(),
        hierarchies,
        works_for: HashMap::new(),
        everybody: Vec::new(),
        asked_all: None,
    })
}

fn pressures(dir: &Path) -> Option<Pressure> {
    let of = |name: &str, kind| pressure(&read::text(&dir.join(name)).ok()?, kind);
    Some(Pressure {
        cpu_some_avg10: of("cpu", "some")?,
        io_some_avg10: of("io", "some")?,
        io_full_avg10: of("io", "full")?,
        memory_full_avg10: of("memory", "full")?,
    })
}

/// The bundles of all shims.
fn bundles(tell: &mut Tell, interests: &Interests, containers: &mut Containers) -> io::Result<()> {
    let shims =
        interests.told.iter().filter(|one| one.component == Component::Shim && one.kind == Kind::Worker);
    let proc = tell.path("/proc");
    for shim in shims.filter(|shim| shares_files(&proc, shim.pid)) {
        // A shim works in the directory of its bundle.
        let Some(bundle) = read::link(&tell.process(shim.pid).join("cwd")) else { continue };
        if tell.ask(shim.pid, &shim.seen.stat.comm, Step::Bundles)?
            && let Err(error) = containers.read_beside(tell, &bundle)
        {
            tell.refused(shim.pid, &shim.seen.stat.comm, Step::Bundles.words(), &error)?;
        }
    }
    containers.complete();
    Ok(())
}

/// What is known without asking the process.
fn fact(interest: &Interest, node: &Node, at_ns: u64) -> ProcessFact {
    let (pid, stat) = (interest.pid, &interest.seen.stat);
    let pipes = match interest.component {
        Component::Shim => node.holders.read_by(pid, MAX_PIPES),
        _ => Vec::new(),
    };
    ProcessFact {
        at_ns,
        pid,
        parent: stat.parent,
        started_ns: clock::started_ns(stat.start_ticks),
        component: interest.component,
        comm: stat.comm.clone(),
        command: None,
        state: stat.state,
        threads: stat.threads,
        stopped: u32::from(matches!(stat.state, 'T' | 't')),
        freezer: None,
        parked: Vec::new(),
        sockets: sockets(pid, node),
        pipes,
        container: None,
        by_hand: interest.by_hand.clone(),
        detached: interest.detached,
        cpu_group: None,
        task_limit: None,
        disk: None,
    }
}

fn sockets(pid: u32, node: &Node) -> Vec<SocketFact> {
    let inodes = node.holders.sockets_of(pid);
    let facts = inodes.into_iter().filter_map(|inode| node.sockets.fact(inode, &node.holders));
    let mut facts: Vec<SocketFact> = facts.filter(|fact| fact.listening || fact.unread > 0).collect();
    facts.sort_by_key(|fact| (std::cmp::Reverse(fact.unread), fact.inode));
    facts.truncate(MAX_SOCKETS);
    facts
}

/// The first process of every container that is frozen.
fn frozen_workloads(tell: &mut Tell, interests: &Interests, node: &Node) -> io::Result<()> {
    let mut seen: BTreeMap<String, ()> = BTreeMap::new();
    for workload in interests.workloads.iter().take(MAX_WORKLOADS) {
        let Some(Groups { freezer, container, .. }) = cgroup(tell, workload, node)? else { continue };
        let Some(freezer) = freezer else { continue };
        let id = container.as_ref().map_or_else(|| freezer.path.clone(), |container| container.id.clone());
        if seen.insert(id, ()).is_some() {
            continue;
        }
        let told = ProcessFact { freezer: Some(freezer), container, ..fact(workload, node, clock::now_ns()) };
        tell.say(&Answer::Process(Box::new(told)))?;
        tell.say(&Answer::Finished { pid: workload.pid })?;
    }
    Ok(())
}

/// What the cgroups of a process tell.
#[derive(Debug, Default)]
pub(super) struct Groups {
    /// The freezer, when it is not thawed.
    pub(super) freezer: Option<Freezer>,
    /// The container.
    pub(super) container: Option<ContainerFact>,
    /// Where the controller of processors is.
    pub(super) cpu: Option<String>,
    /// One that has as many tasks as it may have.
    pub(super) full: Option<TaskLimit>,
    /// Where limits of what it writes would be.
    pub(super) io: Option<IoGroup>,
}

/// The cgroups of a process; `None` when it could not be asked.
pub(super) fn cgroup(tell: &mut Tell, interest: &Interest, node: &Node) -> io::Result<Option<Groups>> {
    let (pid, comm) = (interest.pid, &interest.seen.stat.comm);
    if !tell.ask(pid, comm, Step::Cgroup)? {
        return Ok(None);
    }
    // A kernel without cgroups has no such file.
    let Ok(text) = read::text(&tell.process(pid).join("cgroup")) else { return Ok(None) };
    let lines = memberships(&text);
    let id = lines.iter().find_map(|line| container_id(line.path));
    let container = id.map(|id| node.containers.container(id, "cgroup"));
    Ok(Some(Groups {
        freezer: node.hierarchies.frozen(&lines),
        container,
        cpu: node.hierarchies.cpu(&lines),
        full: node.hierarchies.full(&lines),
        io: node.hierarchies.io(&lines),
    }))
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        io::{BufRead as _, BufReader, Seek as _},
        os::unix::fs::symlink,
    };

    use super::*;

    /// A process of a tree, in a mount namespace, working in a directory.
    fn process(root: &Path, pid: u32, words: &str, mounts: &str, cwd: &str) {
        let dir = root.join(format!("proc/{pid}"));
        for name in ["fd", "ns", "task"] {
            fs::create_dir_all(dir.join(name)).unwrap();
        }
        let name = words.split(' ').next().unwrap();
        let (comm, zeros) = (&name[..name.len().min(15)], "0 ".repeat(47));
        fs::write(dir.join("stat"), format!("{pid} ({comm}) S 1 {zeros}")).unwrap();
        fs::write(dir.join("cmdline"), words.replace(' ', "\0") + "\0").unwrap();
        symlink(format!("/usr/bin/{name}"), dir.join("exe")).unwrap();
        symlink(mounts, dir.join("ns/mnt")).unwrap();
        symlink(cwd, dir.join("cwd")).unwrap();
    }

    /// Puts a process into a pid namespace.
    fn place(root: &Path, pid: u32, namespace: u32) {
        symlink(format!("pid:[{namespace}]"), root.join(format!("proc/{pid}/ns/pid"))).unwrap();
    }

    /// All that is said when everybody is looked at.
    fn said(root: &Path, others_ms: u64) -> Vec<Answer> {
        let mut answers = tempfile::tempfile().unwrap();
        let mut tell = Tell::below(root, answers.try_clone().unwrap());
        tell.order.others_ms = others_ms;
        processes(&mut tell, &mut Kept::default()).unwrap();
        tell.done().unwrap();
        answers.rewind().unwrap();
        let lines = BufReader::new(answers).lines();
        lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect()
    }

    /// A container can call its processes as it likes: they are asked after the node's own, and not at all when their time
    /// is over; what waits for nobody is told of them all the same.
    #[test]
    fn the_nodes_own_come_first() {
        let root = tempfile::tempdir().unwrap();
        for (pid, name, namespace) in [
            (1, "systemd", 1),
            (10, "containerd", 9),
            (11, "containerd-shim-fake", 9),
            (12, "k3s", 9),
            (30, "containerd-shim-runc-v2", 1),
            (31, "containerd", 1),
            (32, "kubelet", 1),
        ] {
            process(root.path(), pid, name, "mnt:[1]", "/");
            place(root.path(), pid, namespace);
        }
        let asked = |said: &[Answer]| {
            let steps = said.iter().filter_map(|answer| match answer {
                Answer::Asking { pid, step, elsewhere, .. } if *pid != 0 => Some((*step, *pid, *elsewhere)),
                _ => None,
            });
            steps.collect::<Vec<_>>()
        };
        let of = |asked: &[(Step, u32, bool)], wanted: Step| {
            asked.iter().filter(|(step, ..)| *step == wanted).map(|(_, pid, _)| *pid).collect::<Vec<_>>()
        };
        let all = asked(&said(root.path(), 60_000));
        assert_eq!(of(&all, Step::Program), [1, 30, 31, 32, 10, 11, 12]);
        // A program of several roles is asked for its words when it is found.
        assert_eq!(of(&all, Step::Arguments), [12, 31, 32, 30, 10, 11]);
        assert_eq!(of(&all, Step::Stacks), [31, 32, 30, 10, 11]);
        assert!(all.iter().all(|(_, pid, elsewhere)| *elsewhere == (10..20).contains(pid)));
        let none = said(root.path(), 0);
        assert!(asked(&none).iter().all(|(_, pid, _)| !(10..20).contains(pid)), "{none:?}");
        assert_eq!(of(&asked(&none), Step::Stacks), [31, 32, 30]);
        let told = none.iter().filter(|answer| matches!(answer, Answer::Process(_))).count();
        assert_eq!(told, 5, "what could play a part by its words is not told of: {none:?}");
        let Some(Answer::Refused(refused)) = none.iter().rev().nth(1) else { panic!("{none:?}") };
        assert_eq!(refused.what, "processes of other pid namespaces");
        assert!(refused.why.starts_with("3 were not asked: "), "{refused:?}");
    }

    /// Bundles are read of whoever sees the same files: what another one calls so is something else here.
    #[test]
    fn bundles_of_the_node_only() {
        let root = tempfile::tempdir().unwrap();
        for id in ["near/s1", "near/s2", "far/s3", "run/c1", "run/c2"] {
            fs::create_dir_all(root.path().join(id)).unwrap();
            fs::write(root.path().join(id).join("config.json"), "{}").unwrap();
        }
        process(root.path(), 1, "systemd", "mnt:[1]", "/");
        process(root.path(), 30, "containerd-shim-runc-v2", "mnt:[1]", "/near/s1");
        process(root.path(), 31, "containerd-shim-runc-v2", "mnt:[9]", "/far/s3");
        process(root.path(), 40, "runc create --bundle /run/c1 c1", "mnt:[1]", "/");
        process(root.path(), 41, "runc create --bundle /run/c2 c2", "mnt:[9]", "/");
        let found = said(root.path(), 0).into_iter().find_map(|answer| match answer {
            Answer::Containers { containers, .. } => Some(containers),
            _ => None,
        });
        let ids: Vec<String> = found.unwrap().into_iter().map(|container| container.id).collect();
        assert_eq!(ids, ["c1", "s1", "s2"]);
    }
}
