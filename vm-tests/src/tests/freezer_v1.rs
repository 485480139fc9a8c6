//! A container whose init is about to become the container's program, while the freezer of version 1 holds one of its threads: the
//! execve waits for a thread that cannot end, and the cgroup does not come to be frozen. plegtrace names it, and the container runs
//! once it is thawed.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use plegtrace::cli::Settings;

use crate::bundle::Bundle;
use crate::container::{PROGRAM, Rootfs};
use crate::freezer::{Group, Hierarchy};
use crate::observation::Observation;
use crate::stall::{self, WATCHDOG};
use crate::undo::Undo;
use crate::wait::{self, BUDGET};

/// Freezes it.
///
/// # Errors
/// When the init is not named, or something else is.
pub fn run() -> Result<String> {
    let freezer = Hierarchy::mount()?;
    let rootfs = Rootfs::make()?;
    let bundle = Bundle::create(&rootfs)?;
    let init = bundle.init()?;
    let (whole, part) = (freezer.group("whole")?, freezer.group("whole/part")?);
    whole.admit_process(init)?;
    part.admit_thread(idle_thread(init)?)?;
    let thawed = Undo::within(WATCHDOG, "a container was frozen", {
        let (whole, part) = (whole.clone(), part.clone());
        move || drop(whole.thaw().and_then(|()| part.thaw()))
    });
    let observation = Observation::begin_with(Settings { wire: false, ..stall::settings() })?;
    held(&bundle, init, &whole, &part)?;
    let snapshot = observation.ended()?;
    drop(thawed);
    wait::until("the container to run", BUDGET, || {
        let program = fs::read_link(process(init).join("exe"))?;
        Ok((program.file_name() == Path::new(PROGRAM).file_name()).then_some(()))
    })?;
    drop(bundle);
    part.remove()?;
    whole.remove()?;
    stall::only(&snapshot, "U3", init)
}

/// One thread is frozen, the init waits for its end in execve, and then all are to be frozen.
fn held(bundle: &Bundle, init: u32, whole: &Group, part: &Group) -> Result<()> {
    part.begin_freezing()?;
    part.is("FROZEN")?;
    bundle.start()?;
    wait::until("an execve that waits", BUDGET, || {
        let call = fs::read_to_string(process(init).join("syscall"))?;
        let is_execve = call.split(' ').next() == Some(&libc::SYS_execve.to_string());
        Ok(is_execve.then_some(()))
    })?;
    whole.begin_freezing()?;
    whole.is("FREEZING")
}

/// The first thread after the main one: of a Go program the one that only watches the others.
fn idle_thread(pid: u32) -> Result<u32> {
    let threads = fs::read_dir(process(pid).join("task"))?;
    let numbers = threads.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(|thread| *thread != pid).min().context("the init has one thread")
}

fn process(pid: u32) -> PathBuf {
    Path::new("/proc").join(pid.to_string())
}
