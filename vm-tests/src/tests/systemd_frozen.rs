//! A systemd whose cgroup is frozen: a real runc waits for it, plegtrace says so and names process 1, whether it was there before or
//! comes when that runc waits, and everything goes on once it is thawed.

use std::fs;

use anyhow::{Context as _, Result};

use crate::container::{Container, Rootfs};
use crate::observation::Observation;
use crate::stall::{self, WATCHDOG};
use crate::undo::Undo;
use crate::wait::{self, BUDGET};

/// The freezer of systemd's own cgroup.
const FREEZER: &str = "/sys/fs/cgroup/init.scope/cgroup.freeze";
const EVENTS: &str = "/sys/fs/cgroup/init.scope/cgroup.events";

/// Freezes systemd while a container is about to start.
///
/// # Errors
/// When systemd is not named, or something else is.
pub fn run() -> Result<String> {
    let rootfs = Rootfs::make()?;
    // Before anything is frozen, all works.
    let mut first = Container::ask(&rootfs, "first")?;
    first.started()?;
    first.remove()?;
    let observation = Observation::begin_with(stall::settings())?;
    let frozen = freeze()?;
    let mut waits = Container::ask(&rootfs, "waits")?;
    let early = observation.ended()?;
    let late = Observation::begin_with(stall::settings())?.ended()?;
    drop(frozen);
    waits.started()?;
    waits.remove()?;
    stall::only(&early, "D13", 1)?;
    stall::only(&late, "D13", 1).map(|headline| format!("{headline}, also late"))
}

/// Has systemd not run until what is returned is dropped, or for some time.
fn freeze() -> Result<Undo> {
    fs::write(FREEZER, "1").with_context(|| format!("cannot write {FREEZER}"))?;
    let thaw = || fs::write(FREEZER, "0").expect("what was frozen can be thawed");
    let frozen = Undo::within(WATCHDOG, "systemd was frozen", thaw);
    wait::until("systemd to be frozen", BUDGET, || {
        Ok(fs::read_to_string(EVENTS)?.contains("frozen 1").then_some(()))
    })?;
    Ok(frozen)
}
