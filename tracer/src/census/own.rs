//! What plegtrace itself uses, and whether a process is there.

use std::path::Path;

use procfs::process::Process;

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
