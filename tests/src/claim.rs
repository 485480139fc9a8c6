//! The three kinds of claim that a live test makes. They differ in what a failure means, so each has its own word:
//!
//! * [`works`]: something comes true. The machine may take its time, and a test that fails may be run again.
//! * [`harm`]: something must never happen to a node. One counterexample is one: such a test is never run again.
//! * [`soon`]: how long, how often, how much. The machine decides as much as we do, so this is told and fails nothing; whoever runs the
//!   tests compares it with what the same machine said before.

use std::fmt::Display;
use std::io::Write as _;
use std::time::Duration;

use anyhow::Result;
use plegtrace_lab::process;

/// For anything to come true on a busy machine: far above what it takes, so that its end is no measurement.
pub const LIMIT: Duration = Duration::from_secs(120);

/// How the message of a broken [`harm`] begins.
pub const HARM: &str = "HARM: ";

/// How a line of [`soon`] begins.
pub const MARGIN: &str = "MARGIN ";

/// Asks again and again until there is an answer.
///
/// # Panics
///
/// There is none within [`LIMIT`], or asking fails: with what was missing.
pub fn works<T>(what: &str, ask: impl FnMut() -> Result<Option<T>>) -> T {
    process::wait_for(what, LIMIT, ask).unwrap_or_else(|error| panic!("{what}: {error:#}"))
}

/// What plegtrace must never do to a node; `holds` when it has not.
///
/// # Panics
///
/// It has: with a message by which the runner knows that this test must not be run again.
#[track_caller]
pub fn harm(holds: bool, what: impl Display) {
    assert!(holds, "{HARM}{what}");
}

/// Tells a measurement and what was promised of it, as one line on stderr, past the test harness. Less is better.
pub fn soon(name: &str, value: f64, limit: f64, unit: &str) {
    // Not by a macro, whose output the test harness keeps to itself. Without a stderr nobody reads it.
    let _ = writeln!(std::io::stderr().lock(), "{}", margin(name, value, limit, unit));
}

/// [`soon`] of a time.
pub fn soon_within(name: &str, took: Duration, limit: Duration) {
    soon(name, took.as_secs_f64(), limit.as_secs_f64(), "s");
}

/// Words between blanks: a name has none.
fn margin(name: &str, value: f64, limit: f64, unit: &str) -> String {
    let name: String = name.chars().map(|c| if c.is_whitespace() { '_' } else { c }).collect();
    format!("{MARGIN}{name} {value:.3} {limit:.3} {unit}")
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use anyhow::bail;

    use super::*;

    fn message(panic: Box<dyn std::any::Any + Send>) -> String {
        *panic.downcast::<String>().unwrap()
    }

    /// It is asked until it answers, and a question that cannot be asked is told at once.
    #[test]
    fn what_works_is_asked_again() {
        let mut asked = 0;
        let answer = works("three questions", || {
            asked += 1;
            Ok((asked == 3).then_some(asked))
        });
        assert_eq!(answer, 3);
        let failed =
            catch_unwind(|| works("a question", || -> Result<Option<()>> { bail!("nobody is there") }));
        assert_eq!(message(failed.unwrap_err()), "a question: nobody is there");
    }

    /// The runner knows it by its first word.
    #[test]
    fn harm_is_told_by_its_first_word() {
        harm(true, "a breakpoint was left");
        let broken = catch_unwind(|| harm(false, "a breakpoint was left"));
        assert_eq!(message(broken.unwrap_err()), "HARM: a breakpoint was left");
    }

    /// The runner splits the line at its blanks.
    #[test]
    fn a_margin_is_one_line_of_five_words() {
        assert_eq!(margin("median to armed", 1.6604, 1.0, "s"), "MARGIN median_to_armed 1.660 1.000 s");
        soon("nothing", 2.0, 1.0, "s");
    }
}
