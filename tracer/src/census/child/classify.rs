//! Which processes are of interest, in the order in which they are asked.

use std::path::Path;

use plegtrace_common::role::Role;

use super::{
    read,
    scan::{MAX_DEPTH, Seen, Tree},
};
use crate::input::{Command, Component};

/// Processes that are told of in one round.
const MAX_INTERESTS: usize = 1024;
/// Zombies that are told of.
const MAX_ZOMBIES: usize = 256;
/// With what people look after containers.
const TOOLS: [&str; 5] = ["crictl", "ctr", "nerdctl", "docker", "podman"];

/// A process that is looked at.
#[derive(Clone, Debug)]
pub(super) struct Interest {
    pub(super) pid: u32,
    pub(super) component: Component,
    pub(super) seen: Seen,
    pub(super) kind: Kind,
    /// A person started it, in a program of this name: it is no part of the node.
    pub(super) by_hand: Option<String>,
    /// It has left the session of its parent.
    pub(super) detached: bool,
}

/// Why a process is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// A component, or something that one runs.
    Worker,
    /// It has ended, and a component has not noticed.
    Zombie,
    /// It lives in a container: looked at for what it holds open, and told of when it is frozen.
    Workload {
        /// Its shim or monitor.
        shim: u32,
    },
}

/// What came of the tree.
#[derive(Debug, Default)]
pub(super) struct Interests {
    /// Workers and zombies, the most important first.
    pub(super) told: Vec<Interest>,
    /// Processes in containers, by pid.
    pub(super) workloads: Vec<Interest>,
    /// How many did not fit.
    pub(super) left_out: u32,
}

/// Sorts the tree: first the node's own, for which `elsewhere` is false. `proc` is where mount namespaces are compared.
pub(super) fn classify(tree: &Tree, proc: &Path, mut elsewhere: impl FnMut(u32) -> bool) -> Interests {
    let mut found = Interests::default();
    let mut zombies = 0;
    for (pid, seen) in tree {
        let Some((component, kind)) = interest(tree, proc, *pid, seen) else { continue };
        let by_hand = by_hand(tree, *pid, seen);
        if by_hand.is_some() && kind == Kind::Zombie {
            continue;
        }
        let detached = component == Component::Helper
            && tree.get(&seen.stat.parent).is_some_and(|parent| parent.stat.session != seen.stat.session);
        let interest = Interest { pid: *pid, component, seen: seen.clone(), kind, by_hand, detached };
        match kind {
            Kind::Workload { .. } => found.workloads.push(interest),
            Kind::Zombie if zombies == MAX_ZOMBIES => found.left_out += 1,
            Kind::Zombie | Kind::Worker => {
                zombies += usize::from(kind == Kind::Zombie);
                found.told.push(interest);
            }
        }
    }
    found.told.sort_by_cached_key(|one| {
        (elsewhere(one.pid), one.by_hand.is_some(), one.kind, rank(one.component), one.pid)
    });
    found.workloads.sort_by_cached_key(|one| (elsewhere(one.pid), one.pid));
    let too_many = found.told.len().saturating_sub(MAX_INTERESTS);
    found.told.truncate(MAX_INTERESTS);
    found.left_out = found.left_out.saturating_add(u32::try_from(too_many).unwrap_or(u32::MAX));
    found
}

/// First those of which there are few and on which everything depends.
fn rank(component: Component) -> u8 {
    match component {
        Component::Containerd | Component::Crio | Component::Dockerd | Component::CriDockerd => 0,
        Component::Kubelet => 1,
        Component::Runc => 2,
        Component::Helper => 3,
        Component::Shim => 4,
        Component::Conmon => 5,
        Component::Systemd | Component::BusDaemon => 6,
    }
}

fn interest(tree: &Tree, proc: &Path, pid: u32, seen: &Seen) -> Option<(Component, Kind)> {
    if seen.stat.has_ended() {
        let parent = tree.get(&seen.stat.parent)?;
        let component = seen.role.and_then(Component::of_role).unwrap_or(Component::Helper);
        return parent.role.map(|_| (component, Kind::Zombie));
    }
    if let Some(component) = seen.role.and_then(Component::of_role) {
        if let Some(parent) = tree.get(&seen.stat.parent).filter(|_| seen.init)
            && parent.role == Some(Role::Runc)
            && !parent.init
            && let Some(inner @ (_, Kind::Workload { .. })) = interest(tree, proc, seen.stat.parent, parent)
        {
            return Some(inner);
        }
        let within = nearest(tree, pid).filter(|_| component == Component::Runc && !seen.init);
        return Some(match within {
            // Somebody works with runc inside of a container.
            Some((shim, Role::Shim | Role::Conmon, _))
                if shim != seen.stat.parent && elsewhere(proc, pid, shim) =>
            {
                (Component::Helper, Kind::Workload { shim })
            }
            _ => (component, Kind::Worker),
        });
    }
    let Some((ancestor, role, init)) = nearest(tree, pid) else {
        return TOOLS.contains(&seen.name()).then_some((Component::Helper, Kind::Worker));
    };
    match role {
        // What runs in a container can have any name, and has mounts of its own.
        Role::Shim | Role::Conmon
            if Command::is_like_runc(seen.name())
                && ancestor == seen.stat.parent
                && !elsewhere(proc, pid, ancestor) =>
        {
            Some((Component::Helper, Kind::Worker))
        }
        Role::Shim | Role::Conmon => Some((Component::Helper, Kind::Workload { shim: ancestor })),
        // `runc run` and `runc exec` without `--detach` stay the parent of what they started in the container; hooks
        // run in the namespaces of runc, those inside the container are started by its `init`.
        Role::Runc if !init && elsewhere(proc, pid, ancestor) => {
            Some((Component::Helper, Kind::Workload { shim: ancestor }))
        }
        _ => Some((Component::Helper, Kind::Worker)),
    }
}

/// The nearest ancestor that is a component.
fn nearest(tree: &Tree, pid: u32) -> Option<(u32, Role, bool)> {
    let mut at = tree.get(&pid)?.stat.parent;
    for _ in 0..MAX_DEPTH {
        let seen = tree.get(&at)?;
        if let Some(role) = seen.role {
            return Some((at, role, seen.init));
        }
        at = seen.stat.parent;
    }
    None
}

/// In which program a person started it. runc is the node's only by its chain of parents: its runtime, its shim, the
/// kubelet. One without parents has lost them, and may be the node's.
fn by_hand(tree: &Tree, pid: u32, seen: &Seen) -> Option<String> {
    let is_server = seen.role.is_some_and(|role| role != Role::Runc);
    let (mut at, mut found) = (seen.stat.parent, None);
    for _ in (0..MAX_DEPTH).take_while(|_| !is_server) {
        let Some(parent) = tree.get(&at).filter(|_| at > 1) else { break };
        match parent.role {
            Some(Role::Runc) => {}
            Some(_) => return None,
            None => found = found.or(Some(parent)),
        }
        at = parent.stat.parent;
    }
    let tool =
        || (TOOLS.contains(&seen.name()) && seen.role.is_none()).then(|| tree.get(&seen.stat.parent))?;
    found.or_else(tool).map(|parent| parent.stat.comm.clone()).filter(|_| pid != 1)
}

/// Does it live in another mount namespace? `false` when that cannot be told.
fn elsewhere(proc: &Path, pid: u32, than: u32) -> bool {
    let namespace = |pid: u32| read::link(&proc.join(format!("{pid}/ns/mnt")));
    matches!((namespace(pid), namespace(than)), (Some(a), Some(b)) if a != b)
}

/// Do the paths that a process tells mean the same files here? Not when it has mounts of its own, neither those of
/// process 1 nor ours.
pub(super) fn shares_files(proc: &Path, pid: u32) -> bool {
    let mounts = |name: &str| read::link(&proc.join(name).join("ns/mnt"));
    let of_node = ["1", "self"].into_iter().filter_map(mounts).collect::<Vec<_>>();
    mounts(&pid.to_string()).is_none_or(|of_it| of_node.is_empty() || of_node.contains(&of_it))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Stat;

    fn tree(rows: &[(u32, u32, &str, char)]) -> Tree {
        let row = |(pid, parent, comm, state): &(u32, u32, &str, char)| {
            let role = match *comm {
                "runc:[2:INIT]" => Some(Role::Runc),
                comm => crate::target::role_of_program(comm),
            };
            let stat = Stat {
                comm: (*comm).to_owned(),
                state: *state,
                parent: *parent,
                session: *pid,
                threads: 1,
                start_ticks: u64::from(*pid),
            };
            let seen = Seen { stat, role, init: comm.starts_with("runc:["), program: None };
            (*pid, seen)
        };
        rows.iter().map(row).collect()
    }

    fn sorted(rows: &[(u32, u32, &str, char)]) -> (Vec<(u32, Component, Kind)>, Vec<u32>) {
        let found = classify(&tree(rows), Path::new("/nonexistent"), |_| false);
        let told = found.told.iter().map(|one| (one.pid, one.component, one.kind)).collect();
        (told, found.workloads.iter().map(|one| one.pid).collect())
    }

    /// Everything a component runs is of interest, whatever its name; what runs in a container is not, nor what only
    /// looks like it.
    #[test]
    fn helpers_and_workloads() {
        let (told, workloads) = sorted(&[
            (1, 0, "systemd", 'S'),
            (10, 1, "kubelet", 'S'),
            (11, 10, "mount", 'D'),
            (12, 11, "mount.nfs", 'D'),
            (20, 1, "containerd", 'S'),
            (21, 20, "bridge", 'S'),
            (30, 1, "containerd-shim-runc-v2", 'S'),
            (31, 30, "nginx", 'S'),
            (32, 31, "sh", 'S'),
            (33, 30, "runc", 'S'),
            (34, 33, "runc:[2:INIT]", 'S'),
            (35, 33, "hook", 'R'),
            (36, 34, "inner-hook", 'R'),
            (40, 1, "bash", 'S'),
            (41, 99, "orphan", 'S'),
        ]);
        let worker = |pid, component| (pid, component, Kind::Worker);
        let want = [
            worker(20, Component::Containerd),
            worker(10, Component::Kubelet),
            worker(33, Component::Runc),
            worker(34, Component::Runc),
            worker(11, Component::Helper),
            worker(12, Component::Helper),
            worker(21, Component::Helper),
            worker(35, Component::Helper),
            worker(36, Component::Helper),
            worker(30, Component::Shim),
        ];
        assert_eq!(told, want);
        assert_eq!(workloads, [31, 32]);
    }

    /// runc is the node's by its parents, however deep below a runtime, a shim or the kubelet; one that a person typed is told
    /// as such, with whatever it started, after the node's own. One that has lost its parents may be the node's.
    #[test]
    fn typed_by_a_person() {
        let rows = [
            (1, 0, "systemd", 'S'),
            (20, 1, "containerd", 'S'),
            (21, 20, "sh", 'S'),
            (22, 21, "runc", 'S'),
            (30, 1, "containerd-shim-runc-v2", 'S'),
            (31, 30, "runc", 'S'),
            (32, 31, "runc:[2:INIT]", 'S'),
            (40, 1, "sshd", 'S'),
            (41, 40, "bash", 'S'),
            (42, 41, "sudo", 'S'),
            (43, 42, "runc", 'S'),
            (44, 43, "runc:[2:INIT]", 'S'),
            (45, 43, "hook", 'S'),
            (46, 43, "ended", 'Z'),
            (47, 41, "crictl", 'S'),
            (48, 41, "vim", 'S'),
            (50, 1, "runc", 'S'),
            (51, 1, "runc:[2:INIT]", 'S'),
        ];
        let found = classify(&tree(&rows), Path::new("/nonexistent"), |_| false);
        let told: Vec<(u32, Option<&str>)> =
            found.told.iter().map(|one| (one.pid, one.by_hand.as_deref())).collect();
        let own = [20, 22, 31, 32, 50, 51, 21, 30].map(|pid| (pid, None));
        let typed = [(43, "sudo"), (44, "sudo"), (45, "sudo"), (47, "bash")].map(|(pid, by)| (pid, Some(by)));
        assert_eq!(told, [&own[..], &typed[..]].concat());
    }

    /// A runc that somebody runs inside of a container is a workload, with its `init` and its hooks.
    #[test]
    fn a_runtime_in_a_container() {
        let rows = [
            (1, 0, "systemd", 'S'),
            (30, 1, "containerd-shim-runc-v2", 'S'),
            (31, 30, "buildkitd", 'S'),
            (32, 31, "runc", 'S'),
            (33, 32, "runc:[2:INIT]", 'S'),
            (34, 30, "runc", 'S'),
            (35, 34, "runc:[2:INIT]", 'S'),
        ];
        let proc = tempfile::tempdir().unwrap();
        for (pid, ..) in rows {
            let ns = proc.path().join(format!("{pid}/ns"));
            std::fs::create_dir_all(&ns).unwrap();
            let mounts = if [31, 32, 33, 35].contains(&pid) { "mnt:[2]" } else { "mnt:[1]" };
            std::os::unix::fs::symlink(mounts, ns.join("mnt")).unwrap();
        }
        let found = classify(&tree(&rows), proc.path(), |_| false);
        let pids = |list: &[Interest]| list.iter().map(|one| one.pid).collect::<Vec<_>>();
        assert_eq!((pids(&found.told), pids(&found.workloads)), (vec![34, 35, 30], vec![31, 32, 33]));
    }

    /// Zombies of components are told of, those of anybody else are not.
    #[test]
    fn zombies() {
        let (told, workloads) = sorted(&[
            (1, 0, "systemd", 'S'),
            (2, 1, "bash", 'Z'),
            (30, 1, "containerd-shim-runc-v2", 'S'),
            (31, 30, "runc", 'Z'),
            (32, 30, "sh", 'Z'),
        ]);
        let want = [
            (30, Component::Shim, Kind::Worker),
            (31, Component::Runc, Kind::Zombie),
            (32, Component::Helper, Kind::Zombie),
        ];
        assert_eq!((told.as_slice(), workloads.as_slice()), (&want[..], &[][..]));
    }

    /// A circle of parents, which a list that was read while it changed can have, ends; so does a crowd.
    #[test]
    fn bounds() {
        assert_eq!(sorted(&[(5, 6, "a", 'S'), (6, 5, "b", 'S')]).0, []);
        let crowd: Vec<_> = (100..1400).map(|pid| (pid, 1, "containerd-shim", 'S')).collect();
        let found = classify(&tree(&crowd), Path::new("/nonexistent"), |pid| pid % 2 == 0);
        assert_eq!((found.told.len(), found.left_out), (MAX_INTERESTS, 276));
        // What does not fit is not the node's own.
        assert!(found.told[..650].iter().all(|one| one.pid % 2 == 1));
    }

    /// Paths of another mount namespace mean something else here; when it cannot be told, they are looked at.
    #[test]
    fn whose_files() {
        let proc = tempfile::tempdir().unwrap();
        let mounts =
            [("1", "mnt:[1]"), ("self", "mnt:[2]"), ("7", "mnt:[1]"), ("8", "mnt:[2]"), ("9", "mnt:[3]")];
        for (name, namespace) in mounts {
            std::fs::create_dir_all(proc.path().join(name).join("ns")).unwrap();
            std::os::unix::fs::symlink(namespace, proc.path().join(name).join("ns/mnt")).unwrap();
        }
        let shared = [7, 8, 9, 10].map(|pid| shares_files(proc.path(), pid));
        assert_eq!(shared, [true, true, false, true]);
    }
}
