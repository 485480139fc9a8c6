//! What test programs print → counts. A test that declares a skip returns normally, so libtest calls it passed: it
//! is taken off there.

use crate::vm::Counts;

/// Characters of a panic in the summary.
const SUMMARY: usize = 900;

/// Adds up all `test result:` lines of a log, and the skips that tests declared.
///
/// A test declares a skip with a line `SKIP name: reason` (or `SKIP: name: reason`) that libtest does not capture,
/// one per test.
pub(crate) fn read(log: &str) -> Counts {
    let mut counts = Counts::default();
    for line in log.lines() {
        if let Some(result) = line.trim_start().strip_prefix("test result: ") {
            counts.passed += number_before(result, " passed");
            counts.failed += number_before(result, " failed");
            counts.skipped += number_before(result, " ignored");
        }
    }
    let declared = skips(log).len();
    counts.passed = counts.passed.saturating_sub(declared);
    counts.skipped += declared;
    counts
}

/// The declared skips, each as `name: reason`.
pub(crate) fn skips(log: &str) -> Vec<String> {
    log.lines().filter_map(declared_skip).collect()
}

/// With one thread libtest has already begun the line with `test name ... `.
fn declared_skip(line: &str) -> Option<String> {
    let said = match line.split_once(" ... ") {
        Some((test, said)) if test.starts_with("test ") => said,
        _ => line,
    };
    let rest = said.strip_prefix("SKIP: ").or_else(|| said.strip_prefix("SKIP "))?;
    rest.contains(": ").then(|| rest.to_owned())
}

/// The part of a log that explains a failure: from libtest's list on, else the end.
pub(crate) fn failure(log: &str, lines: usize) -> String {
    let from = log.find("\nfailures:\n").map_or(log, |at| &log[at + 1..]);
    crate::cmd::tail(from, lines)
}

/// The tests that failed, each with what it said when it panicked: a line for a summary.
pub(crate) fn failed_tests(log: &str) -> Vec<String> {
    let mut lines = log.lines().peekable();
    let mut failed = Vec::new();
    while let Some(line) = lines.next() {
        let Some(name) = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----")) else {
            continue;
        };
        let is_inside = |line: &&str| !line.starts_with("---- ") && *line != "failures:";
        let said: Vec<&str> = std::iter::from_fn(|| lines.next_if(is_inside)).collect();
        let panic = said.iter().position(|line| line.contains(" panicked at ")).unwrap_or(0);
        let told = said[panic..].iter().take_while(|line| **line != "stack backtrace:");
        let words: Vec<&str> = told.flat_map(|line| line.split_whitespace()).collect();
        failed.push(format!("{name}: {}", shortened(&words.join(" "))));
    }
    failed
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(SUMMARY) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn number_before(text: &str, word: &str) -> usize {
    let Some(at) = text.find(word) else { return 0 };
    let digits = text[..at].rsplit(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
    digits.parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
running 3 tests
test a ... ok
test lab_b ... SKIP containerd 1.4: left the archive
ok
SKIP: lab_c: no cgroup v1
test result: ok. 3 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.21s
test result: FAILED. 10 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.21s
";

    /// Results of several programs are added; a declared skip is not a pass.
    #[test]
    fn results_are_added() {
        assert_eq!(read(LOG), Counts { passed: 11, failed: 1, skipped: 4 });
        assert_eq!(skips(LOG), ["containerd 1.4: left the archive", "lab_c: no cgroup v1"]);
    }

    /// Prose about skipping is not a skip.
    #[test]
    fn prose_is_not_a_skip() {
        assert_eq!(skips("SKIP this\nwe SKIP a: b\n"), [""; 0]);
    }

    /// The explanation begins where libtest explains.
    #[test]
    fn failures_are_cut_out() {
        assert_eq!(failure("noise\nfailures:\n\n---- a\nboom", 50), "failures:\n\n---- a\nboom");
        assert_eq!(failure("a\nb\nc", 2), "b\nc");
    }

    /// A failed test is told in one line, with its panic and without the backtrace or what it printed before.
    #[test]
    fn a_failed_test_is_a_line() {
        let log = "\
failures:

---- a::b stdout ----
chatter

thread 'a::b' (7) panicked at tests/a.rs:1:2:
left: 1
 right: 2
stack backtrace:
   0: noise
---- c stdout ----
Error: no node

failures:
    a::b
    c
";
        let a = "a::b: thread 'a::b' (7) panicked at tests/a.rs:1:2: left: 1 right: 2";
        assert_eq!(failed_tests(log), [a, "c: Error: no node"]);
        let long = format!("---- d stdout ----\npanicked at {}\n", "é".repeat(2_000));
        assert!(failed_tests(&long)[0].chars().count() < 1_000);
    }
}
