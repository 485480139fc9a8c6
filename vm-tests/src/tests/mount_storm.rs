//! A systemd that only reads the mount table: a real runc waits for it, plegtrace says that it is busy, and everything goes on once the
//! table is quiet.

use anyhow::Result;
use plegtrace::cli::Settings;

use crate::container::{Container, Rootfs};
use crate::mount_storm::Storm;
use crate::observation::{ENDLESS, Observation, Seen};
use crate::stall;

/// As on a node with some hundred pods.
const MOUNTS: usize = 200;
/// A call must be older than this before anybody is blamed, and that somebody is busy takes some time to be seen.
const LOOKED_NS: u64 = 7_000_000_000;

/// Changes the mount table while a container is about to start.
///
/// # Errors
/// When systemd is not named, or something else is.
pub fn run() -> Result<String> {
    let rootfs = Rootfs::make()?;
    let observation =
        Observation::begin_with(Settings { to_the_end: true, duration: ENDLESS, ..stall::settings() })?;
    let storm = Storm::start(MOUNTS)?;
    let mut waits = Container::ask(&rootfs, "waits")?;
    let looked = |seen: &Seen| {
        let looks = (seen.systemd_looks.first(), seen.systemd_looks.last());
        matches!(looks, (Some(first), Some(last)) if last - first >= LOOKED_NS)
    };
    let (snapshot, _) = observation.until("systemd to be looked at", looked)?.end()?;
    drop(storm);
    waits.started()?;
    waits.remove()?;
    stall::only(&snapshot, "D2", 1)
}
