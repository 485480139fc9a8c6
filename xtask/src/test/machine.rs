//! How busy this machine is: what belongs to every failure of a test that needs it, and what a second try waits for.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

/// Share of the last ten seconds in which something waited for a processor, below which the machine is quiet.
const QUIET: f64 = 20.0;
/// A machine that is never quiet must not hold up a run.
const PATIENCE: Duration = Duration::from_secs(60);

/// Load and pressure of this moment, for a person.
pub(crate) fn moment() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: Vec<&str> = load.split(' ').take(3).collect();
    let pressure = |what| match pressure(what) {
        Some(share) => format!("{what} {share:.0} %"),
        None => format!("{what} unknown"),
    };
    format!("load {}, pressure {}, {}", load.join(" "), pressure("cpu"), pressure("io"))
}

/// Waits until little waits for a processor, for a minute at most.
pub(crate) fn wait_until_quiet() {
    let begin = Instant::now();
    while pressure("cpu").is_some_and(|share| share >= QUIET) && begin.elapsed() < PATIENCE {
        thread::sleep(Duration::from_secs(1));
    }
}

fn pressure(what: &str) -> Option<f64> {
    average(&fs::read_to_string(format!("/proc/pressure/{what}")).ok()?)
}

/// `avg10` of the first line, in percent.
fn average(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with("some "))?;
    line.split(' ').find_map(|word| word.strip_prefix("avg10="))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's own words.
    #[test]
    fn pressure_is_read() {
        let text = "some avg10=12.50 avg60=3.00 avg300=1.00 total=1\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";
        assert_eq!(average(text), Some(12.5));
        assert_eq!(average(""), None);
    }

    /// A moment has a load wherever there is a /proc.
    #[test]
    fn a_moment_is_a_line() {
        let moment = moment();
        assert!(moment.starts_with("load ") && moment.contains("cpu ") && !moment.contains('\n'), "{moment}");
    }
}
