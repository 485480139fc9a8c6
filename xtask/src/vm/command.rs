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
use super::gate;
use super::guest;
use super::image::{self, Found, Image};
use super::packages;
use super::payload::{self, File, Mode};
use super::qemu::Machine;
use super::suites::{self, Suite};
use super::verdict::{self, Counts, Report, Word};
use crate::build::{self, Profile};
use crate::ebpf::Want;
use crate::lanes::in_lanes;
use crate::progress::step;
use crate::test::{FailedTest, Failure, Outcome, WHOLE, moment};
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
    /// Install a release instead: dpkg -i, use it, restart, use it again, dpkg -P
    #[arg(long, conflicts_with_all = ["test", "shell"])]
    packages: bool,
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

/// What all tests may take in a guest, twice what they take when nothing else runs; and those that a change has to pass.
const BUDGET: Duration = Duration::from_secs(1800);
const SOON: Duration = Duration::from_secs(600);

/// How the part of a failure begins that happened in a guest; its name follows.
pub(crate) const PART: &str = "guest ";

/// What to run.
#[derive(Debug, Clone)]
pub(crate) struct Selection {
    suites: Vec<Suite>,
    /// Only the tests whose name contains this, or one of these, which commas separate.
    test: Option<String>,
    refresh: bool,
    budget: Duration,
    packages: bool,
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
        Ok(Self { suites: suites::select(kernels)?, test, refresh, budget, packages: false })
    }

    /// The guests.
    pub(super) fn suites(&self) -> &[Suite] {
        &self.suites
    }

    /// Everything on every guest, or what a change has to pass; of either only the tests whose name contains one of the words.
    pub(crate) fn of_tier(everything: bool, words: &[String]) -> Self {
        let plain = |word: &&String| word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let words: Vec<&str> = words.iter().filter(plain).map(String::as_str).collect();
        let named = (!words.is_empty()).then(|| words.join(","));
        let (suites, test, budget) = match everything {
            true => (suites::ALL.to_vec(), named, BUDGET),
            false => (gate::suites(), Some(named.unwrap_or_else(|| gate::TESTS.join(","))), SOON),
        };
        Self { suites, test, refresh: false, budget, packages: false }
    }
}

/// Runs the command.
///
/// # Errors
/// When a guest fails or cannot be made.
pub(crate) fn run(options: &Options) -> Result<()> {
    let budget = Duration::from_secs(options.budget);
    let mut selection = Selection::new(&options.kernel, options.test.clone(), options.refresh, budget)?;
    selection.packages = options.packages;
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

/// Runs the guests, prints the table and returns what came of it. A guest that cannot be made is a failure of that guest; the
/// others still run. Tests are counted once, however many guests ran them.
///
/// # Errors
/// When the tools or the payload are missing.
pub(crate) fn run_all(selection: &Selection) -> Result<Outcome> {
    let ran = guests(selection)?;
    let reports: Vec<(String, Report)> = ran.into_iter().map(|one| (one.guest, one.report)).collect();
    eprint!("{}", verdict::table(&reports));
    Ok(outcome(&reports))
}

/// A release in each guest, as [`run_all`].
///
/// # Errors
/// When the release cannot be made, or the tools are missing.
pub(crate) fn install_everywhere() -> Result<Outcome> {
    run_all(&Selection { packages: true, ..Selection::of_tier(true, &[]) })
}

fn outcome(reports: &[(String, Report)]) -> Outcome {
    let mut outcome = Outcome { tests: different(reports), ..Outcome::default() };
    for (guest, report) in reports {
        outcome.counts += report.counts();
        let word = guest.split(' ').next().unwrap_or_default();
        let failed = report.tests.iter().filter(|test| test.word == Word::Fail);
        let failed = failed.map(|test| FailedTest { name: test.name.clone(), said: test.text.clone() });
        let broken =
            report.broken.iter().map(|said| FailedTest { name: WHOLE.to_owned(), said: said.clone() });
        let logs =
            ["output", "console"].map(|kind| logs().join(format!("{word}.{kind}.log")).display().to_string());
        outcome.failed.extend(failed.chain(broken).map(|test| {
            println!("FAILED {PART}{word} {}: {}", test.name, test.said);
            Failure { part: format!("{PART}{word}"), test, moment: moment(), logs: logs.to_vec() }
        }));
        outcome.skips.extend(report.skipped.iter().map(|reason| format!("{guest}: {reason}")));
    }
    outcome
}

/// One test in one guest once more.
///
/// # Errors
/// When there is no such guest, or it cannot be made.
pub(crate) fn again(guest: &str, test: &str) -> Result<Outcome> {
    run_all(&Selection::new(&[guest.to_owned()], Some(test.to_owned()), false, SOON)?)
}

/// The number of different tests that ran in some guest; of a guest that is declared to be missing, those of the gate count.
fn different(reports: &[(String, Report)]) -> usize {
    let ran = reports.iter().flat_map(|(_, report)| &report.tests).filter(|test| test.word != Word::Skip);
    let ran = ran.map(|test| test.name.as_str());
    let missing = reports.iter().filter(|(_, report)| report.skipped.is_some()).flat_map(|_| gate::TESTS);
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
    let (files, script) = if selection.packages {
        packages::made()?
    } else {
        let tests = File { name: payload::TESTS, from: vm_tests()? };
        (vec![tests], payload::script(&Mode::Tests(selection.test.clone())))
    };
    fs::create_dir_all(logs()).with_context(|| format!("cannot create {}", logs().display()))?;
    // The newest takes longest: begun last, it would run alone at the end.
    let newest_first: Vec<Suite> = selection.suites.iter().rev().copied().collect();
    let mut ran = in_lanes(&newest_first, lanes(), |suite| {
        let disk = logs().join(format!("{}.payload.ext4", suite.name));
        match payload::disk(&files, &script, &disk) {
            Ok(()) => one(*suite, image::get(*suite, selection.refresh), selection, &disk),
            Err(error) => one(*suite, Err(error), selection, &disk),
        }
    });
    ran.reverse();
    Ok(ran)
}

/// Builds the tests of the guests, with the product.
fn vm_tests() -> Result<PathBuf> {
    build::build(Profile::Release, Want::Shipped)?;
    Ok(build::vm_tests())
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
    let machine =
        Machine { image, payload: disk.to_path_buf(), accel, restarts: selection.packages, console };
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
    let binary = vm_tests()?;
    let disk = logs().join("payload-shell.ext4");
    fs::create_dir_all(logs()).with_context(|| format!("cannot create {}", logs().display()))?;
    let tests = File { name: payload::TESTS, from: binary };
    payload::disk(&[tests], &payload::script(&Mode::Shell), &disk)?;
    let image = match image::get(suite, selection.refresh)? {
        Found::Image(image) => image,
        Found::Gone(reason) => bail!("{}: {reason}", suite.name),
    };
    let accel = Accel::detect(&image)?;
    let console = logs().join(format!("{}.console.log", suite.name));
    let machine = Machine { image, payload: disk, accel, restarts: false, console };
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

    /// A change is asked little, in three guests; by name one may ask for anything.
    #[test]
    fn what_guests_are_asked() {
        let of = |everything, words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            let selection = Selection::of_tier(everything, &words);
            (selection.suites.len(), selection.test)
        };
        assert_eq!(of(true, &[]), (4, None));
        assert_eq!(of(false, &[]), (3, Some(gate::TESTS.join(","))));
        assert_eq!(of(true, &["boots", "a::b", "bus"]), (4, Some("boots,bus".to_owned())));
    }

    /// A failure names its guest, so that it can be asked again there; a guest that broke has failed as a whole.
    #[test]
    fn failures_name_their_guest() {
        let of = |word, name: &str, text: &str| TestResult { word, name: name.into(), text: text.into() };
        let reports = [
            (
                "bullseye 5.10".to_owned(),
                Report { tests: vec![of(Word::Fail, "bus", "no")], ..Report::default() },
            ),
            ("sid 7".to_owned(), Report::broken("no verdict".into())),
        ];
        let outcome = outcome(&reports);
        assert_eq!(outcome.counts, Counts { passed: 0, failed: 2, skipped: 0 });
        let failed: Vec<(&str, &str, &str)> = outcome
            .failed
            .iter()
            .map(|it| (it.part.as_str(), it.test.name.as_str(), it.test.said.as_str()))
            .collect();
        assert_eq!(failed, [("guest bullseye", "bus", "no"), ("guest sid", WHOLE, "no verdict")]);
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
        assert_eq!(different(&missing), gate::TESTS.len());
    }
}
