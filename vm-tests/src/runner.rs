//! The table of tests → lines and a verdict.

use std::io::{self, Write};
use std::panic::{self, AssertUnwindSafe};
use std::time::Instant;

use crate::feature::reason_to_skip;
use crate::kernel::KernelVersion;
use crate::outcome::{Counts, Outcome};
use crate::table::Test;

/// Runs the tests one after the other, because probes share the kernel's state, and writes a line for each and the
/// verdict. Another line says how many seconds the test took. `only` keeps the tests whose name contains it.
///
/// # Errors
/// When the lines cannot be written.
pub fn run(
    tests: &[Test],
    only: Option<&str>,
    kernel: KernelVersion,
    out: &mut dyn Write,
) -> io::Result<Counts> {
    let mut counts = Counts::default();
    for test in tests.iter().filter(|test| only.is_none_or(|parts| is_one_of(test.name, parts))) {
        let began = Instant::now();
        let outcome = match reason_to_skip(test.requires, kernel) {
            Some(reason) => Outcome::Skip(reason),
            None => guarded(test),
        };
        counts.add(&outcome);
        writeln!(out, "{}", outcome.line(test.name))?;
        writeln!(out, "VM-TIME {} {:.1}", test.name, began.elapsed().as_secs_f64())?;
        out.flush()?;
    }
    writeln!(out, "{counts}")?;
    out.flush()?;
    Ok(counts)
}

/// Does the name contain one of these parts, which commas separate?
fn is_one_of(name: &str, parts: &str) -> bool {
    parts.split(',').any(|part| name.contains(part))
}

/// A panic in one test is that test's failure, not the end of the run.
fn guarded(test: &Test) -> Outcome {
    match panic::catch_unwind(AssertUnwindSafe(test.run)) {
        Ok(Ok(seen)) => Outcome::Pass(seen),
        Ok(Err(error)) => Outcome::Fail(format!("{error:#}")),
        Err(payload) => {
            let text = payload.downcast_ref::<String>().cloned();
            let text = text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Outcome::Fail(format!("panic: {}", text.unwrap_or_default()))
        }
    }
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;
    use crate::feature::Feature;

    fn run_on(kernel: KernelVersion, only: Option<&str>) -> String {
        let tests = [
            Test { name: "good", requires: &[], run: || Ok("seen".to_owned()) },
            Test { name: "bad", requires: &[], run: || bail!("no") },
            Test { name: "broken", requires: &[], run: || panic!("oh") },
            Test { name: "new", requires: &[Feature::UprobeMulti], run: || Ok(String::new()) },
        ];
        let mut out = Vec::new();
        run(&tests, only, kernel, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// Every way a test can end has its line, and the verdict comes last.
    #[test]
    fn lines_and_verdict() {
        let text = run_on(KernelVersion(5, 10), None);
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("VM-TIME ")).collect();
        assert_eq!(lines[0], "VM-TEST PASS good: seen");
        assert_eq!(lines[1], "VM-TEST FAIL bad: no");
        assert_eq!(lines[2], "VM-TEST FAIL broken: panic: oh");
        assert!(lines[3].starts_with("VM-TEST SKIP new: UprobeMulti needs Linux 6.6"));
        assert_eq!(text.lines().filter(|line| line.starts_with("VM-TIME ")).count(), 4);
        assert_eq!(lines[4], "VM-VERDICT failed passed=1 failed=2 skipped=1");
    }

    /// One test can be asked for by a part of its name.
    #[test]
    fn one_test_only() {
        assert_eq!(
            run_on(KernelVersion(6, 6), Some("new")).lines().last(),
            Some("VM-VERDICT ok passed=1 failed=0 skipped=0")
        );
    }
}
