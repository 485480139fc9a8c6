//! A container whose root is on a frozen file system: a real runc hangs in the kernel, plegtrace says that the file system is frozen,
//! and the container runs once it is thawed.

use anyhow::{Result, ensure};
use plegtrace::cli::Settings;
use plegtrace::diagnose::{Confidence, diagnose};

use crate::container::{Container, Rootfs};
use crate::frozen::Scratch;
use crate::observation::Observation;
use crate::stall;

/// Starts the container.
///
/// # Errors
/// When the frozen file system is not the cause, or not the only one.
pub fn run() -> Result<String> {
    let disk = Scratch::mount()?;
    let rootfs = Rootfs::make_in(disk.path())?;
    let observation = Observation::begin_with(Settings { wire: false, ..stall::settings() })?;
    let frozen = disk.freeze()?;
    // The folder is not there yet, so runc has to make it.
    let new = "type=bind,src=/var/tmp,dst=/new,options=rbind";
    let mut starts = Container::ask_with(&rootfs, "on-frozen", &["--mount", new])?;
    let snapshot = observation.ended()?;
    drop(frozen);
    starts.started()?;
    starts.remove()?;

    let diagnosis = diagnose(&snapshot);
    let named: Vec<_> = stall::named(&diagnosis).into_iter().map(|(rule, _, sure)| (rule, sure)).collect();
    ensure!(named == [("X4", Confidence::High)], "named {named:?}; {:?}", snapshot.census);
    Ok(diagnosis.findings[0].headline.clone())
}
