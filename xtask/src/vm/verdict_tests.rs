//! What counts as a run, and what the table shows.

use super::*;

fn read(lines: &[&str]) -> Report {
    Report::read(&Transcript { lines: lines.iter().map(|line| (*line).to_owned()).collect(), ended: None })
}

/// A run with one verdict that agrees with its tests is taken as it is.
#[test]
fn a_clean_run() {
    let report = read(&[
        "noise",
        "VM-TEST PASS boots: Linux 6.1",
        "VM-TEST SKIP multi: too old",
        "VM-VERDICT ok passed=1 failed=0 skipped=1",
    ]);
    assert_eq!(report.broken, None);
    assert_eq!(report.counts(), Counts { passed: 1, failed: 0, skipped: 1 });
}

/// No verdict, two verdicts, and a verdict that disagrees with the tests are failures.
#[test]
fn broken_runs() {
    let pass = "VM-TEST PASS boots: x";
    let verdict = "VM-VERDICT ok passed=1 failed=0 skipped=0";
    assert_eq!(read(&[pass]).broken.as_deref(), Some("no verdict"));
    assert_eq!(read(&[pass, verdict, verdict]).broken.as_deref(), Some("2 verdicts"));
    assert!(read(&[verdict]).broken.is_some(), "a verdict about tests that nobody saw");
    assert!(read(&["VM-VERDICT ok passed=0 failed=0 skipped=0"]).broken.is_some(), "nothing was proved");
    assert_eq!(read(&[pass]).counts().failed, 1);
}

/// A guest that we had to end has failed whatever it said before.
#[test]
fn an_ended_guest_has_failed() {
    let lines =
        vec!["VM-TEST PASS boots: x".to_owned(), "VM-VERDICT ok passed=1 failed=0 skipped=0".to_owned()];
    let report = Report::read(&Transcript { lines, ended: Some("the kernel died: panic".to_owned()) });
    assert_eq!(report.broken.as_deref(), Some("the kernel died: panic"));
}

/// Rows are tests, columns are guests, and everything but a pass has its reason below.
#[test]
fn the_table() {
    let good = read(&[
        "VM-TEST PASS boots: x",
        "VM-TEST PASS multi: x",
        "VM-VERDICT ok passed=2 failed=0 skipped=0",
    ]);
    let bad = read(&["VM-TEST FAIL boots: no", "VM-VERDICT failed passed=0 failed=1 skipped=0"]);
    let gone = Report::skipped("left the archive".to_owned());
    let text =
        table(&[("sid 7".to_owned(), good), ("bookworm 6.1".to_owned(), bad), ("potato".to_owned(), gone)]);
    let expected = "\
test   sid 7             bookworm 6.1      potato
boots  PASS              FAIL              SKIP
multi  PASS              -                 SKIP
bookworm 6.1: FAIL boots: no
potato: SKIP guest: left the archive
";
    assert_eq!(text, expected);
}

/// Figures of programs are read, anything else is not.
#[test]
fn stats_are_read() {
    let lines =
        ["VM-STAT go_call_in 1234".to_owned(), "VM-STAT x".to_owned(), "VM-TEST PASS a: b".to_owned()];
    assert_eq!(stats(&lines), [("go_call_in".to_owned(), 1234)]);
}

/// A guest has its own kernel, skips only what it may, and does not vanish.
#[test]
fn what_a_guest_has_to_prove() {
    let run = |lines: &[&str]| {
        let verdict = "VM-VERDICT ok passed=1 failed=0 skipped=1";
        read(&[lines, &[verdict]].concat()).held_to("bookworm 6.1", "6.1")
    };
    let listed = "VM-TEST SKIP attach_fires_multi: too old";
    assert_eq!(run(&["VM-TEST PASS boots: Linux 6.1.0-37", listed]).counts().failed, 0);
    let other = run(&["VM-TEST PASS boots: Linux 6.12.1", listed]);
    assert_eq!(other.broken.as_deref(), Some("it should run Linux 6.1, and says: Linux 6.12.1"));
    let skipped = run(&["VM-TEST PASS boots: Linux 6.1.0-37", "VM-TEST SKIP process_names: why"]);
    assert_eq!(skipped.counts(), Counts { passed: 1, failed: 1, skipped: 0 });
    assert!(skipped.tests[1].text.contains("does not allow: why"), "{skipped:?}");
    let gone = Report::skipped("left the archive".to_owned()).held_to("bookworm 6.1", "6.1");
    assert_eq!(gone.counts(), Counts { passed: 0, failed: 1, skipped: 0 });
}
