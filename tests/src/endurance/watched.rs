//! [`WatchCourse`]: `plegtrace watch` on a node that stalls again and again while its daemons are replaced.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use plegtrace_lab::{Knobs, Node, fault::Kind, process};
use serde_json::Value;
use tempfile::TempDir;

use super::{CHURN, Curve, Generations, LIMIT, Sample};
use crate::program::{self, Running};

/// Stalls of which each is named, and ends without a trace: injected in turns, with the ids that they are to get.
const STALLS: [(Kind, &str); 3] =
    [(Kind::ContainerdStopped, "R14"), (Kind::ShimStopped, "S10"), (Kind::LockHostage, "R1")];
/// A stall that was named lasts for so long still.
const LASTS: Duration = Duration::from_secs(5);

/// How long, and how much happens meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct WatchCourse {
    /// From the first measurement to the last.
    pub duration: Duration,
    /// So many stalls, at equal distances.
    pub stalls: u32,
    /// So often a daemon is replaced, containerd and kubelet in turns.
    pub replaced: u32,
    /// Length of a window, seconds.
    pub window: u32,
    /// Static pods; another one comes and goes.
    pub pods: usize,
}

/// What came of it.
#[derive(Debug)]
pub struct Watched {
    /// What plegtrace used, measured after each stall and each replacement.
    pub curve: Curve,
    /// The ids of the stalls, in order.
    pub stalls: Vec<&'static str>,
    /// What it printed: the begin and the end of each stall.
    pub events: Vec<Value>,
    /// What its directory took on the disk at most, bytes.
    pub disk: u64,
    /// Its directory.
    pub dir: TempDir,
    /// How it ended.
    pub code: Option<i32>,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Stall,
    Replace,
}

impl WatchCourse {
    /// Runs it on a node of its own.
    ///
    /// # Errors
    ///
    /// The node fails, a stall is not named, or plegtrace does not last to the end.
    pub fn run(&self) -> Result<Watched> {
        let node = Node::start(&Knobs { pods: self.pods, ..Kind::LockHostage.knobs() })?;
        let guests = node.kubelet().churn(CHURN);
        let dir = tempfile::tempdir()?;
        let path = dir.path().to_str().context("an odd path")?;
        let socket = node.containerd().socket().to_str().context("an odd path")?;
        let window = format!("{}s", self.window);
        let about = ["watch", "--dir", path, "--window", &window, "--runtime-endpoint", socket];
        let mut running = Running::start(&about)?;
        running.wait_until_armed(LIMIT)?;
        wait_for_check(dir.path(), "ok: ", &running)?;
        let mut generations = Generations::begin(&node)?;
        let began = Instant::now();
        let (mut samples, mut stalls, mut disk) = (vec![Sample::take(running.pid(), began)?], Vec::new(), 0);
        for (due, step) in self.steps() {
            std::thread::sleep(due.saturating_sub(began.elapsed()));
            match step {
                Step::Replace => {
                    generations.replace_next().with_context(|| format!("at {:?}", began.elapsed()))?;
                    generations.sweep()?;
                }
                Step::Stall => {
                    let (kind, id) = STALLS[stalls.len() % STALLS.len()];
                    let fault = kind.inject(&node, "p1")?;
                    wait_for_check(dir.path(), &format!(": {id} "), &running)?;
                    std::thread::sleep(LASTS);
                    fault.heal()?;
                    stalls.push(id);
                }
            }
            wait_for_check(dir.path(), "ok: ", &running)?;
            samples.push(Sample::take(running.pid(), began)?);
            disk = disk.max(size_of(dir.path())?);
        }
        std::thread::sleep(self.duration.saturating_sub(began.elapsed()));
        samples.push(Sample::take(running.pid(), began)?);
        ensure!(!running.has_ended()?, "plegtrace ended early: {}", running.said());
        running.signal(libc::SIGTERM)?;
        let ended = running.finish(LIMIT)?;
        ensure!(guests.stop()? > 0, "no pod came and went");
        let events = ended.stdout.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
        Ok(Watched { curve: Curve { samples }, stalls, events, disk, dir, code: ended.status.code() })
    }

    /// What happens when, in order.
    fn steps(&self) -> Vec<(Duration, Step)> {
        let each = |count: u32, step: Step| {
            let between = self.duration / (count + 1);
            (1..=count).map(move |number| (between * number, step))
        };
        let mut steps: Vec<_> =
            each(self.stalls, Step::Stall).chain(each(self.replaced, Step::Replace)).collect();
        steps.sort_by_key(|(due, _)| *due);
        steps
    }
}

/// Waits until `plegtrace check` says so.
fn wait_for_check(dir: &Path, what: &str, running: &Running) -> Result<()> {
    let program = program::path()?;
    process::wait_for(&format!("{what:?} of plegtrace check"), LIMIT, || {
        let out = Command::new(&program).args(["check", "--dir"]).arg(dir).output()?;
        Ok(String::from_utf8_lossy(&out.stdout).contains(what).then_some(()))
    })
    .with_context(|| running.said())
}

/// All files below a directory, bytes.
fn size_of(dir: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        // A file that is being replaced may have gone.
        let Ok(about) = std::fs::symlink_metadata(&path) else { continue };
        sum += if about.is_dir() { size_of(&path)? } else { about.len() };
    }
    Ok(sum)
}
