//! What plegtrace itself uses.

use procfs::process::Process;

/// Resident memory now and at its highest, bytes; 0 where /proc does not say.
#[must_use]
pub fn own_memory() -> (u64, u64) {
    let status = Process::myself().and_then(|me| me.status());
    let kib = |value: Option<u64>| value.unwrap_or(0) * 1024;
    status.map_or((0, 0), |s| (kib(s.vmrss), kib(s.vmhwm)))
}
