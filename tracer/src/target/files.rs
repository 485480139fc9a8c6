//! Whose files a path means. In a container that has only the node's process ids, `/` is the container's own; the node's files,
//! its cgroups and its sockets are where the node's processes are.

use std::{
    fs, io,
    os::fd::AsFd as _,
    path::{Path, PathBuf},
};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::namespace;

/// The first of these processes whose mount namespace can be read, if that is not ours: the node's files are seen through
/// it.
#[must_use]
pub fn elsewhere(pids: impl IntoIterator<Item = u32>) -> Option<u32> {
    first(Path::new("/proc"), pids)
}

/// Are the mounts of a process others than ours? `None` when that cannot be read.
#[must_use]
pub fn is_apart(pid: u32) -> Option<bool> {
    let proc = Path::new("/proc");
    Some(namespace(&proc.join("self"), "mnt")? != namespace(&of(proc, pid), "mnt")?)
}

fn first(proc: &Path, pids: impl IntoIterator<Item = u32>) -> Option<u32> {
    let own = namespace(&proc.join("self"), "mnt")?;
    let mut known = pids.into_iter().filter_map(|pid| Some((pid, namespace(&of(proc, pid), "mnt")?)));
    known.next().filter(|(_, its)| *its != own).map(|(pid, _)| pid)
}

fn of(proc: &Path, pid: u32) -> PathBuf {
    proc.join(pid.to_string())
}

/// The root of the files that a process sees; our own for `None`.
#[must_use]
pub fn root_of(pid: Option<u32>) -> PathBuf {
    pid.map_or_else(|| PathBuf::from("/"), |pid| of(Path::new("/proc"), pid).join("root"))
}

/// Moves this process, which must have one thread, to where `pid` is: its mounts, its network, its cgroups. From there on each
/// path and each socket means what it means to that process.
///
/// # Errors
///
/// The kernel refuses it: that takes CAP_SYS_ADMIN, CAP_SYS_CHROOT and CAP_SYS_PTRACE (setns(2)).
pub fn enter(pid: u32) -> io::Result<()> {
    let proc = Path::new("/proc");
    let spaces = [
        ("net", LinkNameSpaceType::Network),
        ("cgroup", LinkNameSpaceType::ControlGroup),
        // The last: from there on `/proc` is another one.
        ("mnt", LinkNameSpaceType::Mount),
    ];
    for (kind, space) in spaces {
        if namespace(&of(proc, pid), kind) != namespace(&proc.join("self"), kind) {
            let there = fs::File::open(of(proc, pid).join("ns").join(kind))?;
            move_into_link_name_space(there.as_fd(), Some(space))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// The first whose namespace can be read decides; only another number is another namespace.
    #[test]
    fn who_is_elsewhere() {
        let proc = tempfile::tempdir().unwrap();
        for (pid, number) in [("self", 7), ("20", 7), ("30", 8)] {
            fs::create_dir_all(proc.path().join(pid).join("ns")).unwrap();
            symlink(format!("mnt:[{number}]"), proc.path().join(pid).join("ns/mnt")).unwrap();
        }
        assert_eq!(first(proc.path(), [1, 20, 30]), None);
        assert_eq!(first(proc.path(), [1, 30, 20]), Some(30));
        assert_eq!(first(proc.path(), [1]), None);
    }
}
