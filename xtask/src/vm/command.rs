//! The command: selection → images, payload, guests → table.

use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;

use super::accel::Accel;
use super::guest;
use super::image::{self, Found, Image};
use super::payload::{self, Mode};
use super::qemu::Machine;
use super::suites::{self, Suite};
use super::verdict::{self, Counts, Report};
use crate::build::Statics;
use crate::progress::step;
use crate::{cmd, paths, setup};

/// Options of `cargo xtask vm`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Guest by Debian release or kernel version: bullseye (5.10), bookworm (6.1), trixie (6.12), sid (7); repeatable
    #[arg(long, value_name = "NAME")]
    kernel: Vec<String>,
    /// Run only the tests whose name contains this
    #[arg(long, value_name = "NAME")]
    test: Option<String>,
    /// Open a shell in one guest instead (needs --kernel)
    #[arg(long)]
    shell: bool,
    /// Make the images anew
    #[arg(long)]
    refresh: bool,
    /// Seconds after which a guest has failed
    #[arg(long, default_value_t = 540, value_name = "SECONDS")]
    budget: u64,
}

/// What to run.
#[derive(Debug, Clone)]
pub(crate) struct Selection {
    suites: Vec<Suite>,
    test: Option<String>,
    refresh: bool,
    budget: Duration,
}

/// A figure per program.
pub(crate) type Figures = Vec<(String, u64)>;

/// One guest's outcome.
struct Ran {
    guest: String,
    report: Report,
    stats: Figures,
}

impl Selection {
    /// Checks names before anything is built.
    ///
    /// # Errors
    /// When a guest is unknown or the test's name is not a plain word.
    pub(crate) fn new(
        kernels: &[String],
        test: Option<String>,
        refresh: bool,
        budget: Duration,
    ) -> Result<Self> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        ensure!(
            test.as_deref().is_none_or(|word| !word.is_empty() && word.chars().all(plain)),
            "a test's name has letters, digits and underscores only"
        );
        Ok(Self { suites: suites::select(kernels)?, test, refresh, budget })
    }

    /// The guests.
    pub(super) fn suites(&self) -> &[Suite] {
        &self.suites
    }

    /// Everything on every guest.
    pub(crate) fn all() -> Self {
        Self { suites: suites::ALL.to_vec(), test: None, refresh: false, budget: Duration::from_secs(540) }
    }
}

/// Runs the command.
///
/// # Errors
/// When a guest fails or cannot be made.
pub(crate) fn run(options: &Options) -> Result<()> {
    let budget = Duration::from_secs(options.budget);
    let selection = Selection::new(&options.kernel, options.test.clone(), options.refresh, budget)?;
    if options.shell {
        return shell(&selection);
    }
    let Counts { passed, failed, skipped } = run_all(&selection)?.counts;
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    if failed > 0 {
        bail!("{failed} failed: consoles and outputs are in {}", logs().display());
    }
    Ok(())
}

/// What the table says as a whole.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Summary {
    pub(crate) counts: Counts,
    /// The number of tests in the guest that reported fewest; 0 when no guest ran.
    pub(crate) fewest: usize,
}

/// Runs the guests, prints the table and returns the counts. A guest that cannot be made is a failure of that guest; the
/// others still run.
///
/// # Errors
/// When the tools or the payload are missing.
pub(crate) fn run_all(selection: &Selection) -> Result<Summary> {
    let ran = guests(selection)?;
    let mut counts = Counts::default();
    ran.iter().for_each(|one| counts += one.report.counts());
    let reports: Vec<(String, Report)> = ran.into_iter().map(|one| (one.guest, one.report)).collect();
    print!("{}", verdict::table(&reports));
    let ran = reports.iter().filter(|(_, report)| report.skipped.is_none());
    let fewest = ran.map(|(_, report)| report.tests.len()).min().unwrap_or(0);
    Ok(Summary { counts, fewest })
}

/// The figures that guests print about programs (`VM-STAT`), by guest.
///
/// # Errors
/// As [`run_all`], and when a guest fails.
pub(crate) fn stats(selection: &Selection) -> Result<Vec<(String, Figures)>> {
    let ran = guests(selection)?;
    if let Some(bad) = ran.iter().find(|one| one.report.counts().failed > 0) {
        bail!("{} failed: its console and output are in {}", bad.guest, logs().display());
    }
    Ok(ran.into_iter().map(|one| (one.guest, one.stats)).collect())
}

fn guests(selection: &Selection) -> Result<Vec<Ran>> {
    setup::vm_tools()?;
    let binary = Statics::build()?.vm_tests;
    fs::create_dir_all(logs()).with_context(|| format!("cannot create {}", logs().display()))?;
    let disk = logs().join("payload.ext4");
    payload::disk(&binary, &Mode::Tests(selection.test.clone()), &disk)?;
    Ok(in_lanes(&selection.suites, lanes(), |suite| {
        one(*suite, image::get(*suite, selection.refresh), selection, &disk)
    }))
}

/// How many guests run at once: emulation keeps one processor busy for each most of the time.
fn lanes() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// Does the work on all items, so many at once; results in the order of the items.
fn in_lanes<T: Sync, R: Send>(items: &[T], lanes: usize, work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let lane = || {
        let taken = std::iter::from_fn(|| {
            let index = next.fetch_add(1, Ordering::Relaxed);
            Some((index, items.get(index)?))
        });
        taken.map(|(index, item)| (index, work(item))).collect::<Vec<_>>()
    };
    let mut done: Vec<(usize, R)> = thread::scope(|scope| {
        let lanes: Vec<_> = (0..lanes.clamp(1, items.len().max(1))).map(|_| scope.spawn(lane)).collect();
        lanes.into_iter().flat_map(|lane| lane.join().expect("a guest's thread does not panic")).collect()
    });
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

/// One guest; whatever goes wrong is its own failure, and the others still run.
fn one(suite: Suite, found: Result<Found>, selection: &Selection, disk: &Path) -> Ran {
    let guest = format!("{} {}", suite.name, suite.kernel);
    let (report, stats) = match found {
        Ok(Found::Image(image)) => boot(suite, image, selection, disk)
            .unwrap_or_else(|error| (Report::broken(format!("{error:#}")), Vec::new())),
        Ok(Found::Gone(reason)) => (Report::skipped(reason), Vec::new()),
        Err(error) => (Report::broken(format!("{error:#}")), Vec::new()),
    };
    Ran { report: report.held_to(&guest, suite.kernel), guest, stats }
}

fn boot(suite: Suite, image: Image, selection: &Selection, disk: &Path) -> Result<(Report, Figures)> {
    let accel = Accel::detect(&image)?;
    let console = logs().join(format!("{}.console.log", suite.name));
    let machine = Machine { image, payload: disk.to_path_buf(), accel, console };
    step("vm", &format!("{}: starting", suite.name));
    let transcript =
        guest::run(&machine, selection.budget, |line| step("vm", &format!("{}: {line}", suite.name)))?;
    let log = logs().join(format!("{}.output.log", suite.name));
    fs::write(&log, transcript.lines.join("\n") + "\n")
        .with_context(|| format!("cannot write {}", log.display()))?;
    Ok((Report::read(&transcript), verdict::stats(&transcript.lines)))
}

/// A shell on the guest's second serial port, on our own terminal.
fn shell(selection: &Selection) -> Result<()> {
    let [suite] = selection.suites[..] else { bail!("a shell needs one guest: add --kernel NAME") };
    setup::vm_tools()?;
    let binary = Statics::build()?.vm_tests;
    let disk = logs().join("payload-shell.ext4");
    fs::create_dir_all(logs()).with_context(|| format!("cannot create {}", logs().display()))?;
    payload::disk(&binary, &Mode::Shell, &disk)?;
    let image = match image::get(suite, selection.refresh)? {
        Found::Image(image) => image,
        Found::Gone(reason) => bail!("{}: {reason}", suite.name),
    };
    let accel = Accel::detect(&image)?;
    let console = logs().join(format!("{}.console.log", suite.name));
    let machine = Machine { image, payload: disk, accel, console };
    step("vm", "a shell comes up in half a minute; `exit` powers the guest off");
    cmd::run(&mut machine.command())
}

fn logs() -> PathBuf {
    paths::target().join("vm-logs")
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    /// Two run at once, all are done, the order is kept.
    #[test]
    fn lanes_keep_the_order() {
        let both = Barrier::new(2);
        let twice = |item: &u32| {
            both.wait();
            2 * item
        };
        assert_eq!(in_lanes(&[1, 2, 3, 4], 2, twice), [2, 4, 6, 8]);
        assert_eq!(in_lanes(&[5], 9, |item| item + 1), [6]);
        assert_eq!(in_lanes(&[] as &[u32], 3, |item| *item), [0; 0]);
    }
}
