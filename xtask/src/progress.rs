//! One line per step on standard error, with the seconds since xtask began.

use std::io::Write as _;
use std::sync::OnceLock;
use std::time::Instant;

static BEGIN: OnceLock<Instant> = OnceLock::new();

/// Starts the clock; called once by `main`.
pub(crate) fn start() {
    BEGIN.get_or_init(Instant::now);
}

/// Prints a step: `[   3.2s] area: text`.
pub(crate) fn step(area: &str, text: &str) {
    let elapsed = BEGIN.get_or_init(Instant::now).elapsed().as_secs_f64();
    // A closed standard error must not end a build.
    drop(writeln!(std::io::stderr(), "[{elapsed:7.1}s] {area}: {text}"));
}
