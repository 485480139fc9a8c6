//! No memory for compiled seccomp filters (`net.core.bpf_jit_limit`): a real runc cannot create a container that loads one,
//! plegtrace says why, be it so before it comes or from then on, and the container is made once the limit is as it was.

use std::fs;
use std::time::Duration;

use anyhow::{Result, ensure};
use plegtrace::cli::Settings;
use plegtrace::correlate::Snapshot;
use plegtrace::diagnose::{Confidence, Severity, diagnose};

use crate::container::{Container, Rootfs};
use crate::observation::{ENDLESS, Observation, Seen};
use crate::stall::{self, WATCHDOG};
use crate::undo::Undo;

const LIMIT: &str = "/proc/sys/net/core/bpf_jit_limit";
/// Two looks of the census.
const OBSERVED: Duration = Duration::from_secs(12);

/// Takes the memory away before plegtrace comes, and while it is there.
///
/// # Errors
/// When that is not named, or something else is.
pub fn run() -> Result<String> {
    let rootfs = Rootfs::make()?;
    let settings = |duration| Settings { wire: false, to_the_end: true, duration, ..stall::settings() };
    let none_left = none_left()?;
    let observation = Observation::begin_with(settings(ENDLESS))?;
    refused(&rootfs)?;
    let headline = only(&seen_by(observation)?)?;
    drop(none_left);
    let observation = Observation::begin_with(settings(ENDLESS))?;
    let mut starts = filtered(&rootfs, "filtered")?;
    starts.started()?;
    starts.remove()?;
    let none_left = self::none_left()?;
    refused(&rootfs)?;
    only(&seen_by(observation)?)?;
    drop(none_left);
    let after = diagnose(&Observation::begin_with(settings(OBSERVED))?.ended()?);
    ensure!(after.findings.is_empty(), "{:?} when there was memory again", stall::named(&after));
    Ok(headline)
}

/// From now on there is none, until what is returned is dropped or for some time.
fn none_left() -> Result<Undo> {
    let usual = fs::read_to_string(LIMIT)?;
    fs::write(LIMIT, "1")?;
    Ok(Undo::within(WATCHDOG, "no filter could be loaded", move || drop(fs::write(LIMIT, usual))))
}

/// A container with the profile that is usual; its process gets no new privileges.
fn filtered(rootfs: &Rootfs, id: &str) -> Result<Container> {
    Container::ask_with(rootfs, id, &["--seccomp"])
}

/// What an observation says that has asked the kernel since.
fn seen_by(observation: Observation) -> Result<Snapshot> {
    let refused = |seen: &Seen| seen.filters_refused > 0;
    Ok(observation.until("the census to see that no filter is taken", refused)?.end()?.0)
}

fn refused(rootfs: &Rootfs) -> Result<()> {
    let made = filtered(rootfs, "refused")?.started();
    ensure!(made.is_err(), "runc has made a container with a filter");
    Ok(())
}

/// The headline of the only finding.
fn only(snapshot: &Snapshot) -> Result<String> {
    let diagnosis = diagnose(snapshot);
    let named = stall::named(&diagnosis);
    let seen = (snapshot.census.round.as_ref().map(|round| &round.seccomp), &snapshot.processes.rows);
    ensure!(named == [("U11", None, Confidence::High)], "named {named:?}; {seen:?}");
    let finding = &diagnosis.findings[0];
    ensure!(finding.severity == Severity::Notice, "{finding:?}");
    ensure!(finding.headline.contains("net.core.bpf_jit_limit"), "{finding:?}");
    Ok(finding.headline.clone())
}
