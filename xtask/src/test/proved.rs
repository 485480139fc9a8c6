//! [`Proved`]: `tests/PROVED.md`, what passed when `cargo xtask test --all` ran it last, on which commit. The whole takes hours: what has
//! passed on this very checkout is not run again, and the gate says what of it is older than the code.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::{Context as _, Result};

use super::margins::Margins;
use super::outcome::Outcome;
use crate::vm::Counts;
use crate::{cmd, paths};

/// The table; no part of what is tested.
const TABLE: &str = "tests/PROVED.md";

const HEAD: &str = "\
# What was proved, and when

Written by `cargo xtask test --all`, never by hand: how each part went when it was run last, on which day and commit (`+`: with changes
that were not committed), and git's name of the tree. `cargo xtask test` runs a small part of this, and says which rows are older than
the code they prove.

| part | tests | passed | failed | skipped | seconds | day | commit | tree |
|---|---|---|---|---|---|---|---|---|
";

const MARGINS: &str = "
## Times and sizes

Margins, not assertions: `--all` fails on one that breaks its limit *and* is worse than it used to be here.

";

/// See the module.
pub(super) struct Proved {
    file: PathBuf,
    /// Git's tree of everything in the checkout, changes that are not committed included.
    tree: String,
    commit: String,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default, PartialEq)]
struct Seen {
    rows: BTreeMap<String, Row>,
    margins: Margins,
}

/// How a part went.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    tests: usize,
    counts: Counts,
    seconds: u64,
    /// UTC.
    day: String,
    commit: String,
    tree: String,
}

impl Proved {
    /// What is known.
    ///
    /// # Errors
    /// When git does not say what is in the checkout.
    pub(super) fn open() -> Result<Self> {
        let workspace = paths::workspace();
        let tree = tree(&workspace, &paths::target().join("proved.index"))?;
        let git = |words: &[&str]| cmd::output(Command::new("git").current_dir(&workspace).args(words));
        let dirty = if git(&["status", "--porcelain", "--", ".", &format!(":!{TABLE}")])?.is_empty() {
            ""
        } else {
            "+"
        };
        let commit = format!("{}{dirty}", git(&["rev-parse", "--short", "HEAD"])?.trim());
        let file = workspace.join(TABLE);
        let seen = Seen::read(&fs::read_to_string(&file).unwrap_or_default());
        Ok(Self { file, tree, commit, seen: Mutex::new(seen) })
    }

    /// How this part went, if it has passed on this checkout.
    pub(super) fn passed(&self, part: &str) -> Option<Outcome> {
        let seen = self.lock();
        let row = seen.rows.get(part).filter(|row| row.tree == self.tree && row.counts.failed == 0)?;
        Some(Outcome { counts: row.counts, tests: row.tests, ..Outcome::default() })
    }

    /// Writes down a part that began at `begin`; gives what it measured that was better before.
    ///
    /// # Errors
    /// When it cannot be written down.
    pub(super) fn note(&self, part: &str, outcome: &Outcome, begin: Instant) -> Result<Vec<String>> {
        let day = cmd::output(Command::new("date").args(["--utc", "+%F"]))?.trim().to_owned();
        let mut seen = self.lock();
        let worse = seen.margins.add(&outcome.margins);
        let mut counts = outcome.counts;
        counts.failed += worse.len();
        let (commit, tree) = (self.commit.clone(), self.tree.clone());
        let row = Row { tests: outcome.tests, counts, seconds: begin.elapsed().as_secs(), day, commit, tree };
        seen.rows.insert(part.to_owned(), row);
        let text = seen.text();
        fs::write(&self.file, text).with_context(|| format!("cannot write {}", self.file.display()))?;
        Ok(worse)
    }

    /// Takes out what is no part any more.
    ///
    /// # Errors
    /// When it cannot be written down.
    pub(super) fn keep_only(&self, parts: &BTreeSet<String>) -> Result<()> {
        let mut seen = self.lock();
        seen.rows.retain(|part, _| parts.contains(part));
        fs::write(&self.file, seen.text()).with_context(|| format!("cannot write {}", self.file.display()))
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seen {
    fn text(&self) -> String {
        let mut text = HEAD.to_owned();
        for (part, row) in &self.rows {
            let Row { tests, counts: Counts { passed, failed, skipped }, seconds, day, commit, tree } = row;
            let _ = writeln!(
                text,
                "| {part} | {tests} | {passed} | {failed} | {skipped} | {seconds} | {day} | {commit} | {tree} |"
            );
        }
        let sum = |of: fn(&Row) -> usize| self.rows.values().map(of).sum::<usize>();
        let (passed, failed) = (sum(|row| row.counts.passed), sum(|row| row.counts.failed));
        let skipped = sum(|row| row.counts.skipped);
        let _ = writeln!(text, "\nAll: {passed} passed, {failed} failed, {skipped} skipped.");
        text + MARGINS + &self.margins.table()
    }

    fn read(text: &str) -> Self {
        let row = |line: &str| {
            let cells: Vec<&str> = line.strip_prefix("| ")?.split('|').map(str::trim).collect();
            let [part, tests, passed, failed, skipped, seconds, day, commit, tree, _] = cells[..] else {
                return None;
            };
            let number = |cell: &str| cell.parse().ok();
            let counts =
                Counts { passed: number(passed)?, failed: number(failed)?, skipped: number(skipped)? };
            let (day, commit, tree) = (day.to_owned(), commit.to_owned(), tree.to_owned());
            let row =
                Row { tests: number(tests)?, counts, seconds: seconds.parse().ok()?, day, commit, tree };
            Some((part.to_owned(), row))
        };
        Self { rows: text.lines().filter_map(row).collect(), margins: Margins::read(text) }
    }

    /// A sentence about how old all of it is but what was `ran` just now; `changed` says which files differ from a commit, `None` when
    /// it is not known.
    fn age(&self, ran: &BTreeSet<String>, changed: impl Fn(&str) -> Option<Vec<String>>) -> String {
        let rows: BTreeMap<&String, &Row> =
            self.rows.iter().filter(|(part, _)| !ran.contains(*part)).collect();
        let Some(last) = rows.values().max_by_key(|row| &row.day) else {
            return format!("everything else: never proved; `cargo xtask test --all` writes {TABLE}");
        };
        let commits: BTreeSet<&str> = rows.values().map(|row| row.commit.as_str()).collect();
        let changed: BTreeMap<&str, Option<Vec<String>>> =
            commits.into_iter().map(|commit| (commit, changed(commit.trim_end_matches('+')))).collect();
        let is_older = |(part, row): &(&&String, &&Row)| match &changed[row.commit.as_str()] {
            Some(files) => files.iter().any(|file| proves(part, file)),
            None => true,
        };
        let older: Vec<&str> = rows.iter().filter(is_older).map(|(part, _)| short(part)).collect();
        let failed: Vec<&str> =
            rows.iter().filter(|(_, row)| row.counts.failed > 0).map(|(part, _)| short(part)).collect();
        let passed: usize = rows.values().map(|row| row.counts.passed).sum();
        let list = |names: &[&str]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        format!(
            "everything else: {passed} passed in {} parts, the last on {} at {}; failed: {}; older than the code they prove: {} of {} \
             ({})",
            rows.len(),
            last.day,
            last.commit,
            list(&failed),
            older.len(),
            rows.len(),
            list(&older),
        )
    }
}

/// What `tests/PROVED.md` says, in a line for whoever `ran` only these parts.
pub(super) fn sentence(ran: &BTreeSet<String>) -> String {
    let workspace = paths::workspace();
    let text = fs::read_to_string(workspace.join(TABLE)).unwrap_or_default();
    Seen::read(&text).age(ran, |commit| {
        let mut git = Command::new("git");
        let names = cmd::output(git.current_dir(&workspace).args(["diff", "--name-only", commit])).ok()?;
        Some(names.lines().map(str::to_owned).collect())
    })
}

/// Does a change of this file make a result of this part old?
fn proves(part: &str, file: &str) -> bool {
    if file.ends_with(".md") || file.ends_with(".txt") {
        return false;
    }
    let product = ["tracer/", "tracer-common/", "tracer-ebpf/", "Cargo.lock"];
    let is_below = |places: &[&str]| places.iter().any(|place| file.starts_with(place));
    if part.starts_with("plegtrace-lab-") {
        return is_below(&["tests/lab/"]);
    }
    if part == "packages" && is_below(&["xtask/src/dist/", "xtask/src/vm/"]) {
        return true;
    }
    if part == "guests" {
        return is_below(&product) || is_below(&["vm-tests/", "xtask/src/vm/"]);
    }
    if is_below(&product) || is_below(&["tests/lab/src/", "tests/src/"]) {
        return true;
    }
    // Of tests of the lab its own module counts; of all else, every test.
    let module =
        part.strip_prefix("plegtrace-tests-lab-").or_else(|| part.split_once("::").map(|(module, _)| module));
    match module {
        Some(module) => {
            is_below(&[&format!("tests/tests/lab/{module}.rs"), &format!("tests/tests/lab/{module}/")])
        }
        None => is_below(&["tests/"]),
    }
}

/// A part without the name of its package.
fn short(part: &str) -> &str {
    part.strip_prefix("plegtrace-tests-").unwrap_or(part)
}

/// Git's name of all that is in a checkout, but for the table; `index` is a file that may be written meanwhile.
fn tree(checkout: &Path, index: &Path) -> Result<String> {
    // One that is left of an earlier run would be compared with every file.
    let _ = fs::remove_file(index);
    let git = |words: &[&str]| {
        let mut git = Command::new("git");
        cmd::output(git.current_dir(checkout).env("GIT_INDEX_FILE", index).args(words))
    };
    git(&["add", "--all"])?;
    git(&["rm", "--cached", "--quiet", "--ignore-unmatch", TABLE])?;
    let name = git(&["write-tree"])?;
    let _ = fs::remove_file(index);
    Ok(name.trim().chars().take(12).collect())
}

#[cfg(test)]
mod tests {
    use super::super::margins::Margin;
    use super::*;

    fn proved(dir: &tempfile::TempDir) -> Proved {
        let file = dir.path().join("PROVED.md");
        let seen = Seen::read(&fs::read_to_string(&file).unwrap_or_default());
        Proved { file, tree: "t1".into(), commit: "c1".into(), seen: Mutex::new(seen) }
    }

    fn outcome(failed: usize) -> Outcome {
        let margins = vec![Margin { name: "armed".into(), value: 0.5, limit: 1.0, unit: "s".into() }];
        Outcome { counts: Counts { passed: 3, failed, skipped: 1 }, tests: 7, margins, ..Outcome::default() }
    }

    /// What has passed is known, also to the next one who looks; what has failed is written down and run again.
    #[test]
    fn only_what_has_passed_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let first = proved(&dir);
        assert_eq!(first.note("good", &outcome(0), Instant::now()).unwrap(), [""; 0]);
        first.note("bad", &outcome(1), Instant::now()).unwrap();
        let known = first.passed("good").unwrap();
        assert_eq!((known.counts, known.tests), (outcome(0).counts, 7));
        assert!(first.passed("bad").is_none());
        let next = proved(&dir);
        assert_eq!(*next.lock(), *first.lock());
        assert!(next.passed("good").is_some());
        assert!(Proved { tree: "t2".into(), ..next }.passed("good").is_none());
        let text = fs::read_to_string(dir.path().join("PROVED.md")).unwrap();
        assert!(
            text.contains("| good | 7 | 3 | 0 | 1 | 0 | ")
                && text.contains("All: 6 passed, 1 failed, 2 skipped.")
        );
        proved(&dir).keep_only(&BTreeSet::from(["good".to_owned()])).unwrap();
        assert_eq!(proved(&dir).lock().rows.len(), 1);
    }

    /// The line of the gate names what failed, and what the code has left behind.
    #[test]
    fn the_age_of_it_all() {
        let nothing = BTreeSet::new();
        assert!(Seen::default().age(&nothing, |_| None).contains("never proved"));
        let row = |failed, commit: &str| Row {
            tests: 2,
            counts: Counts { passed: 2, failed, skipped: 0 },
            seconds: 1,
            day: "2026-11-27".into(),
            commit: commit.into(),
            tree: "t".into(),
        };
        let rows = [
            ("plegtrace-tests-lab-matrix", row(0, "old")),
            ("plegtrace-tests-lab-slow", row(1, "new+")),
            ("guests", row(0, "?")),
        ];
        let rows = rows.map(|(part, row)| (part.to_owned(), row)).into();
        let seen = Seen { rows, ..Seen::default() };
        let changed = |commit: &str| match commit {
            "old" => Some(vec!["tests/tests/lab/matrix/mod.rs".into(), "README.md".into()]),
            "new" => Some(vec!["README.md".into(), "tests/tests/lab/matrix/mod.rs".into()]),
            _ => None,
        };
        let said = seen.age(&nothing, changed);
        assert!(
            said.ends_with("failed: lab-slow; older than the code they prove: 2 of 3 (guests, lab-matrix)"),
            "{said}"
        );
        // What has just been run is neither old nor anything else.
        let ran = BTreeSet::from(["plegtrace-tests-lab-matrix".to_owned()]);
        let said = seen.age(&ran, changed);
        assert!(said.starts_with("everything else: 4 passed in 2 parts, "), "{said}");
        assert!(said.ends_with("older than the code they prove: 1 of 2 (guests)"), "{said}");
        let all = seen.rows.keys().cloned().collect();
        assert!(seen.age(&all, changed).contains("never proved"));
    }

    /// Which changes make which results old.
    #[test]
    fn what_proves_what() {
        let lab = "plegtrace-tests-lab-matrix";
        assert!(proves(lab, "tracer/src/lib.rs") && proves(lab, "tests/tests/lab/matrix.rs"));
        assert!(!proves(lab, "tests/tests/lab/matrix_loud.rs") && !proves(lab, "tracer/BENCHMARKS.md"));
        assert!(proves("guests", "vm-tests/src/main.rs") && !proves("guests", "tests/src/lib.rs"));
        assert!(proves("mutants", "tests/tests/integration/main.rs"));
        assert!(
            proves("exec::a_thousand", "tests/tests/lab/exec.rs")
                && !proves("exec::a_thousand", "tests/tests/lab/bus.rs")
        );
    }

    /// A change that is not committed, and a file that git does not know yet, make another checkout of it; the table does not.
    #[test]
    fn a_changed_checkout_is_another_one() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        cmd::output(Command::new("git").args(["init", "--quiet"]).arg(dir.path())).unwrap();
        let name = || tree(dir.path(), &other.path().join("index")).unwrap();
        let write = |file: &str, text: &str| {
            fs::create_dir_all(dir.path().join("tests")).unwrap();
            fs::write(dir.path().join(file), text).unwrap();
            name()
        };
        let names = [write("a", "1"), write("a", "2"), write("b", "1"), write("a", "1")];
        assert!(names[0].len() == 12 && names.iter().collect::<BTreeSet<_>>().len() == 4, "{names:?}");
        assert_eq!([write(TABLE, "1"), name()], [names[3].clone(), names[3].clone()]);
    }
}
