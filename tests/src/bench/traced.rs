//! A plegtrace that observes a node of the lab while its cost is measured.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use plegtrace_lab::Node;
use serde_json::Value;

use super::LIMIT;
use super::usage::Usage;
use crate::program::{self, Running};

/// Between two looks at its memory.
const LOOK: Duration = Duration::from_secs(1);
/// It observes this much longer than the window, for the scrapes around it.
const MARGIN: Duration = Duration::from_secs(30);

/// A plegtrace whose probes are on.
#[derive(Debug)]
pub(super) struct Traced {
    running: Running,
}

/// What it used in a window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Used {
    /// Processor time of plegtrace itself.
    pub(super) own: Duration,
    /// Processor time of its children.
    pub(super) children: Duration,
    /// Largest resident memory that was seen, bytes.
    pub(super) rss: u64,
    /// The same of its children, together.
    pub(super) children_rss: u64,
}

/// What its report says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    /// Records that it took.
    pub(super) events: u64,
    /// Records that were lost, for whatever reason.
    pub(super) lost: u64,
    /// Hits a second for which the probes on the scheduler of a program were detached; 0: they were not.
    pub(super) governed: u64,
    /// Memory of its largest child that has ended, bytes: those live too shortly to be seen from outside.
    pub(super) child_peak: u64,
}

impl Used {
    /// With children, percent of one core.
    pub(super) fn percent(&self, window: Duration) -> f64 {
        100.0 * (self.own + self.children).as_secs_f64() / window.as_secs_f64()
    }
}

impl Traced {
    /// Starts plegtrace with these `sources` on `node` and waits until its probes are on.
    ///
    /// # Errors
    ///
    /// It ended, or did not attach in time.
    pub(super) fn start(node: &Node, window: Duration, sources: &str) -> Result<Traced> {
        let (kubelet, runtime) = (node.kubelet().pid().to_string(), node.containerd().pid().to_string());
        let seconds = (window + MARGIN).as_secs().to_string();
        let mut command = Command::new(program::path()?);
        command.args(["-o", "json", "-d", &seconds]);
        command.args(["--kubelet-pid", &kubelet, "--runtime-pid", &runtime, "--sources", sources]);
        program::end_with_parent(&mut command);
        let mut running = Running::spawn(&mut command).context("cannot start plegtrace")?;
        running.wait_until_armed(LIMIT)?;
        Ok(Traced { running })
    }

    /// Lets `window` pass and looks at it meanwhile.
    ///
    /// # Errors
    ///
    /// It ended.
    pub(super) fn watch(&self, window: Duration) -> Result<Used> {
        let begun = Instant::now();
        let first = Usage::read(self.running.pid())?;
        let (mut rss, mut children_rss) = (first.rss, first.children_rss);
        loop {
            let left = window.saturating_sub(begun.elapsed());
            std::thread::sleep(left.min(LOOK));
            let usage = Usage::read(self.running.pid())?;
            (rss, children_rss) = (rss.max(usage.rss), children_rss.max(usage.children_rss));
            if begun.elapsed() >= window {
                // A child that has ended and is not waited for yet counts in neither place.
                let children = usage.children.saturating_sub(first.children);
                return Ok(Used { own: usage.own.saturating_sub(first.own), children, rss, children_rss });
            }
        }
    }

    /// Ends it and reads its report.
    ///
    /// # Errors
    ///
    /// It does not end, gives no report, or names a stall on this healthy node.
    pub(super) fn finish(self) -> Result<Told> {
        self.running.signal(libc::SIGINT)?;
        let ended = self.running.finish(LIMIT)?;
        let report: Value = serde_json::from_str(&ended.stdout)
            .with_context(|| format!("no report, {}: {}", ended.status, ended.stderr))?;
        ensure!(
            ended.status.code() != Some(1),
            "a healthy node is called stalled: {:#}",
            report["diagnosis"]
        );
        Ok(told(&report))
    }
}

fn told(report: &Value) -> Told {
    let losses = report["losses"].as_array().into_iter().flatten();
    let lost = losses.filter(|loss| loss["is_loss"] == true).filter_map(|loss| loss["count"].as_u64()).sum();
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let child_peak = number(&report["cost"]["child_peak_bytes"]);
    let mut refused = report["refused"].as_array().into_iter().flatten();
    let governed = refused.find_map(|it| hits_per_second(it["why"].as_str()?)).unwrap_or(0);
    Told { events: number(&report["tally"]["events"]), lost, governed, child_peak }
}

/// `its goroutines hit the probes on the Go scheduler 21,345 times a second, …` → 21345.
fn hits_per_second(why: &str) -> Option<u64> {
    let (_, rest) = why.split_once(" the probes on the Go scheduler ")?;
    rest.split_once(' ')?.0.replace(',', "").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is no loss is not counted as one, and what the governor says is read.
    #[test]
    fn losses_are_added() {
        let report = serde_json::json!({
            "tally": { "events": 7 },
            "cost": { "child_peak_bytes": 4096 },
            "losses": [
                { "count": 3, "is_loss": true },
                { "count": 5, "is_loss": false },
                { "count": 1, "is_loss": true },
            ],
            "refused": [{
                "source": "parks",
                "why": "its goroutines hit the probes on the Go scheduler 21,345 times a second, and 5,000 are allowed",
            }],
        });
        let told = told(&report);
        assert_eq!((told.events, told.lost, told.governed, told.child_peak), (7, 4, 21_345, 4096));
    }
}
