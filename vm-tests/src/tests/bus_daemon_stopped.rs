//! A bus daemon that is stopped by a signal: a real runc waits for it, plegtrace names the daemon, and everything goes on once
//! it runs again.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use crate::container::{Container, Rootfs};
use crate::observation::Observation;
use crate::stall::{self, WATCHDOG};
use crate::undo::Undo;
use crate::wait::{self, BUDGET};

/// The programs that serve the system bus.
const DAEMONS: [&str; 2] = ["dbus-daemon", "dbus-broker"];

/// Stops the daemon while a container is about to start.
///
/// # Errors
/// When the daemon is not named, or something else is.
pub fn run() -> Result<String> {
    let rootfs = Rootfs::make()?;
    let pid = daemon()?;
    let observation = Observation::begin_with(stall::settings())?;
    let stopped = stop(pid)?;
    let mut waits = Container::ask(&rootfs, "waits")?;
    let snapshot = observation.ended()?;
    drop(stopped);
    waits.started()?;
    waits.remove()?;
    stall::only(&snapshot, "D14", pid)
}

/// The process that serves the system bus.
fn daemon() -> Result<u32> {
    let entries = fs::read_dir("/proc")?;
    let mut pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let is_daemon = |pid: &u32| {
        let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        DAEMONS.contains(&comm.trim_end())
    };
    pids.find(is_daemon).context("no process serves the system bus")
}

/// Has a process not run until what is returned is dropped, or for some time.
fn stop(pid: u32) -> Result<Undo> {
    signal(pid, libc::SIGSTOP)?;
    let go_on = move || signal(pid, libc::SIGCONT).expect("what was stopped can go on");
    let stopped = Undo::within(WATCHDOG, "the bus daemon was stopped", go_on);
    let stat = Path::new("/proc").join(pid.to_string()).join("stat");
    wait::until("the bus daemon to stop", BUDGET, || {
        Ok(fs::read_to_string(&stat)?.contains(") T ").then_some(()))
    })?;
    Ok(stopped)
}

fn signal(pid: u32, signal: libc::c_int) -> Result<()> {
    // SAFETY: no memory is involved.
    let sent = unsafe { libc::kill(libc::pid_t::try_from(pid)?, signal) };
    ensure!(sent == 0, "cannot signal {pid}: {}", std::io::Error::last_os_error());
    Ok(())
}
