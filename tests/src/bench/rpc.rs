//! `rpc`: processor time of containerd per CRI call under a steady load, and relists beside it, without plegtrace and with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use plegtrace_lab::cri::{self, Client, Pod};
use plegtrace_lab::{Knobs, Node};

use super::bounds::Estimate;
use super::table::{Row, Scenario, Unit};
use super::traced::{Told, Traced, Used};
use super::usage::processor_time;
use super::{LIMIT, Rounds, mean_relist, say};

const PODS: usize = 10;

/// A steady load.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Connections, each with one call at a time.
    pub clients: usize,
    /// Calls per second of all of them together.
    pub rate: u32,
}

/// One half of a round.
#[derive(Clone, Copy, Debug)]
struct Half {
    window: Duration,
    calls: u64,
    containerd: Duration,
    /// Mean duration of its relists, seconds.
    relist: f64,
}

/// One round.
#[derive(Clone, Copy, Debug)]
struct Round {
    without: Half,
    with: Half,
    used: Used,
    told: Told,
}

/// Measures on a node of its own, with the load on it all the time.
///
/// # Errors
///
/// The node, a call or plegtrace failed.
pub fn measure(load: Load, rounds: &Rounds) -> Result<Scenario> {
    say(&format!("starting a node with {PODS} pods"));
    let node = Node::start(&Knobs { pods: PODS, ..Knobs::default() })?;
    let clients = Clients::start(&node, load)?;
    let mut done = Vec::new();
    for number in 1..=rounds.count {
        let without = half(&node, &clients, || {
            std::thread::sleep(rounds.window);
            Ok(())
        })?;
        let traced = Traced::start(&node, rounds.window, &rounds.sources)?;
        node.wait_for_relists(2, LIMIT)?;
        let (with, used) = half(&node, &clients, || traced.watch(rounds.window))?;
        let round = Round { without: without.0, with, used, told: traced.finish()? };
        say(&format!("round {number} of {}: {}", rounds.count, round.summary()));
        done.push(round);
        node.wait_for_relists(2, LIMIT)?;
    }
    clients.stop()?;
    let name = format!("{} calls per second by {} clients, {PODS} pods", load.rate, load.clients);
    Ok(Scenario { name, rounds: done.len(), rows: rows(&done) })
}

fn half<T>(node: &Node, clients: &Clients, wait: impl FnOnce() -> Result<T>) -> Result<(Half, T)> {
    let pid = node.containerd().pid();
    let first = node.kubelet().metrics(LIMIT)?;
    let (begun, calls, before) = (Instant::now(), clients.calls(), processor_time(pid)?);
    let waited = wait()?;
    let containerd = processor_time(pid)?.saturating_sub(before);
    let (window, calls) = (begun.elapsed(), clients.calls() - calls);
    let relist = mean_relist(&first, &node.kubelet().metrics(LIMIT)?)?;
    let half = Half { window, calls, containerd, relist };
    ensure!(half.calls > 0, "no call ended in {:?}", half.window);
    Ok((half, waited))
}

impl Half {
    fn micros_per_call(&self) -> f64 {
        self.containerd.as_secs_f64() * 1e6 / self.calls as f64
    }

    /// Percent of one core.
    fn percent(&self, used: Duration) -> f64 {
        100.0 * used.as_secs_f64() / self.window.as_secs_f64()
    }
}

impl Round {
    fn summary(&self) -> String {
        format!(
            "containerd {:.1} µs per call, with plegtrace {:.1} µs; relist {:.2} ms, {:.2} ms; {:.0} calls per second; parks {}/s; lost {}",
            self.without.micros_per_call(),
            self.with.micros_per_call(),
            self.without.relist * 1e3,
            self.with.relist * 1e3,
            self.with.calls as f64 / self.with.window.as_secs_f64(),
            self.told.governed,
            self.told.lost,
        )
    }
}

fn rows(rounds: &[Round]) -> Vec<Row> {
    let row = |name, unit, figure: &dyn Fn(&Round) -> f64| {
        Row::new(name, unit, Estimate::median(rounds.iter().map(figure).collect()))
    };
    let total = |figure: fn(&Told) -> u64| rounds.iter().map(|round| figure(&round.told)).sum();
    let rate = |half: &Half| half.calls as f64 / half.window.as_secs_f64();
    vec![
        row("calls per second without plegtrace", Unit::Number, &|round| rate(&round.without)),
        row("calls per second with", Unit::Number, &|round| rate(&round.with)),
        row("containerd without", Unit::Percent, &|round| round.without.percent(round.without.containerd)),
        row("containerd with", Unit::Percent, &|round| round.with.percent(round.with.containerd)),
        row("containerd without, per call", Unit::Microseconds, &|round| round.without.micros_per_call()),
        row("containerd, added per call", Unit::Microseconds, &|round| {
            round.with.micros_per_call() - round.without.micros_per_call()
        }),
        row("relist without plegtrace", Unit::Milliseconds, &|round| round.without.relist * 1e3),
        row("relist, with / without", Unit::Ratio, &|round| round.with.relist / round.without.relist),
        row("plegtrace with children", Unit::Percent, &|round| {
            round.with.percent(round.used.own + round.used.children)
        }),
        row("parks per second for which their probes were detached", Unit::Number, &|round| {
            round.told.governed as f64
        }),
        Row::total("events of all rounds", total(|told| told.events)),
        Row::total("events lost", total(|told| told.lost)),
    ]
}

/// Clients that call at a steady rate until they are stopped or dropped.
#[derive(Debug)]
pub struct Clients {
    stop: Arc<AtomicBool>,
    calls: Arc<AtomicU64>,
    threads: Vec<JoinHandle<Result<(), cri::Error>>>,
}

impl Clients {
    /// Starts them, on connections of their own.
    ///
    /// # Errors
    ///
    /// There is no pod to ask about, or no connection.
    pub fn start(node: &Node, load: Load) -> Result<Clients> {
        let pods = node.kubelet().running_pods()?;
        ensure!(!pods.is_empty(), "there is no pod to ask about");
        let mut clients = Clients { stop: Arc::default(), calls: Arc::default(), threads: Vec::new() };
        let count = u32::try_from(load.clients).context("too many clients")?;
        let period = Duration::from_secs(1) * count / load.rate.max(1);
        for number in 0..count {
            let runtime = node.containerd();
            let client = runtime.client_of(runtime.knobs().generation.api())?;
            let pod = pods[number as usize % pods.len()].clone();
            let (stop, calls) = (Arc::clone(&clients.stop), Arc::clone(&clients.calls));
            let begin = Instant::now() + period * number / count;
            clients
                .threads
                .push(std::thread::spawn(move || call(&client, &pod, &stop, &calls, begin, period)));
        }
        Ok(clients)
    }

    /// Calls that have ended so far.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Ends them.
    ///
    /// # Errors
    ///
    /// A call has failed.
    pub fn stop(mut self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let Ok(result) = thread.join() else { bail!("a client panicked") };
            result.context("a call failed")?;
        }
        Ok(())
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Calls at `begin` and each `period` after it; one that comes late does not shift the others.
fn call(
    client: &Client,
    pod: &Pod,
    stop: &AtomicBool,
    calls: &AtomicU64,
    begin: Instant,
    period: Duration,
) -> Result<(), cri::Error> {
    let mut due = begin;
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        if calls.load(Ordering::Relaxed).is_multiple_of(2) {
            client.container_status(&pod.container, LIMIT)?;
        } else {
            client.pod_sandbox_status(&pod.sandbox, LIMIT)?;
        }
        calls.fetch_add(1, Ordering::Relaxed);
        due += period;
    }
    Ok(())
}
