//! A systemd whose cgroup is frozen: a real runc waits for it, plegtrace says so and names process 1, and everything goes on
//! once it is thawed.

use std::fs;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use plegtrace::census;
use plegtrace::cli::{Attach, Settings};
use plegtrace::diagnose::{Confidence, Verdict, diagnose};

use crate::container::{Container, Rootfs};
use crate::observation::{self, Observation};
use crate::wait::{self, BUDGET};

/// The freezer of systemd's own cgroup.
const FREEZER: &str = "/sys/fs/cgroup/init.scope/cgroup.freeze";
const EVENTS: &str = "/sys/fs/cgroup/init.scope/cgroup.events";
/// Whatever hangs, systemd goes on after this time.
const WATCHDOG: Duration = Duration::from_secs(80);
/// plegtrace ends as soon as it has found something, at last after this time.
const OBSERVED: Duration = Duration::from_secs(60);

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
    let settings = Settings {
        uprobes: false,
        parks: false,
        wire: true,
        census: true,
        census_program: Some(census::this_program()),
        duration: OBSERVED,
        to_the_end: false,
        ..observation::settings(Attach::Auto)
    };
    let observation = Observation::begin_with(settings)?;
    let frozen = Frozen::begin()?;
    let mut waits = Container::ask(&rootfs, "waits")?;
    let snapshot = observation.ended()?;
    drop(frozen);
    waits.started()?;
    waits.remove()?;

    let diagnosis = diagnose(&snapshot);
    ensure!(diagnosis.verdict == Verdict::Stall, "{:?}: {:?}", diagnosis.verdict, diagnosis.doubts);
    let named: Vec<_> = diagnosis
        .findings
        .iter()
        .map(|finding| {
            (finding.rule.id, finding.culprit.as_ref().and_then(|culprit| culprit.pid), finding.confidence)
        })
        .collect();
    ensure!(named == [("D13", Some(1), Confidence::High)], "named {named:?}; {:?}", snapshot.bus);
    Ok(diagnosis.findings[0].headline.clone())
}

/// A systemd that does not run until this is dropped, or for some time.
struct Frozen {
    thaw: Option<Sender<()>>,
    watchdog: Option<JoinHandle<()>>,
}

impl Frozen {
    fn begin() -> Result<Self> {
        fs::write(FREEZER, "1").with_context(|| format!("cannot write {FREEZER}"))?;
        let (thaw, dropped) = mpsc::channel();
        let run = move || {
            if dropped.recv_timeout(WATCHDOG) == Err(RecvTimeoutError::Timeout) {
                eprintln!("systemd was frozen for too long");
            }
            fs::write(FREEZER, "0").expect("what was frozen can be thawed");
        };
        let frozen = Self { thaw: Some(thaw), watchdog: Some(thread::spawn(run)) };
        wait::until("systemd to be frozen", BUDGET, || {
            Ok(fs::read_to_string(EVENTS)?.contains("frozen 1").then_some(()))
        })?;
        Ok(frozen)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.thaw = None;
        if let Some(watchdog) = self.watchdog.take() {
            drop(watchdog.join());
        }
    }
}
