//! `cargo xtask bench`: what plegtrace costs a real node, in interleaved rounds with and without it.
//!
//! `usage` reads processor time and memory of processes, `bounds` turns figures of many rounds into a median with 95 %
//! bounds, `traced` is a plegtrace that observes while others measure. `cost`, `rpc` and `syscall` are the benchmarks; `table`
//! is what they print.

mod bounds;
pub mod cost;
pub mod rpc;
pub mod syscall;
mod table;
mod traced;
pub(crate) mod usage;

pub use table::{Report, Row};

use std::time::Duration;

use anyhow::{Result, ensure};
use plegtrace_lab::promtext::Page;

const RELISTS: &str = "kubelet_pleg_relist_duration_seconds";
/// For starts, ends and single answers on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// How often, for how long each time, and what is measured.
#[derive(Clone, Debug)]
pub struct Rounds {
    /// Rounds, each once without and once with plegtrace.
    pub count: usize,
    /// What is measured in each half of a round.
    pub window: Duration,
    /// Minutes of one long observation after the rounds: what plegtrace itself costs when arming is long over.
    pub minutes: u32,
    /// What plegtrace observes: its `--sources`.
    pub sources: String,
}

/// What a metric of the kubelet has grown by between two pages.
fn difference(first: &Page, second: &Page, name: &str, labels: &[(&str, &str)]) -> f64 {
    second.sum(name, labels) - first.sum(name, labels)
}

/// Mean duration of the relists between two pages of the kubelet, seconds.
fn mean_relist(first: &Page, second: &Page) -> Result<f64> {
    let grown = |part: &str| difference(first, second, &format!("{RELISTS}_{part}"), &[]);
    let relists = grown("count");
    ensure!(relists > 0.0, "no relist has ended");
    Ok(grown("sum") / relists)
}

/// Says what happens, on stderr.
fn say(text: &str) {
    eprintln!("bench: {text}");
}
