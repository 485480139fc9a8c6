//! [`Ledger`]: which parts of `cargo xtask test --all` have passed on this very checkout. The whole takes hours: a run that was ended goes
//! on where it was, and the table of one that has come to its end is in the repository.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use super::outcome::Outcome;
use crate::vm::Counts;
use crate::{cmd, paths};

/// The table; no part of what is tested.
const TABLE: &str = "tests/all.md";

/// What has passed.
pub(super) struct Ledger {
    file: PathBuf,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Seen {
    /// Git's tree of everything in the checkout, changes that are not committed included.
    tree: String,
    parts: BTreeMap<String, Passed>,
}

/// A part that has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Passed {
    pub(super) passed: usize,
    pub(super) skipped: usize,
    /// As [`Outcome::tests`].
    tests: usize,
    pub(super) seconds: u64,
    /// The day, UTC.
    on: String,
}

impl Passed {
    pub(super) fn outcome(&self) -> Outcome {
        let counts = Counts { passed: self.passed, failed: 0, skipped: self.skipped };
        Outcome { counts, tests: self.tests, failed: Vec::new() }
    }
}

impl Ledger {
    /// What is known of the checkout as it is; what was seen of another one says nothing.
    ///
    /// # Errors
    /// When git does not say what is in it.
    pub(super) fn open() -> Result<Self> {
        let file = paths::target().join("test-all.json");
        let tree = tree(&paths::workspace(), &paths::target().join("test-all.index"))?;
        let old = fs::read(&file).ok().and_then(|bytes| serde_json::from_slice::<Seen>(&bytes).ok());
        let same = old.filter(|old| old.tree == tree);
        Ok(Self { file, seen: Mutex::new(same.unwrap_or(Seen { tree, parts: BTreeMap::new() })) })
    }

    /// How this part went, if it has passed.
    pub(super) fn passed(&self, part: &str) -> Option<Passed> {
        self.lock().parts.get(part).cloned()
    }

    /// Notes a part that began at `begin`, unless something of it failed.
    ///
    /// # Errors
    /// When it cannot be written down.
    pub(super) fn note(&self, part: &str, outcome: &Outcome, begin: Instant) -> Result<()> {
        let Counts { passed, failed, skipped } = outcome.counts;
        if failed > 0 || passed == 0 {
            return Ok(());
        }
        let on = cmd::output(Command::new("date").args(["--utc", "+%F"]))?.trim().to_owned();
        let tests = outcome.tests;
        let entry = Passed { passed, skipped, tests, seconds: begin.elapsed().as_secs(), on };
        let mut seen = self.lock();
        seen.parts.insert(part.to_owned(), entry);
        let text = serde_json::to_vec_pretty(&*seen).context("the ledger cannot be written as JSON")?;
        fs::write(&self.file, text).with_context(|| format!("cannot write {}", self.file.display()))
    }

    /// Puts the table of a run that has come to its end into the checkout.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn publish(&self) -> Result<()> {
        let path = paths::workspace().join(TABLE);
        fs::write(&path, self.lock().table()).with_context(|| format!("cannot write {}", path.display()))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().expect("nobody panics with the ledger in hand")
    }
}

impl Seen {
    fn table(&self) -> String {
        let (first, last) =
            (self.parts.values().map(|p| &p.on).min(), self.parts.values().map(|p| &p.on).max());
        let days = match (first, last) {
            (Some(first), Some(last)) if first != last => format!("{first} to {last}"),
            (Some(day), _) => day.clone(),
            (None, _) => String::new(),
        };
        let sum = |of: fn(&Passed) -> u64| self.parts.values().map(of).sum::<u64>();
        let mut text = format!(
            "# Everything that is tested\n\nWritten by `cargo xtask test --all`, {days}; git tree `{}`. All of it passed. Parts run beside \
             each other, so their seconds are more than the whole took.\n\n| part | passed | skipped | seconds |\n|---|---|---|---|\n",
            self.tree
        );
        for (part, Passed { passed, skipped, seconds, .. }) in &self.parts {
            let _ = writeln!(text, "| {part} | {passed} | {skipped} | {seconds} |");
        }
        let (passed, skipped) = (sum(|part| part.passed as u64), sum(|part| part.skipped as u64));
        let _ = writeln!(text, "| **all** | {passed} | {skipped} | {} |", sum(|part| part.seconds));
        text
    }
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
    Ok(name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(dir: &tempfile::TempDir) -> Ledger {
        Ledger {
            file: dir.path().join("seen.json"),
            seen: Mutex::new(Seen { tree: "t1".into(), ..Seen::default() }),
        }
    }

    /// What has passed is known, also to the next one who looks; what has failed is not.
    #[test]
    fn only_what_has_passed_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let ledger = ledger(&dir);
        let outcome = |failed| {
            let counts = Counts { passed: 3, failed, skipped: 1 };
            Outcome { counts, tests: 7, failed: Vec::new() }
        };
        ledger.note("good", &outcome(0), Instant::now()).unwrap();
        ledger.note("bad", &outcome(1), Instant::now()).unwrap();
        let known = ledger.passed("good").unwrap().outcome();
        assert_eq!((known.counts, known.tests), (outcome(0).counts, 7));
        assert!(ledger.passed("bad").is_none());
        let kept: Seen = serde_json::from_slice(&fs::read(&ledger.file).unwrap()).unwrap();
        assert_eq!(kept, *ledger.lock());
    }

    /// The table names the tree and the days, and sums up.
    #[test]
    fn the_table_says_when_and_what() {
        let part = |on: &str| Passed { passed: 2, skipped: 1, tests: 3, seconds: 30, on: on.into() };
        let parts = [("a".to_owned(), part("2026-11-25")), ("b".to_owned(), part("2026-11-26"))].into();
        let table = Seen { tree: "0123".into(), parts }.table();
        assert!(table.contains("2026-11-25 to 2026-11-26; git tree `0123`"), "{table}");
        assert!(table.ends_with("| b | 2 | 1 | 30 |\n| **all** | 4 | 2 | 60 |\n"), "{table}");
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
        assert!(
            names[0].len() >= 40 && names.iter().collect::<std::collections::BTreeSet<_>>().len() == 4,
            "{names:?}"
        );
        assert_eq!([write(TABLE, "1"), name()], [names[3].clone(), names[3].clone()]);
    }
}
