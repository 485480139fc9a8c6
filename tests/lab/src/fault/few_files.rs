//! A process that has as many files open as it may have (O5).

use std::collections::BTreeSet;
use std::{fs, io, ptr};

use anyhow::{Context as _, Result, ensure};

use super::guard::{Facts, Fault};
use crate::process;

/// Lowers the limit of a process to the first number that is free, so that it gets no descriptor any more.
///
/// # Errors
///
/// The process is gone.
pub fn no_more_files(pid: u32) -> Result<Fault> {
    let identity = process::identity(pid);
    let names = fs::read_dir(format!("/proc/{pid}/fd")).context("cannot list descriptors")?;
    let open: BTreeSet<u64> =
        names.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    let free = (0..).find(|number| !open.contains(number)).context("no number is free")?;
    let before = limit(pid, None)?;
    limit(pid, Some(libc::rlimit { rlim_cur: free, ..before }))?;
    let facts = Facts { culprits: vec![pid], ..Facts::default() };
    Ok(Fault::new(facts).healed_by(move || {
        if process::identity(pid) == identity {
            limit(pid, Some(before))?;
        }
        Ok(())
    }))
}

/// The limit of open files as it was; sets another one if there is one.
fn limit(pid: u32, new: Option<libc::rlimit>) -> Result<libc::rlimit> {
    let mut old = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let new = new.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: two valid places, or none.
    let done = unsafe { libc::prlimit(pid.cast_signed(), libc::RLIMIT_NOFILE, new, &raw mut old) };
    ensure!(done == 0, "cannot change the limit of {pid}: {}", io::Error::last_os_error());
    Ok(old)
}
