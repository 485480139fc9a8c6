//! A systemd that reloads units which take long to read: a real runc waits for it, plegtrace says with what it is busy, and everything goes on when it
//! is done.

use std::time::Duration;

use anyhow::Result;
use plegtrace::cli::Settings;

use crate::container::{Container, Rootfs};
use crate::observation::{ENDLESS, Observation, Seen};
use crate::reload::Units;
use crate::stall;

/// For a container to be started up to its call, and for that to be judged, on the slowest guest.
const RELOAD: Duration = Duration::from_secs(23);
/// A call is looked at when it is a second old, and nobody is blamed before it is five.
const LOOKED_NS: u64 = 4_500_000_000;

/// Has systemd reload while a container is about to start.
///
/// # Errors
/// When systemd is not named, or something else is.
pub fn run() -> Result<String> {
    let rootfs = Rootfs::make()?;
    let units = Units::for_a_reload_of(RELOAD)?;
    let observation =
        Observation::begin_with(Settings { to_the_end: true, duration: ENDLESS, ..stall::settings() })?;
    let mut reload = units.reload()?;
    let mut waits = Container::ask(&rootfs, "waits")?;
    let looked = |seen: &Seen| {
        let looks = (seen.systemd_looks.first(), seen.systemd_looks.last());
        matches!(looks, (Some(first), Some(last)) if last - first >= LOOKED_NS)
    };
    let (snapshot, _) = observation.until("systemd to be looked at", looked)?.end()?;
    let headline = stall::only(&snapshot, "D10", 1)?;
    reload.wait()?;
    // Beside builds, runc's call to systemd 252 was answered twice by the bus: "Message recipient disconnected". Who asks once the
    // reload is over must be served.
    if waits.started().is_err() {
        drop(waits);
        waits = Container::ask(&rootfs, "asks-again")?;
        waits.started()?;
    }
    waits.remove()?;
    Ok(headline)
}
