//! containerd's database on a disk that takes half a second for each write, and on a good one to which its cgroup may write only twice a
//! second: the kubelet waits for the removal of images, and plegtrace says which of the two it is.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use plegtrace::cli::Settings;
use plegtrace::correlate::Snapshot;
use plegtrace::diagnose::{Confidence, Finding, Verdict, diagnose};

use crate::cri::Client;
use crate::feature::Feature;
use crate::images::Images;
use crate::kernel::KernelVersion;
use crate::kubelet::Kubelet;
use crate::machine::Containerd;
use crate::observation::Observation;
use crate::stall::{self, WATCHDOG};
use crate::undo::Undo;
use crate::wait::{self, BUDGET};

/// So many removals at once: each takes two commits or more, and they queue for one lock, for half a minute. Where no probe tells when one
/// began, its first ten seconds begin at the look that found it.
const IMAGES: usize = 16;
/// The third disk of the guest, which QEMU holds back, and the one with everything else.
const SLOW: &str = "/dev/vdc";
const GOOD: &str = "/dev/vda";
const UNIT: &str = "containerd.service";
const GROUP: &str = "/sys/fs/cgroup/system.slice/containerd.service";
const DATABASE: &str = "/var/lib/containerd/io.containerd.metadata.v1.bolt";

/// A disk that is busy with each write (X2).
///
/// # Errors
/// When the disk is not named, or not busy.
pub fn busy() -> Result<String> {
    let images = Images::import(IMAGES)?;
    let moved = onto_slow_disk()?;
    let containerd = Containerd::running()?;
    let (kubelet, snapshot) = observed(&images)?;
    drop((kubelet, moved));
    let finding = named(&snapshot, containerd)?;
    ensure!(finding.also == ["X2"], "{finding:?}");
    used(&finding, "vdc")
}

/// A limit of the cgroup, which the disk knows nothing of.
///
/// # Errors
/// When the disk is said to be busy, or the cgroup is not named.
pub fn held_back() -> Result<String> {
    let images = Images::import(IMAGES)?;
    limit("2")?;
    let limited = Undo::within(WATCHDOG, "containerd was held back", || drop(limit("infinity")));
    let (kubelet, snapshot) = observed(&images)?;
    drop(limited);
    kubelet.answered()?;
    let finding = named(&snapshot, Containerd::running()?)?;
    let limited = format!("cgroup {GROUP} lets no more than 2 writes a second through to disk vda");
    let is_named = finding.evidence.iter().any(|evidence| evidence.text == limited);
    let headline = format!("cgroup {GROUP} holds back what containerd writes for pods");
    ensure!(finding.also.is_empty() && is_named && finding.headline.starts_with(&headline), "{finding:?}");
    used(&finding, "vda")
}

/// What is seen while a kubelet has the images removed: by the handlers of containerd where all of them are probed, else on the sockets.
fn observed(images: &Images) -> Result<(Kubelet, Snapshot)> {
    let mut kubelet = Kubelet::start(images.names())?;
    let uprobes = KernelVersion::running()? >= Feature::UprobeMulti.since();
    // It is no Go program: only whoever starts plegtrace can know what it is.
    let kubelet_pid = Some(kubelet.pid());
    let settings = Settings { uprobes, parks: uprobes, kubelet_pid, ..stall::settings() };
    let observation = Observation::begin_with(settings)?;
    kubelet.ask()?;
    Ok((kubelet, observation.ended()?))
}

/// The only finding: containerd's disk is slow.
fn named(snapshot: &Snapshot, containerd: Containerd) -> Result<Finding> {
    let mut diagnosis = diagnose(snapshot);
    let named = stall::named(&diagnosis);
    let wanted = [("R2", Some(containerd.pid), Confidence::High)];
    ensure!(
        diagnosis.verdict == Verdict::Stall && named == wanted,
        "{:?}, named {named:?}: {:?}; {:?}; {:?}",
        diagnosis.verdict,
        diagnosis.reasons,
        snapshot.census.disk,
        snapshot.census.requests
    );
    Ok(diagnosis.findings.remove(0))
}

/// What the finding says of this disk.
fn used(finding: &Finding, disk: &str) -> Result<String> {
    let begin = format!("disk {disk} completed ");
    let mut texts = finding.evidence.iter().map(|evidence| evidence.text.clone());
    texts.find(|text| text.starts_with(&begin)).with_context(|| format!("nothing of {disk}: {finding:?}"))
}

/// Has containerd keep its database on the slow disk until what is returned is dropped.
fn onto_slow_disk() -> Result<Undo> {
    systemctl(&["stop", UNIT])?;
    let back = Undo::within(WATCHDOG, "containerd was on a slow disk", || {
        drop(systemctl(&["stop", UNIT]));
        drop(wait::output(Command::new("umount").arg(DATABASE), BUDGET));
        drop(systemctl(&["start", UNIT]));
    });
    let database = fs::read(Path::new(DATABASE).join("meta.db")).context("containerd has no database")?;
    // Nothing but the database is to be written.
    let options = "noatime,noinit_itable";
    wait::output(Command::new("mount").args(["-o", options, SLOW, DATABASE]), BUDGET)?;
    fs::write(Path::new(DATABASE).join("meta.db"), database)?;
    systemctl(&["start", UNIT])?;
    wait::until("the CRI socket", BUDGET, || Client::connect().map(Some))?;
    Ok(back)
}

/// So many writes a second may come from containerd's cgroup.
fn limit(writes: &str) -> Result<()> {
    systemctl(&["set-property", "--runtime", UNIT, &format!("IOWriteIOPSMax={GOOD} {writes}")])
}

fn systemctl(arguments: &[&str]) -> Result<()> {
    wait::output(Command::new("systemctl").args(arguments), BUDGET).map(drop)
}
