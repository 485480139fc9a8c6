//! A security agent that must permit each open of a container's files, and does not answer: a real `runc init` hangs in execve,
//! plegtrace names the agent, and the container runs once that is gone.

use anyhow::Result;
use plegtrace::cli::Settings;

use crate::agent::Guarded;
use crate::container::{Container, Rootfs};
use crate::observation::Observation;
use crate::stall;

/// Starts the container.
///
/// # Errors
/// When the agent is not named, or something else is.
pub fn run() -> Result<String> {
    let files = Guarded::mount()?;
    let rootfs = Rootfs::make_in(files.path())?;
    let observation = Observation::begin_with(Settings { wire: false, ..stall::settings() })?;
    let (agent, guarded) = files.guard()?;
    let mut starts = Container::ask(&rootfs, "guarded")?;
    let snapshot = observation.ended()?;
    drop(guarded);
    starts.started()?;
    starts.remove()?;
    stall::only(&snapshot, "X11", agent)
}
