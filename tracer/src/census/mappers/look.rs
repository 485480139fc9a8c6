//! Reads what [`super`] allows of `/proc`.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io,
    path::Path,
};

use super::{
    Mappers,
    holder::{Holder, Thread, holder},
};
use crate::{
    census::text::{functions, position},
    target::{namespace, read_stat, read_whole},
};

/// Texts of one thread are far below this.
const MAX_TEXT: u64 = 64 << 10;

/// Mount namespaces in which a path means what it means to us: ours, that of the node, and that of `pid`.
pub(super) fn namespaces(pid: u32) -> BTreeSet<u32> {
    let of = |name: &str| namespace(&Path::new("/proc").join(name), "mnt");
    ["self", "1", &pid.to_string()].into_iter().filter_map(of).collect()
}

/// Every thread of every mapper that may hold the memory lock.
pub(super) fn holders(proc: &Path, mappers: &Mappers) -> io::Result<Vec<Holder>> {
    let mut found = Vec::new();
    for pid in numbers(proc)? {
        let process = proc.join(pid.to_string());
        // A thread of ours is no mapper that is stuck.
        if pid == std::process::id() || !runs(&process, mappers) {
            continue;
        }
        // It may have ended meanwhile.
        for tid in numbers(&process.join("task")).unwrap_or_default() {
            found.extend(
                thread(&process.join("task").join(tid.to_string()), pid, tid).as_ref().and_then(holder),
            );
        }
    }
    Ok(found)
}

fn runs(process: &Path, mappers: &Mappers) -> bool {
    fs::read_link(process.join("exe")).is_ok_and(|exe| exe == mappers.exe)
        && namespace(process, "mnt").is_some_and(|mnt| mappers.namespaces.contains(&mnt))
}

fn thread(task: &Path, pid: u32, tid: u32) -> Option<Thread> {
    let stat = read_stat(task)?;
    let mut thread = Thread { pid, tid, comm: stat.comm, state: stat.state, ..Thread::default() };
    if matches!(thread.state, 'R' | 'Z' | 'X') {
        return Some(thread);
    }
    thread.stack = text(&task.join("stack")).map(|text| functions(&text));
    thread.at = text(&task.join("syscall")).and_then(|text| position(&text));
    thread.sleeps = text(&task.join("status")).and_then(|text| sleeps(&text)).unwrap_or(0);
    Some(thread)
}

/// `voluntary_ctxt_switches` of `status`.
fn sleeps(status: &str) -> Option<u64> {
    status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")?.trim().parse().ok())
}

fn text(path: &Path) -> Option<String> {
    let bytes = read_whole(File::open(path).ok()?, MAX_TEXT).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn numbers(dir: &Path) -> io::Result<Vec<u32>> {
    let names = fs::read_dir(dir)?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Ok(names.collect())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A process of a `/proc` that is none.
    fn process(proc: &Path, pid: u32, exe: &str, mnt: u32, stack: &str) {
        let task = proc.join(format!("{pid}/task/{pid}"));
        fs::create_dir_all(&task).unwrap();
        fs::create_dir_all(proc.join(format!("{pid}/ns"))).unwrap();
        symlink(exe, proc.join(format!("{pid}/exe"))).unwrap();
        symlink(format!("mnt:[{mnt}]"), proc.join(format!("{pid}/ns/mnt"))).unwrap();
        fs::write(task.join("stat"), format!("{pid} (x) y) D 1 1 1 {}", "0 ".repeat(40))).unwrap();
        fs::write(task.join("stack"), stack).unwrap();
        fs::write(task.join("status"), "Name:\tx\nvoluntary_ctxt_switches:\t7\n").unwrap();
    }

    /// Threads of the file are looked at; those of another one, or of a container that calls its file the same, are not.
    #[test]
    fn only_mappers_are_looked_at() {
        let proc = tempfile::tempdir().unwrap();
        let fault = "[<0>] percpu_rwsem_wait+0x1/0x2\n[<0>] exc_page_fault+0x1/0x2\n";
        let at = |pid: u32| 4_000_000_000 + pid;
        process(proc.path(), at(1), "/usr/bin/containerd", 9, fault);
        process(proc.path(), at(2), "/usr/bin/containerd", 10, fault);
        process(proc.path(), at(3), "/usr/bin/other", 9, fault);
        process(proc.path(), at(4), "/usr/bin/containerd", 9, "[<0>] ep_poll+0x1/0x2\n");
        let mappers = Mappers { exe: "/usr/bin/containerd".into(), namespaces: [9].into() };
        let found = holders(proc.path(), &mappers).unwrap();
        assert_eq!(found.iter().map(|holder| holder.pid).collect::<Vec<_>>(), [at(1)], "{found:?}");
        assert_eq!(
            found[0].to_string(),
            format!("thread {0} of x) y ({0}) is stuck in a page fault, in percpu_rwsem_wait", at(1))
        );
    }

    /// Where we run ourselves is known, and nobody in a healthy state holds us up.
    #[test]
    fn ourselves() {
        assert!(!namespaces(0).is_empty());
        assert_eq!(sleeps("voluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\n"), Some(12));
        assert!(Mappers::of_file(0, Path::new("/proc/self/exe")).is_free().is_ok());
    }
}
