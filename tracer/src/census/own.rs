//! What plegtrace itself uses, and whether a process is there.

use std::{collections::HashSet, fs, path::Path};

use procfs::process::Process;

use crate::target::unix_sockets;

/// More sockets are not read.
const MAX_SOCKETS: usize = 60_000;

/// Resident memory now and at its highest, bytes; 0 where /proc does not say.
#[must_use]
pub fn own_memory() -> (u64, u64) {
    let status = Process::myself().and_then(|me| me.status());
    let kib = |value: Option<u64>| value.unwrap_or(0) * 1024;
    status.map_or((0, 0), |s| (kib(s.vmrss), kib(s.vmhwm)))
}

/// Resident memory of a process at its highest, bytes; 0 where /proc does not say.
pub(super) fn peak_memory(pid: u32) -> u64 {
    let status = i32::try_from(pid).ok().and_then(|pid| Process::new(pid).and_then(|it| it.status()).ok());
    status.and_then(|status| status.vmhwm).unwrap_or(0) * 1024
}

/// Is there a process with this id (a zombie counts)? Looks its directory up, which waits for nothing.
#[must_use]
pub fn exists(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

/// Inode numbers of the unix sockets in the network namespace of a process; `None` when they cannot be read, or
/// are too many. The kernel answers from memory.
#[must_use]
pub fn unix_sockets_of(pid: u32) -> Option<HashSet<u64>> {
    let text = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("net/unix")).ok()?;
    if text.lines().count() > MAX_SOCKETS {
        return None;
    }
    Some(unix_sockets(&text).into_iter().map(|socket| socket.inode).collect())
}

#[cfg(test)]
mod tests {
    use std::os::{fd::AsRawFd as _, unix::net::UnixStream};

    use super::*;

    /// A connection is there until it is closed.
    #[test]
    fn sockets_are_there_until_they_are_closed() {
        let (one, other) = UnixStream::pair().unwrap();
        let link = fs::read_link(format!("/proc/self/fd/{}", one.as_raw_fd())).unwrap();
        let number = link.to_str().and_then(|link| link.strip_prefix("socket:[")?.strip_suffix(']')).unwrap();
        let number: u64 = number.parse().unwrap();
        let is_there = || unix_sockets_of(std::process::id()).unwrap().contains(&number);
        assert!(is_there());
        drop((one, other));
        assert!(!is_there());
        assert_eq!(unix_sockets_of(u32::MAX), None);
    }
}
