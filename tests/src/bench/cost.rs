//! `cost`: relists, kubelet and containerd of a node without plegtrace and with it.
//!
//! Relists are timed by the kubelet itself: sum and count of its own histogram at both ends of a window. Processor
//! times are those of `/proc/PID/stat`.

use std::time::{Duration, Instant};

use anyhow::Result;
use plegtrace_lab::{Knobs, Node};

use super::bounds::Estimate;
use super::table::{Row, Scenario, Unit};
use super::traced::{Told, Traced, Used};
use super::usage::processor_time;
use super::{LIMIT, Rounds, difference, mean_relist, say};

const MINUTE: Duration = Duration::from_secs(60);
const EXECS: &str = "kubelet_runtime_operations_duration_seconds_count";

/// A node to measure on.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Static pods.
    pub pods: usize,
    /// Exec probes per second.
    pub probes: usize,
}

/// One half of a round.
#[derive(Clone, Copy, Debug)]
struct Half {
    window: Duration,
    /// Mean duration of its relists, seconds.
    relist: f64,
    execs: f64,
    kubelet: Duration,
    containerd: Duration,
}

/// One round.
#[derive(Clone, Copy, Debug)]
struct Round {
    without: Half,
    with: Half,
    used: Used,
    told: Told,
}

/// Measures on a node of its own.
///
/// # Errors
///
/// The node or plegtrace failed, or nothing could be measured.
pub fn measure(load: Load, rounds: &Rounds) -> Result<Scenario> {
    say(&format!("starting a node with {} pods", load.pods));
    let knobs =
        Knobs { pods: load.pods, exec_probes: load.probes > 0, probed_pods: load.probes, ..Knobs::default() };
    let node = Node::start(&knobs)?;
    node.wait_for_relists(5, LIMIT)?;
    let mut done = Vec::new();
    for number in 1..=rounds.count {
        let round = round(&node, rounds)?;
        say(&format!("{}: round {number} of {}: {}", name(load), rounds.count, round.summary()));
        done.push(round);
    }
    let mut rows = rows(&done);
    if rounds.minutes > 0 {
        rows.extend(steady_rows(&steady(&node, load, rounds)?));
    }
    Ok(Scenario { name: name(load), rounds: done.len(), rows })
}

/// What plegtrace uses in each minute of one long observation, after a first one for arming and for the census to calm
/// down.
fn steady(node: &Node, load: Load, rounds: &Rounds) -> Result<Vec<Used>> {
    let minutes = rounds.minutes;
    let traced = Traced::start(node, MINUTE * (minutes + 1), &rounds.sources)?;
    traced.watch(MINUTE)?;
    let mut all = Vec::new();
    for number in 1..=minutes {
        let used = traced.watch(MINUTE)?;
        say(&format!("{}: minute {number} of {minutes}: {:.2} %", name(load), used.percent(MINUTE)));
        all.push(used);
    }
    traced.finish()?;
    Ok(all)
}

fn steady_rows(minutes: &[Used]) -> Vec<Row> {
    let row = |name, unit, figure: &dyn Fn(&Used) -> f64| {
        Row::new(name, unit, Estimate::median(minutes.iter().map(figure).collect()))
    };
    let percent = |used: Duration| 100.0 * used.as_secs_f64() / MINUTE.as_secs_f64();
    vec![
        row("later: plegtrace itself", Unit::Percent, &|used| percent(used.own)),
        row("later: its children", Unit::Percent, &|used| percent(used.children)),
        row("later: plegtrace with children", Unit::Percent, &|used| used.percent(MINUTE)),
        row("later: memory of plegtrace", Unit::Mebibytes, &|used| mib(used.rss)),
    ]
}

fn name(load: Load) -> String {
    match load.probes {
        0 => format!("{} pods, quiet", load.pods),
        probes => format!("{} pods, {probes} exec probes per second", load.pods),
    }
}

fn round(node: &Node, rounds: &Rounds) -> Result<Round> {
    let window = rounds.window;
    let (without, _) = half(node, || {
        std::thread::sleep(window);
        Ok(())
    })?;
    let traced = Traced::start(node, window, &rounds.sources)?;
    // What attaching has held up is no part of the window.
    node.wait_for_relists(2, LIMIT)?;
    let (with, used) = half(node, || traced.watch(window))?;
    let told = traced.finish()?;
    node.wait_for_relists(2, LIMIT)?;
    Ok(Round { without, with, used, told })
}

/// What happens on the node while `wait` lasts. The scrapes are outside of the measured processor times.
fn half<T>(node: &Node, wait: impl FnOnce() -> Result<T>) -> Result<(Half, T)> {
    let pids = [node.kubelet().pid(), node.containerd().pid()];
    let first = node.kubelet().metrics(LIMIT)?;
    let begun = Instant::now();
    let before = [processor_time(pids[0])?, processor_time(pids[1])?];
    let waited = wait()?;
    let after = [processor_time(pids[0])?, processor_time(pids[1])?];
    let window = begun.elapsed();
    let second = node.kubelet().metrics(LIMIT)?;
    let grown = |name: &str, labels: &[(&str, &str)]| difference(&first, &second, name, labels);
    let relist = mean_relist(&first, &second)?;
    let half = Half {
        window,
        relist,
        execs: grown(EXECS, &[("operation_type", "exec_sync")]),
        kubelet: after[0].saturating_sub(before[0]),
        containerd: after[1].saturating_sub(before[1]),
    };
    Ok((half, waited))
}

impl Half {
    /// Percent of one core.
    fn percent(&self, used: Duration) -> f64 {
        100.0 * used.as_secs_f64() / self.window.as_secs_f64()
    }

    fn targets(&self) -> f64 {
        self.percent(self.kubelet + self.containerd)
    }
}

impl Round {
    /// What plegtrace and its children used, percent of one core.
    fn all(&self) -> f64 {
        self.with.percent(self.used.own + self.used.children)
    }

    fn summary(&self) -> String {
        format!(
            "relist {:.2} ms, with plegtrace {:.2} ms; targets {:.2} %, {:.2} %; plegtrace {:.2} %, lost {}",
            self.without.relist * 1e3,
            self.with.relist * 1e3,
            self.without.targets(),
            self.with.targets(),
            self.all(),
            self.told.lost,
        )
    }
}

fn rows(rounds: &[Round]) -> Vec<Row> {
    let row = |name, unit, figure: &dyn Fn(&Round) -> f64| {
        Row::new(name, unit, Estimate::median(rounds.iter().map(figure).collect()))
    };
    let added = |figure: fn(&Half) -> f64| move |round: &Round| figure(&round.with) - figure(&round.without);
    let kubelet = |half: &Half| half.percent(half.kubelet);
    let containerd = |half: &Half| half.percent(half.containerd);
    let total = |figure: fn(&Told) -> u64| rounds.iter().map(|round| figure(&round.told)).sum();
    vec![
        row("relist without plegtrace", Unit::Milliseconds, &|round| round.without.relist * 1e3),
        row("relist, with / without", Unit::Ratio, &|round| round.with.relist / round.without.relist),
        row("execs per second", Unit::Number, &|round| round.with.execs / round.with.window.as_secs_f64()),
        row("kubelet without", Unit::Percent, &|round| kubelet(&round.without)),
        row("kubelet, added", Unit::Percent, &added(kubelet)),
        row("containerd without", Unit::Percent, &|round| containerd(&round.without)),
        row("containerd, added", Unit::Percent, &added(containerd)),
        row("both, added", Unit::Percent, &added(Half::targets)),
        row("plegtrace itself", Unit::Percent, &|round| round.with.percent(round.used.own)),
        row("its children", Unit::Percent, &|round| round.with.percent(round.used.children)),
        row("plegtrace with children", Unit::Percent, &Round::all),
        row("memory of plegtrace", Unit::Mebibytes, &|round| mib(round.used.rss)),
        row("memory of its children", Unit::Mebibytes, &|round| {
            mib(round.used.children_rss.max(round.told.child_peak))
        }),
        Row::total("events of all rounds", total(|told| told.events)),
        Row::total("events lost", total(|told| told.lost)),
    ]
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn half(relist_ms: f64, kubelet_ms: u64, containerd_ms: u64) -> Half {
        Half {
            window: Duration::from_secs(10),
            relist: relist_ms / 1e3,
            execs: 100.0,
            kubelet: Duration::from_millis(kubelet_ms),
            containerd: Duration::from_millis(containerd_ms),
        }
    }

    /// Figures of a round, in percent of a core and as differences of its halves.
    #[test]
    fn a_round_becomes_rows() {
        let used = Used {
            own: Duration::from_millis(50),
            children: Duration::from_millis(20),
            rss: 17 << 20,
            children_rss: 3 << 20,
        };
        let told = Told { events: 1_000, lost: 2, governed: 0, child_peak: 2 << 20 };
        let round = Round { without: half(2.0, 100, 200), with: half(3.0, 130, 210), used, told };
        let rows = rows(&[round, round]);
        let of = |name: &str| rows.iter().find(|row| row.name == name).unwrap().estimate.median;
        let near =
            |name: &str, expected: f64| assert!((of(name) - expected).abs() < 1e-9, "{name}: {}", of(name));
        near("relist, with / without", 1.5);
        near("execs per second", 10.0);
        near("kubelet, added", 0.3);
        near("containerd, added", 0.1);
        near("both, added", 0.4);
        near("plegtrace with children", 0.7);
        near("memory of its children", 3.0);
        near("events lost", 4.0);
    }
}
