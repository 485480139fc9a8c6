//! The guest is what we think it is: systemd as process 1, ourselves root, cgroups mounted.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

/// Looks at process 1, our user and the cgroup mount.
///
/// # Errors
/// When one of them is not as expected.
pub fn run() -> Result<String> {
    let init = fs::read_to_string("/proc/1/comm").context("cannot read the name of process 1")?;
    ensure!(init.trim() == "systemd", "process 1 is {:?}, not systemd", init.trim());
    // SAFETY: geteuid has no preconditions and cannot fail.
    let user = unsafe { libc::geteuid() };
    ensure!(user == 0, "running as user {user}, not root");
    let unified = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    ensure!(unified || Path::new("/sys/fs/cgroup/memory").exists(), "no cgroups under /sys/fs/cgroup");
    let release =
        fs::read_to_string("/proc/sys/kernel/osrelease").context("cannot read the kernel's release")?;
    Ok(format!("Linux {}, cgroup v{}", release.trim(), if unified { 2 } else { 1 }))
}
