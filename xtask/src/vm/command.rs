//! The command: selection → images, payload, guests → table.

use std::collections::BTreeSet;
use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;

use super::accel::Accel;
use super::daily;
use super::guest;
use super::image::{self, Found, Image};
use super::payload::{self, Mode};
use super::qemu::Machine;
use super::suites::{self, Suite};
use super::verdict::{self, Counts, Report, Word};
use crate::build::Statics;
use crate::lanes::in_lanes;
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
    #[arg(long, default_value_t = BUDGET.as_secs(), value_name = "SECONDS")]
    budget: u64,
}

/// What all tests may take in a guest, twice what they take when nothing else runs; and those of a day.
const BUDGET: Duration = Duration::from_secs(1800);
const DAILY: Duration = Duration::from_secs(900);

/// What to run.
#[derive(Debug, Clone)]
pub(crate) struct Selection {
    suites: Vec<Suite>,
    /// Only the tests whose name contains this.
    test: Option<String>,
    /// Of each guest only what it is asked every day.
    daily: bool,
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
        Ok(Self { suites: suites::select(kernels)?, test, daily: false, refresh, budget })
    }

    /// The guests.
    pub(super) fn suites(&self) -> &[Suite] {
        &self.suites
    }

    /// Everything on every guest; or only what each is asked every day.
    pub(crate) fn all(daily: bool) -> Self {
        let budget = if daily { DAILY } else { BUDGET };
        Self { suites: suites::ALL.to_vec(), test: None, daily, refresh: false, budget }
    }

    /// Which tests run in a guest, by parts of their names; `None`: all.
    fn tests_of(&self, suite: &Suite) -> Option<String> {
        if self.daily { Some(daily::tests(suite).join(",")) } else { self.test.clone() }
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
    /// The number of different tests that ran in some guest, or would have in one that is declared to be missing.
    pub(crate) different: usize,
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
    Ok(Summary { counts, different: different(&reports) })
}

fn different(reports: &[(String, Report)]) -> usize {
    let ran = reports.iter().flat_map(|(_, report)| &report.tests).filter(|test| test.word != Word::Skip);
    let ran = ran.map(|test| test.name.as_str());
    let is_missing = |suite: &&Suite| {
        reports.iter().any(|(guest, report)| guest.starts_with(suite.name) && report.skipped.is_some())
    };
    let missing: Vec<&str> = suites::ALL.iter().filter(is_missing).flat_map(daily::tests).collect();
    ran.chain(missing).collect::<BTreeSet<&str>>().len()
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
    Ok(in_lanes(&selection.suites, lanes(), |suite| {
        let disk = logs().join(format!("{}.payload.ext4", suite.name));
        let mode = Mode::Tests(selection.tests_of(suite));
        match payload::disk(&binary, &mode, &disk) {
            Ok(()) => one(*suite, image::get(*suite, selection.refresh), selection, &disk),
            Err(error) => one(*suite, Err(error), selection, &disk),
        }
    }))
}

/// How many guests run at once: emulation keeps one processor busy for each most of the time.
fn lanes() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
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
    use super::super::verdict::TestResult;
    use super::*;

    /// Every day each guest is asked for its part, else for all.
    #[test]
    fn guests_have_their_parts() {
        let asked = |daily: bool| {
            let selection = Selection::all(daily);
            suites::ALL.map(|suite| selection.tests_of(&suite))
        };
        assert_eq!(asked(false), [const { None }; 4]);
        let parts = asked(true).map(Option::unwrap);
        assert!(parts.iter().all(|part| part.starts_with("boots,")), "{parts:?}");
        assert_eq!(parts.iter().filter(|part| part.contains("slow_unmount")).count(), 1);
    }

    /// What is skipped in every guest has run in none; what a missing guest would have run is not lost.
    #[test]
    fn different_tests_are_counted() {
        let of = |name: &str, word| TestResult { word, name: name.to_owned(), text: String::new() };
        let report = |tests| Report { tests, ..Report::default() };
        let reports = [
            ("bullseye 5.10".to_owned(), report(vec![of("boots", Word::Pass), of("multi", Word::Skip)])),
            ("bookworm 6.1".to_owned(), report(vec![of("boots", Word::Fail), of("multi", Word::Skip)])),
        ];
        assert_eq!(different(&reports), 1);
        let missing = [("sid 7".to_owned(), Report::skipped("no mirror".to_owned()))];
        assert_eq!(different(&missing), daily::tests(&suites::ALL[3]).len());
    }
}
