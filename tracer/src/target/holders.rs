//! Who holds a socket. A name can be anybody's; a socket on which somebody listens is held by whoever answers there.

use std::{collections::BTreeSet, fs, fs::File, path::Path};

use super::{cmdline, process::read_whole, unix_sockets::unix_sockets};

/// Bytes of a table of sockets; what is longer tells nothing of who does not listen.
const MAX_TABLE: u64 = 4 << 20;
/// Descriptors of one process that are looked at.
const MAX_DESCRIPTORS: usize = 8192;

/// Does the process hold a socket on which it listens at this path? `None` when that cannot be told.
pub(super) fn listens_at(proc: &Path, pid: u32, path: &Path) -> Option<bool> {
    let dir = proc.join(pid.to_string());
    let table = table(&dir.join("net/unix"))?;
    let at_path = |name: &String| cmdline::socket(name).is_some_and(|bound| is_bound_to(&bound, path));
    let listeners = unix_sockets(&table).into_iter().filter(|socket| socket.listening);
    let inodes = listeners.filter(|socket| socket.name.as_ref().is_some_and(at_path));
    holds_any(&dir, &inodes.map(|socket| socket.inode).collect())
}

/// Does this path lead to the name that was bound? The kernel keeps that name, and a link may lead to it.
pub(super) fn is_bound_to(bound: &Path, path: &Path) -> bool {
    bound == path || fs::canonicalize(path).is_ok_and(|real| real == bound)
}

/// A table of `/proc/PID/net`; `None` when it cannot be read, or not whole.
pub(super) fn table(path: &Path) -> Option<String> {
    let bytes = read_whole(File::open(path).ok()?, MAX_TABLE).ok()?;
    ((bytes.len() as u64) < MAX_TABLE).then(|| String::from_utf8_lossy(&bytes).into_owned())
}

/// Does the process whose directory in `/proc` this is hold one of these sockets? The links wait for nothing (proc(5)).
pub(super) fn holds_any(dir: &Path, inodes: &BTreeSet<u64>) -> Option<bool> {
    if inodes.is_empty() {
        return Some(false);
    }
    let entries = fs::read_dir(dir.join("fd")).ok()?;
    let mut looked = 0;
    for entry in entries.take(MAX_DESCRIPTORS) {
        looked += 1;
        let Some(link) = entry.ok().and_then(|entry| fs::read_link(entry.path()).ok()) else { continue };
        if socket(&link).is_some_and(|inode| inodes.contains(&inode)) {
            return Some(true);
        }
    }
    (looked < MAX_DESCRIPTORS).then_some(false)
}

/// The number in `socket:[20001]`.
fn socket(link: &Path) -> Option<u64> {
    link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}
