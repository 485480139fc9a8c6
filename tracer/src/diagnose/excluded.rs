//! What was looked at and is not the cause. Only what a source has really looked at is said.

use super::{Area, Finding, Scene, evidence::in_syscall, held_off::waiting_share};
use crate::{
    correlate::{ProcessSeen, thresholds::RUNC_NS},
    input::{Command, Component},
    words::human::{count, duration},
};

/// Something that is not the cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excluded {
    /// What.
    pub what: &'static str,
    /// How that is known.
    pub why: String,
}

/// Calls in which a thread waits for the disk.
const DISK: [&str; 5] = ["fsync", "fdatasync", "sync", "syncfs", "umount2"];

/// Everything that this snapshot excludes.
pub(super) fn find(scene: &Scene<'_>, findings: &[Finding]) -> Vec<Excluded> {
    let blamed = |area: Area| findings.iter().any(|finding| finding.rule.area == area);
    let mut found = Vec::new();
    // A runc that waits for the bus is no more than that.
    if !blamed(Area::Runc) && !blamed(Area::Bus) {
        found.extend(runc(scene));
    }
    if !blamed(Area::Cni) {
        found.extend(cni(scene));
    }
    found.extend(disk(scene));
    if !blamed(Area::Overload) {
        found.extend(pressure(scene));
    }
    found
}

/// The processes of the last look; `None` when nobody looked, or not at all of them.
fn seen<'a>(scene: &Scene<'a>) -> Option<&'a [ProcessSeen]> {
    let census = &scene.snapshot.census;
    census.round.as_ref().filter(|round| !round.cut).map(|_| census.processes.as_slice())
}

fn runc(scene: &Scene<'_>) -> Option<Excluded> {
    let all = seen(scene)?.iter().filter(|seen| seen.fact.component == Component::Runc);
    let age =
        |seen: &ProcessSeen| seen.fact.started_ns.map(|start| scene.snapshot.now.0.saturating_sub(start));
    let ages: Vec<Option<u64>> = all.map(age).collect();
    let young = ages.iter().all(|age| age.is_some_and(|age| age <= RUNC_NS));
    let why = match ages.len() {
        0 => "none runs".to_owned(),
        _ => format!("none older than {}", duration(RUNC_NS)),
    };
    young.then_some(Excluded { what: "runc", why })
}

fn cni(scene: &Scene<'_>) -> Option<Excluded> {
    let is_cni = |seen: &ProcessSeen| matches!(seen.fact.command, Some(Command::Cni { .. }));
    let runs = seen(scene)?.iter().any(is_cni);
    (!runs).then(|| Excluded { what: "a network plugin", why: "none runs".to_owned() })
}

/// All tasks of the node that wanted to run waited for a disk for more than this share of the last ten seconds, hundredths of a
/// percent: whether one of them matters to somebody here is not known.
const DISK_PRESSURE: u32 = 4000;

/// Whoever works for a pod may wait for the disk: kubelet, runtime, shims, and the runc of a shim.
fn disk(scene: &Scene<'_>) -> Option<Excluded> {
    let is_alive = |seen: &&ProcessSeen| seen.fact.state != 'Z';
    let own = |seen: &&ProcessSeen| {
        let component = seen.fact.component;
        let serves = matches!(component, Component::Kubelet | Component::Shim | Component::Conmon);
        serves || component.role().is_runtime()
    };
    let all: Vec<&ProcessSeen> = seen(scene)?.iter().filter(is_alive).filter(own).collect();
    // Without their system calls nothing is known.
    let read = !all.is_empty() && all.iter().all(|seen| !seen.fact.parked.is_empty());
    let works = |seen: &&ProcessSeen| seen.fact.component == Component::Runc;
    let mut all = all.into_iter().chain(seen(scene)?.iter().filter(works));
    let waits = all.any(|seen| in_syscall(&seen.fact.parked, &DISK).is_some());
    let io = scene.snapshot.census.round.as_ref().and_then(|round| round.pressure);
    let is_short = io.is_some_and(|pressure| pressure.io_full_avg10 >= DISK_PRESSURE);
    let why = match io {
        Some(pressure) => {
            format!("no daemon in fsync or umount, pressure {} %", percent(pressure.io_full_avg10))
        }
        None => "no daemon in fsync or umount".to_owned(),
    };
    (read && !waits && !is_short).then_some(Excluded { what: "disk", why })
}

/// More than this share of the last ten seconds somebody waited for a processor, hundredths of a percent.
pub(super) const CPU_PRESSURE: u32 = 4000;

/// A daemon that is held off for this share of the time, in percent, may owe its trouble to that.
const HELD_OFF: u64 = 5;

/// Others may lack processors without any daemon suffering from it, and a daemon may have a quota of its own.
fn pressure(scene: &Scene<'_>) -> Option<Excluded> {
    let cpu = scene.snapshot.census.round.as_ref()?.pressure?.cpu_some_avg10;
    let held = scene.snapshot.cpu.daemons.iter().filter_map(waiting_share).max();
    let pressure = format!("pressure {} %", percent(cpu));
    let why = match held {
        Some(share) => format!("kubelet and runtime waited {share} % of the time, {pressure}"),
        None => pressure,
    };
    let is_short = cpu >= CPU_PRESSURE || held.is_some_and(|share| share >= HELD_OFF);
    (!is_short).then_some(Excluded { what: "CPU", why })
}

/// Hundredths of a percent as percent.
pub(super) fn percent(hundredths: u32) -> String {
    format!("{}.{:02}", count(u64::from(hundredths / 100)), hundredths % 100)
}
