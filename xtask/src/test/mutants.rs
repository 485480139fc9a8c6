//! `cargo xtask test --mutants`: does the test that should notice a mistake notice it?
//!
//! A mutant is a patch in `tests/mutants` that makes the product wrong in one way that matters: it accuses the wrong process, waits
//! ten times as long, counts no loss. The lines before the patch say what is wrong, and which tests see it:
//!
//! ```text
//! The one who waits is accused, not the one who holds the lock.
//! Caught by: plegtrace diagnose::rules::r1::tests::the_holder
//! Caught by: integration diagnose::r1_needs_its_evidence
//! ```
//!
//! The first word is a package whose unit tests are meant, or `integration`. A mutant that does not apply, does not
//! compile, or is not seen by each of its tests is a failure. All happens in a copy of the checkout.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use super::runner::SEED;
use crate::build::host_cargo;
use crate::cmd;
use crate::ebpf::{Object, Want};
use crate::paths;
use crate::progress::step;

/// What introduces a test in the head of a patch.
const CAUGHT_BY: &str = "Caught by: ";
/// Where a test can be: in one of these packages, or `integration`.
const PROGRAMS: [&str; 4] = ["integration", "plegtrace", "plegtrace-common", "plegtrace-tests"];

/// A patch, and who sees it.
#[derive(Debug, PartialEq, Eq)]
struct Mutant {
    name: String,
    file: PathBuf,
    tests: Vec<Test>,
}

/// One test by its full name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Test {
    program: String,
    name: String,
}

/// Makes each mutant whose name contains `filter`, and runs its tests; how many there were, of which none survived.
///
/// # Errors
/// When one survives, or cannot be made.
pub(super) fn run(filter: &str) -> Result<usize> {
    let mutants: Vec<Mutant> = all()?.into_iter().filter(|mutant| mutant.name.contains(filter)).collect();
    ensure!(!mutants.is_empty(), "there is no mutant of that name: see tests/mutants");
    let object = Object::build(Want::WithDebugLog)?;
    let tree = paths::target().join("mutants/tree");
    copy(&tree)?;
    step("mutants", "the tests without a mutant");
    for test in mutants.iter().flat_map(|mutant| &mutant.tests).collect::<BTreeSet<_>>() {
        ensure!(passes(&tree, test, &object)?, "{} {} fails without a mutant", test.program, test.name);
    }
    let mut survived = Vec::new();
    for mutant in &mutants {
        apply(&tree, &mutant.file, &[])?;
        let missed = missed(&tree, mutant, &object);
        apply(&tree, &mutant.file, &["--reverse"])?;
        match missed.with_context(|| mutant.name.clone())? {
            missed if missed.is_empty() => {
                let by: Vec<&str> = mutant.tests.iter().map(|test| test.name.as_str()).collect();
                step("mutants", &format!("{}: caught by {}", mutant.name, by.join(", ")));
            }
            missed => {
                step("mutants", &format!("{} SURVIVED {}", mutant.name, missed.join(", ")));
                survived.push(mutant.name.as_str());
            }
        }
    }
    if !survived.is_empty() {
        bail!("of {} mutants survived: {}", mutants.len(), survived.join(", "));
    }
    Ok(mutants.len())
}

/// Every mutant applies to this checkout: what `cargo xtask check` asks.
///
/// # Errors
/// When one does not, or names no test.
pub(crate) fn check() -> Result<()> {
    for mutant in all()? {
        let mut command = Command::new("git");
        command.current_dir(paths::workspace()).args(["apply", "--check"]).arg(&mutant.file);
        cmd::output(&mut command).with_context(|| format!("mutant {} does not apply", mutant.name))?;
    }
    Ok(())
}

/// All of them, by name.
fn all() -> Result<Vec<Mutant>> {
    let dir = paths::workspace().join("tests/mutants");
    let entries = fs::read_dir(&dir).with_context(|| format!("cannot read {}", dir.display()))?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<PathBuf>>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "patch"));
    files.sort();
    let read = |file: PathBuf| {
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let tests = tests(&text).with_context(|| format!("mutant {name}"))?;
        Ok(Mutant { name, file, tests })
    };
    files.into_iter().map(read).collect()
}

/// The tests that the head of a patch names.
fn tests(text: &str) -> Result<Vec<Test>> {
    let head = text.lines().take_while(|line| !line.starts_with("diff "));
    let named = head.filter_map(|line| line.strip_prefix(CAUGHT_BY));
    let test = |line: &str| {
        let (program, name) = line.split_once(' ').context("a program and a test are needed")?;
        ensure!(PROGRAMS.contains(&program), "{program} has no tests: one of {}", PROGRAMS.join(", "));
        Ok(Test { program: program.to_owned(), name: name.trim().to_owned() })
    };
    let tests: Vec<Test> = named.map(test).collect::<Result<_>>()?;
    ensure!(!tests.is_empty(), "no line begins with `{CAUGHT_BY}`");
    Ok(tests)
}

/// Makes `tree` what this checkout is, changes that are not committed included. What is the same is not touched, so
/// that it is not compiled again.
fn copy(tree: &Path) -> Result<()> {
    let workspace = paths::workspace();
    let mut list = Command::new("git");
    list.current_dir(&workspace).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let listed = cmd::output(&mut list)?;
    let wanted: BTreeSet<&str> = listed.split('\0').filter(|name| !name.is_empty()).collect();
    for name in &wanted {
        let (from, to) = (workspace.join(name), tree.join(name));
        // A file that was deleted and not committed is still listed.
        let Ok(bytes) = fs::read(&from) else { continue };
        if fs::read(&to).is_ok_and(|old| old == bytes) {
            continue;
        }
        fs::create_dir_all(to.parent().unwrap_or(tree))?;
        fs::write(&to, bytes).with_context(|| format!("cannot write {}", to.display()))?;
    }
    remove_others(tree, tree, &wanted)
}

fn remove_others(tree: &Path, dir: &Path, wanted: &BTreeSet<&str>) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.strip_prefix(tree).unwrap_or(&path).to_string_lossy().into_owned();
        if path.is_dir() {
            remove_others(tree, &path, wanted)?;
        } else if !wanted.contains(name.as_str()) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

fn apply(tree: &Path, patch: &Path, options: &[&str]) -> Result<()> {
    let mut command = Command::new("git");
    // The copy lies in a checkout, and is none itself.
    command.current_dir(tree).env("GIT_CEILING_DIRECTORIES", tree.parent().unwrap_or(tree));
    cmd::output(command.arg("apply").args(options).arg(patch)).map(drop)
}

/// The tests of a mutant that pass all the same.
fn missed(tree: &Path, mutant: &Mutant, object: &Object) -> Result<Vec<String>> {
    let mut missed = Vec::new();
    for test in &mutant.tests {
        if passes(tree, test, object)? {
            missed.push(test.name.clone());
        }
    }
    Ok(missed)
}

/// Does this test pass? That it does not compile, or is not there, is an error and no answer.
fn passes(tree: &Path, test: &Test, object: &Object) -> Result<bool> {
    let cargo = || {
        let mut command = host_cargo();
        command.current_dir(tree).envs(object.envs()).args(["test", "--quiet"]);
        // The gate is what should catch it.
        command.env(SEED.0, SEED.1);
        // Of what is not debugged no information is written, and what runs one test is not optimised: both would be most of the work.
        command.env("CARGO_PROFILE_DEV_DEBUG", "0").env("CARGO_TARGET_DIR", tree.with_file_name("build"));
        // Each mutant changes a line or two, also where CI compiles everything once.
        command.env("CARGO_INCREMENTAL", "1");
        command.args(["--config", "profile.dev.package.plegtrace.opt-level=0"]);
        match test.program.as_str() {
            "integration" => command.args(["-p", "plegtrace-tests", "--test", "integration"]),
            package => command.args(["-p", package, "--lib"]),
        };
        command
    };
    let log = tree.with_file_name("log");
    cmd::run_logged(cargo().arg("--no-run"), &log)?;
    let status = cmd::logged(cargo().args(["--", "--exact", &test.name]), &log)?;
    let said = fs::read_to_string(&log)?;
    ensure!(said.contains("running 1 test"), "there is no test {} in {}", test.name, test.program);
    Ok(status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes before the patch names the tests; without one there is nothing to run.
    #[test]
    fn heads() {
        let patch =
            "Why.\nCaught by: plegtrace a::b\nCaught by: integration c\ndiff --git a b\n+Caught by: d e\n";
        let test = |program: &str, name: &str| Test { program: program.into(), name: name.into() };
        assert_eq!(super::tests(patch).unwrap(), [test("plegtrace", "a::b"), test("integration", "c")]);
        assert!(super::tests("Why.\ndiff --git a b\n").is_err());
        assert!(super::tests("Caught by: integration\n").is_err());
        assert!(super::tests("Caught by: unit a::b\n").is_err(), "there is no such package");
    }
}
