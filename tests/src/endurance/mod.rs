//! A plegtrace that observes a node for long while kubelet and containerd are upgraded in turns, each time to a program in
//! a file of its own: what it uses from period to period, and whether that grows.
//!
//! `generations` replaces the daemons, `curve` is what was measured and judges it; `watched` is the same of `plegtrace watch`
//! on a node that stalls again and again.

mod curve;
mod generations;
mod watched;

pub use curve::{Curve, Gauge, Sample};
pub use generations::{Generation, Generations};
pub use watched::{WatchCourse, Watched};

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use plegtrace_lab::{Knobs, Node, process};
use serde_json::Value;

use crate::program::Running;

/// For starts, ends and single answers on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);
/// How runc calls its process in a container that was not started yet.
const RUNC_INIT: &str = "runc:[2:INIT]";
/// One more pod comes or goes.
const CHURN: Duration = Duration::from_secs(2);

/// How long, and how much happens meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct Course {
    /// From the first measurement to the last.
    pub duration: Duration,
    /// From then on nothing may grow.
    pub settled: Duration,
    /// So often a daemon is replaced, kubelet and containerd in turns.
    pub restarts: u32,
    /// From one measurement to the next.
    pub period: Duration,
    /// Static pods, each with an exec probe once a second; another one comes and goes.
    pub pods: usize,
}

/// What came of it.
#[derive(Debug)]
pub struct Endured {
    /// What plegtrace used.
    pub curve: Curve,
    /// The daemons that ran, oldest first.
    pub generations: Vec<Generation>,
    /// Containers at the end that were being made: a containerd that is killed meanwhile leaves one that nobody starts.
    pub unstarted: BTreeSet<u32>,
    /// Its report at the end.
    pub report: Value,
    /// How it ended.
    pub code: Option<i32>,
}

impl Course {
    /// Runs it on a node of its own.
    ///
    /// # Errors
    ///
    /// The node fails, or plegtrace does not last to the end or gives no report.
    pub fn run(&self) -> Result<Endured> {
        let knobs = Knobs { pods: self.pods, exec_probes: true, ..Knobs::default() };
        let node = Node::start(&knobs)?;
        let guests = node.kubelet().churn(CHURN);
        let socket = node.containerd().socket().to_str().context("an odd path")?;
        let kubelet = node.kubelet().pid().to_string();
        let about = ["--kubelet-pid", &kubelet, "--runtime-endpoint", socket];
        // It is ended by hand: what the node takes between two measurements is not known.
        let seconds = (2 * self.duration + LIMIT).as_secs().to_string();
        let mut running = Running::start(&[&["-o", "json", "-d", &seconds], &about[..]].concat())?;
        running.wait_until_armed(LIMIT)?;
        let mut generations = Generations::begin(&node)?;
        let curve = self.observe(&running, &mut generations)?;
        let generations = generations.end()?;
        ensure!(!running.has_ended()?, "plegtrace ended early: {}", running.said());
        let unstarted = process::all().into_iter().filter(|pid| process::name(*pid) == RUNC_INIT).collect();
        running.signal(libc::SIGINT)?;
        let ended = running.finish(LIMIT)?;
        let came = guests.stop()?;
        ensure!(came > 0, "no pod came and went");
        let report = serde_json::from_str(&ended.stdout)
            .with_context(|| format!("no report, {}: {}", ended.status, ended.stderr))?;
        Ok(Endured { curve, generations, unstarted, report, code: ended.status.code() })
    }

    /// Measures and replaces, each when it is due.
    fn observe(&self, running: &Running, generations: &mut Generations<'_>) -> Result<Curve> {
        let began = Instant::now();
        let mut samples = vec![Sample::take(running.pid(), began)?];
        let between = self.duration / (self.restarts + 1);
        let (mut measure, mut replaced) = (self.period, 0);
        while measure <= self.duration {
            let replace = (replaced < self.restarts).then(|| between * (replaced + 1));
            let due = measure.min(replace.unwrap_or(measure));
            std::thread::sleep(due.saturating_sub(began.elapsed()));
            if replace == Some(due) {
                generations.replace_next().with_context(|| format!("at {:?}", began.elapsed()))?;
                generations.sweep()?;
                replaced += 1;
            } else {
                samples.push(Sample::take(running.pid(), began)?);
                measure += self.period;
            }
        }
        Ok(Curve { samples })
    }
}
