//! Every process of the node: its place in the tree, and which program it runs.

use std::{collections::BTreeMap, io};

use plegtrace_common::role::Role;

use super::{read, tell::Tell};
use crate::{
    census::protocol::Step,
    target::{
        Stat, command_facts, exe_path, is_multi_call, is_somebody_else, multi_call_role, owner,
        role_of_program,
    },
};

/// More processes than any node has.
const MAX_PROCESSES: usize = 200_000;
/// A tree of processes that is deeper is not climbed further.
pub(super) const MAX_DEPTH: usize = 64;
/// Parent of all threads of the kernel.
const KTHREADD: u32 = 2;

/// A process at first sight.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) stat: Stat,
    /// What its program is to the node.
    pub(super) role: Option<Role>,
    /// `runc init`: it waits to become a container's first process, or runs hooks inside of it.
    pub(super) init: bool,
    /// The file name of its program, when that could be read.
    pub(super) program: Option<String>,
}

impl Seen {
    /// What it is called: by its program, or by itself.
    pub(super) fn name(&self) -> &str {
        self.program.as_deref().unwrap_or(&self.stat.comm)
    }
}

/// All processes by pid.
pub(super) type Tree = BTreeMap<u32, Seen>;

/// Looks at all processes.
pub(super) fn scan(tell: &mut Tell) -> io::Result<Tree> {
    let mut tree = Tree::new();
    if !tell.ask(0, "", Step::List)? {
        return Ok(tree);
    }
    let pids = match read::numbers(&tell.path("/proc"), MAX_PROCESSES) {
        Ok(pids) => pids,
        Err(error) => {
            tell.refused(0, "", Step::List.words(), &error)?;
            return Ok(tree);
        }
    };
    let mut pids: Vec<u32> = pids.into_iter().filter(|pid| !tell.order.skip.contains(pid)).collect();
    tell.own_first(&mut pids);
    for pid in pids {
        if let Some(stat) = read::stat(&tell.process(pid)) {
            let seen = look(tell, pid, stat)?;
            tree.insert(pid, seen);
        }
    }
    let foreign = foreign(tell, &tree)?;
    let kept: Vec<u32> = tree.keys().copied().filter(|pid| !is_below(&tree, *pid, &foreign)).collect();
    tree.retain(|pid, _| kept.binary_search(pid).is_ok());
    Ok(tree)
}

/// Components that are not the node's.
fn foreign(tell: &mut Tell, tree: &Tree) -> io::Result<Vec<u32>> {
    let mut foreign = tell.order.foreign.clone();
    foreign.extend(tree.iter().filter(|(pid, seen)| is_anybodys(tell, **pid, seen)).map(|(pid, _)| *pid));
    let Some(ours) = tell.order.shims_call.clone() else { return Ok(foreign) };
    for (pid, seen) in tree.iter().filter(|(_, seen)| seen.role == Some(Role::Shim)) {
        let Some(arguments) = arguments(tell, *pid, &seen.stat.comm)? else { continue };
        if command_facts(Role::Shim, &arguments, None).calls.is_some_and(|calls| calls != ours) {
            foreign.push(*pid);
        }
    }
    Ok(foreign)
}

/// Is it called like a daemon of the node, and is another user's? Whoever runs runc is told by its parents.
fn is_anybodys(tell: &Tell, pid: u32, seen: &Seen) -> bool {
    let given = [tell.order.kubelet, tell.order.runtime].contains(&Some(pid));
    let daemon = seen.role.is_some_and(|role| role != Role::Runc);
    daemon && !given && !tell.order.of_user && is_somebody_else(owner(&tell.process(pid)))
}

/// Is the process one of `roots`, or a descendant of one?
fn is_below(tree: &Tree, mut pid: u32, roots: &[u32]) -> bool {
    for _ in 0..MAX_DEPTH {
        if roots.contains(&pid) {
            return true;
        }
        let Some(seen) = tree.get(&pid) else { return false };
        pid = seen.stat.parent;
    }
    false
}

fn look(tell: &mut Tell, pid: u32, stat: Stat) -> io::Result<Seen> {
    let init = stat.comm.starts_with("runc:[");
    let kernel = pid == KTHREADD || stat.parent == KTHREADD;
    let may_ask = !kernel && (!tell.links_wait() || tell.ask(pid, &stat.comm, Step::Program)?);
    let exe = if may_ask { exe_path(&tell.process(pid)) } else { None };
    let program = exe.as_deref().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    let forced = if tell.order.kubelet == Some(pid) {
        Some(Role::Kubelet)
    } else {
        (tell.order.runtime == Some(pid)).then_some(Role::Containerd)
    };
    let role = match program.as_deref() {
        Some(name) if is_multi_call(name) => part_of(tell, pid, &stat.comm, name)?.or(forced),
        Some(name) => role_of_program(name).or(forced),
        // Threads of the kernel name themselves; without permission the kernel's name of it must do.
        None if kernel => None,
        None => role_of_program(&stat.comm).or(forced),
    };
    let role = role.or(init.then_some(Role::Runc)).filter(|_| !kernel);
    // A runtime given by the user keeps the role that its name says, the kubelet does not.
    let role = forced.filter(|role| *role == Role::Kubelet).or(role);
    Ok(Seen { stat, role, init, program })
}

fn part_of(tell: &mut Tell, pid: u32, comm: &str, name: &str) -> io::Result<Option<Role>> {
    let arguments = arguments(tell, pid, comm)?;
    Ok(arguments.and_then(|arguments| multi_call_role(name, &arguments)))
}

/// Its command line; `None` when it may not be asked.
fn arguments(tell: &mut Tell, pid: u32, comm: &str) -> io::Result<Option<Vec<String>>> {
    let may_ask = tell.ask(pid, comm, Step::Arguments)?;
    Ok(may_ask.then(|| read::arguments(&tell.process(pid)).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink, path::Path};

    use super::*;

    /// A process of a tree of our own.
    fn process(root: &Path, pid: u32, parent: u32, program: &str, arguments: &str) {
        let dir = root.join(format!("proc/{pid}"));
        fs::create_dir_all(&dir).unwrap();
        let name: String = program.chars().take(15).collect();
        let rest = "0 ".repeat(49);
        fs::write(dir.join("stat"), format!("{pid} ({name}) S {parent} {rest}\n")).unwrap();
        fs::write(dir.join("cmdline"), arguments.replace(' ', "\0")).unwrap();
        symlink(format!("/usr/bin/{program}"), dir.join("exe")).unwrap();
    }

    /// Which of these are looked at when the node's runtime serves `/run/a.sock`, or nobody has said so.
    fn kept(shims_call: Option<&str>) -> Vec<u32> {
        let root = tempfile::tempdir().unwrap();
        let shim = "containerd-shim-runc-v2";
        process(root.path(), 1, 0, "systemd", "/sbin/init");
        process(root.path(), 10, 1, shim, "shim -namespace k8s.io -id x -address /run/a.sock");
        process(root.path(), 20, 1, shim, "shim -namespace k8s.io -id y -address /run/b.sock");
        process(root.path(), 21, 20, "runc", "runc exec y");
        process(root.path(), 30, 1, shim, "shim -id z");
        let mut tell = Tell::below(root.path(), io::sink());
        tell.order.shims_call = shims_call.map(Into::into);
        scan(&mut tell).unwrap().into_keys().collect()
    }

    /// Shims of another runtime, and what they run, are left out when the operator has named one. Those that do not say whose they
    /// are stay.
    #[test]
    fn shims_of_another_runtime_are_left_out() {
        assert_eq!(kept(Some("/run/a.sock")), [1, 10, 30]);
        assert_eq!(kept(None), [1, 10, 20, 21, 30]);
    }

    /// Whatever another user calls like a daemon of the node is none, nor is what it runs, be it stopped or not. runc is told by its
    /// parents.
    #[test]
    fn daemons_of_other_users_are_left_out() {
        let root = tempfile::tempdir().unwrap();
        for (pid, parent, program, user) in [
            (10, 1, "kubelet", 0),
            (11, 1, "kubelet", 65_534),
            (20, 1, "containerd", 65_534),
            (21, 20, "sleep", 65_534),
            (30, 1, "containerd-shim-runc-v2", 1000),
            (40, 1, "runc", 1000),
            (50, 1, "sleep", 1000),
        ] {
            process(root.path(), pid, parent, program, program);
            let status = format!("Name:\tx\nUid:\t{user}\t{user}\t{user}\t{user}\n");
            fs::write(root.path().join(format!("proc/{pid}/status")), status).unwrap();
        }
        let kept = |of_user, kubelet| {
            let mut tell = Tell::below(root.path(), io::sink());
            (tell.order.of_user, tell.order.kubelet) = (of_user, kubelet);
            scan(&mut tell).unwrap().into_keys().collect::<Vec<_>>()
        };
        assert_eq!(kept(false, None), [10, 40, 50]);
        assert_eq!(kept(false, Some(11)), [10, 11, 40, 50], "the operator says so");
        assert_eq!(kept(true, None), [10, 11, 20, 21, 30, 40, 50]);
    }
}
