//! Results of tests → the lines that the host reads. One line per test, whatever a test says.

use std::fmt;

/// How a test ended, with what it has to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It holds; the text is what was seen.
    Pass(String),
    /// It does not hold; the text is why.
    Fail(String),
    /// It could not be asked of this kernel; the text is the declared reason.
    Skip(String),
}

impl Outcome {
    /// The line for this test.
    #[must_use]
    pub fn line(&self, name: &str) -> String {
        let (word, text) = match self {
            Self::Pass(text) => ("PASS", text),
            Self::Fail(text) => ("FAIL", text),
            Self::Skip(text) => ("SKIP", text),
        };
        format!("VM-TEST {word} {name}: {}", one_line(text))
    }
}

/// How many tests ended how.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl Counts {
    /// Counts one more test.
    pub fn add(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Pass(_) => self.passed += 1,
            Outcome::Fail(_) => self.failed += 1,
            Outcome::Skip(_) => self.skipped += 1,
        }
    }

    /// Whether nothing failed and something was proved.
    #[must_use]
    pub fn ok(self) -> bool {
        self.failed == 0 && self.passed > 0
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.ok() { "ok" } else { "failed" };
        let Self { passed, failed, skipped } = self;
        write!(f, "VM-VERDICT {word} passed={passed} failed={failed} skipped={skipped}")
    }
}

/// Line breaks would make a second line, and control characters could hide one.
fn one_line(text: &str) -> String {
    text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A text with line breaks cannot forge a verdict.
    #[test]
    fn text_stays_on_its_line() {
        let line = Outcome::Fail("a\nVM-VERDICT ok".to_owned()).line("boots");
        assert_eq!(line, "VM-TEST FAIL boots: a VM-VERDICT ok");
    }

    /// A run of nothing is not a success, and one failure is enough to fail.
    #[test]
    fn verdict_counts() {
        let mut counts = Counts::default();
        assert!(!counts.ok());
        counts.add(&Outcome::Pass(String::new()));
        counts.add(&Outcome::Skip(String::new()));
        assert_eq!(counts.to_string(), "VM-VERDICT ok passed=1 failed=0 skipped=1");
        counts.add(&Outcome::Fail(String::new()));
        assert!(!counts.ok());
    }
}
