//! What test programs print → counts, failures, skips and margins. A test that declares a skip returns normally, so libtest calls it
//! passed: it is taken off there.

use super::margins::Margin;
use crate::vm::Counts;

/// What a panic says in a summary, at most: lines, and characters of each.
const LINES: usize = 10;
const WIDTH: usize = 300;

/// How a panic begins that must never be excused by a second try: something on the node was harmed.
const HARM: &str = "HARM: ";

/// A test that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FailedTest {
    /// Its name in its program.
    pub(crate) name: String,
    /// What it said when it panicked: a few lines.
    pub(crate) said: String,
}

impl FailedTest {
    /// Did it see harm done to the node?
    pub(crate) fn is_harm(&self) -> bool {
        self.said.contains(HARM)
    }
}

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

/// A line of a log without what libtest puts before it: with one thread it has already begun the line with `test name ... `.
fn said(line: &str) -> &str {
    match line.split_once(" ... ") {
        Some((test, said)) if test.starts_with("test ") => said,
        _ => line,
    }
}

/// The declared skips, each as `name: reason`.
pub(crate) fn skips(log: &str) -> Vec<String> {
    let declared = |line| {
        let line = said(line);
        let rest = line.strip_prefix("SKIP: ").or_else(|| line.strip_prefix("SKIP "))?;
        rest.contains(": ").then(|| rest.to_owned())
    };
    log.lines().filter_map(declared).collect()
}

/// The times and sizes that tests measured, and what each should be.
pub(crate) fn margins(log: &str) -> Vec<Margin> {
    log.lines().filter_map(|line| Margin::parse(said(line))).collect()
}

/// Where the logs of a failed test's daemons were kept.
pub(crate) fn kept_logs(log: &str) -> Vec<String> {
    log.lines().filter_map(|line| said(line).strip_prefix("LOGS ")).map(str::to_owned).collect()
}

/// The part of a log that explains a failure: from libtest's list on, else the end.
pub(crate) fn failure(log: &str, lines: usize) -> String {
    match log.find("\nfailures:\n") {
        Some(at) => log[at + 1..].lines().take(lines).collect::<Vec<_>>().join("\n"),
        None => crate::cmd::tail(log, lines),
    }
}

/// The tests that failed, each with what it said when it panicked.
pub(crate) fn failed_tests(log: &str) -> Vec<FailedTest> {
    let mut lines = log.lines().peekable();
    let mut failed = Vec::new();
    while let Some(line) = lines.next() {
        let Some(name) = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----")) else {
            continue;
        };
        let is_inside = |line: &&str| !line.starts_with("---- ") && *line != "failures:";
        let all: Vec<&str> = std::iter::from_fn(|| lines.next_if(is_inside)).collect();
        failed.push(FailedTest { name: name.to_owned(), said: sentence(&all) });
    }
    failed
}

/// The panic among what a test printed: its place, and its message without the backtrace.
fn sentence(lines: &[&str]) -> String {
    let panic = lines.iter().position(|line| line.contains(" panicked at ")).unwrap_or(0);
    let is_noise = |line: &str| {
        line.eq_ignore_ascii_case("stack backtrace:") || line.starts_with("note: run with `RUST_BACKTRACE")
    };
    let message =
        lines[panic..].iter().take_while(|line| !is_noise(line)).filter(|line| !line.trim().is_empty());
    let message: Vec<&str> = message.copied().collect();
    let mut shown: Vec<String> = message.iter().take(LINES).map(|line| shortened(line.trim_end())).collect();
    if message.len() > LINES {
        shown.push(format!("… {} more lines in its log", message.len() - LINES));
    }
    shown.join("\n")
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(WIDTH) {
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
test d ... MARGIN armed_ms 790 1000 ms
LOGS kept/d-00a
FAILED
test result: ok. 3 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.21s
test result: FAILED. 10 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.21s
";

    /// Results of several programs are added; a declared skip is not a pass.
    #[test]
    fn results_are_added() {
        assert_eq!(read(LOG), Counts { passed: 11, failed: 1, skipped: 4 });
        assert_eq!(skips(LOG), ["containerd 1.4: left the archive", "lab_c: no cgroup v1"]);
        assert_eq!(kept_logs(LOG), ["kept/d-00a"]);
        assert_eq!(margins(LOG).iter().map(|margin| margin.name.as_str()).collect::<Vec<_>>(), ["armed_ms"]);
    }

    /// Prose about skipping is not a skip.
    #[test]
    fn prose_is_not_a_skip() {
        assert_eq!(skips("SKIP this\nwe SKIP a: b\n"), [""; 0]);
    }

    /// The explanation begins where libtest explains, and its beginning matters most.
    #[test]
    fn failures_are_cut_out() {
        assert_eq!(failure("noise\nfailures:\n\n---- a\nboom\n", 3), "failures:\n\n---- a");
        assert_eq!(failure("a\nb\nc", 2), "b\nc");
    }

    /// A failed test comes with its panic, without the backtrace and without what it printed before.
    #[test]
    fn a_failed_test_has_its_sentence() {
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
Error: HARM: no node
Stack backtrace:
   0: noise

failures:
    a::b
    c
";
        let failed = failed_tests(log);
        let of = |name: &str, said: &str| FailedTest { name: name.into(), said: said.into() };
        let a = of("a::b", "thread 'a::b' (7) panicked at tests/a.rs:1:2:\nleft: 1\n right: 2");
        assert_eq!(failed, [a, of("c", "Error: HARM: no node")]);
        assert_eq!(failed.iter().map(FailedTest::is_harm).collect::<Vec<_>>(), [false, true]);
    }

    /// A report of a thousand lines does not hide what comes before it.
    #[test]
    fn a_long_panic_keeps_its_beginning() {
        let log =
            format!("---- d stdout ----\nx panicked at y:\n{}\n", "é".repeat(2_000) + &"\nz".repeat(50));
        let said = &failed_tests(&log)[0].said;
        assert!(
            said.starts_with("x panicked at y:\né") && said.ends_with("… 42 more lines in its log"),
            "{said}"
        );
        assert!(said.chars().count() < 500);
    }
}
