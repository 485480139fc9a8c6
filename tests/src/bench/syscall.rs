//! `syscall`: what the system calls of a process cost that plegtrace does not watch. The wire has probes that each system
//! call of the node passes.

use std::fs::File;
use std::hint::black_box;
use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use plegtrace_lab::{Knobs, Node};

use super::bounds::Estimate;
use super::table::{Row, Scenario, Unit};
use super::traced::Traced;
use super::{LIMIT, Rounds, say};

const PODS: usize = 10;
/// Calls between two looks at the clock.
const BATCH: u32 = 10_000;

/// Mean duration of one call of each kind, ns.
#[derive(Clone, Copy, Debug)]
struct Half {
    getppid: f64,
    write: f64,
}

/// Measures beside a node of its own.
///
/// # Errors
///
/// The node or plegtrace failed.
pub fn measure(rounds: &Rounds) -> Result<Scenario> {
    say(&format!("starting a node with {PODS} pods"));
    let node = Node::start(&Knobs { pods: PODS, ..Knobs::default() })?;
    node.wait_for_relists(5, LIMIT)?;
    let mut done = Vec::new();
    for number in 1..=rounds.count {
        let without = half(rounds.window)?;
        let traced = Traced::start(&node, rounds.window, &rounds.sources)?;
        node.wait_for_relists(2, LIMIT)?;
        let with = half(rounds.window)?;
        traced.finish()?;
        say(&format!(
            "round {number} of {}: getppid {:.0} ns, with plegtrace {:.0} ns; write {:.0} ns, {:.0} ns",
            rounds.count, without.getppid, with.getppid, without.write, with.write
        ));
        done.push((without, with));
    }
    let name = format!("system calls of a process that is not watched, {PODS} pods");
    Ok(Scenario { name, rounds: done.len(), rows: rows(&done) })
}

/// Half of the window for each kind of call.
fn half(window: Duration) -> Result<Half> {
    let mut null = File::options().write(true).open("/dev/null").context("cannot open /dev/null")?;
    let getppid = time(window / 2, || {
        // SAFETY: it has no arguments and cannot fail.
        black_box(unsafe { libc::syscall(libc::SYS_getppid) });
        Ok(())
    })?;
    let write = time(window / 2, || Ok(null.write_all(b"x")?))?;
    Ok(Half { getppid, write })
}

/// Nanoseconds of one call, the least of all batches: what else runs on this machine can only add to it.
fn time(window: Duration, mut call: impl FnMut() -> Result<()>) -> Result<f64> {
    let begun = Instant::now();
    let mut least = Duration::MAX;
    while begun.elapsed() < window {
        let batch = Instant::now();
        for _ in 0..BATCH {
            call()?;
        }
        least = least.min(batch.elapsed());
    }
    Ok(least.as_secs_f64() * 1e9 / f64::from(BATCH))
}

fn rows(rounds: &[(Half, Half)]) -> Vec<Row> {
    let row = |name, figure: &dyn Fn(&(Half, Half)) -> f64| {
        Row::new(name, Unit::Nanoseconds, Estimate::median(rounds.iter().map(figure).collect()))
    };
    vec![
        row("getppid without plegtrace", &|(without, _)| without.getppid),
        row("getppid, added", &|(without, with)| with.getppid - without.getppid),
        row("write to /dev/null without", &|(without, _)| without.write),
        row("write to /dev/null, added", &|(without, with)| with.write - without.write),
    ]
}
