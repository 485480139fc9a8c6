//! A container with a mount from a FUSE file system that does not answer: a real runc hangs in the kernel, plegtrace names the
//! process that serves it, and everything goes on once that is gone.

use anyhow::{Result, ensure};
use plegtrace::cli::Settings;

use crate::container::{Container, Rootfs};
use crate::fuse::Dead;
use crate::observation::Observation;
use crate::stall;

/// Starts the container.
///
/// # Errors
/// When the server of the file system is not named, or something else is.
pub fn run() -> Result<String> {
    let rootfs = Rootfs::make()?;
    let dead = Dead::mount()?;
    let observation = Observation::begin_with(Settings { wire: false, ..stall::settings() })?;
    let mount = format!("type=bind,src={},dst=/tmp,options=rbind", dead.file().display());
    let mut starts = Container::ask_with(&rootfs, "dead-mount", &["--mount", &mount])?;
    let snapshot = observation.ended()?;
    let server = dead.server();
    drop(dead);
    // There is no such file, it turns out.
    ensure!(starts.started().is_err(), "a container runs without its mount");
    stall::only(&snapshot, "X6", server)
}
