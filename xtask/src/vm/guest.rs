//! A machine → what it printed and how it ended. It ends by itself, or by its budget, or because its kernel died.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Child;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::console::{Follow, Watch};
use super::qemu::Machine;

/// How often the console is looked at while the guest says nothing.
const TICK: Duration = Duration::from_millis(250);

/// How long a guest may take to power off after its verdict.
const POWER_OFF: Duration = Duration::from_secs(30);

/// What a guest left behind.
#[derive(Debug, Default)]
pub(crate) struct Transcript {
    /// Lines of the second serial port.
    pub(crate) lines: Vec<String>,
    /// Why we ended it; `None` when it ended by itself.
    pub(crate) ended: Option<String>,
}

/// Runs a guest to its end; `seen` is called with each line as it comes.
///
/// # Errors
/// When QEMU cannot be started or waited for.
pub(crate) fn run(machine: &Machine, budget: Duration, mut seen: impl FnMut(&str)) -> Result<Transcript> {
    // A console of an earlier run must not be taken for this one's.
    std::fs::write(&machine.console, "")
        .with_context(|| format!("cannot write {}", machine.console.display()))?;
    let mut child = machine.start()?;
    let lines = reader(&mut child)?;
    let mut transcript = Transcript::default();
    let mut follow = Follow::new(&machine.console);
    let mut watch = Watch::default();
    let mut deadline = Instant::now() + budget;
    let mut verdict = false;
    transcript.ended = loop {
        match lines.recv_timeout(TICK) {
            Ok(line) => {
                seen(&line);
                if line.starts_with("VM-VERDICT") && !verdict {
                    verdict = true;
                    deadline = deadline.min(Instant::now() + POWER_OFF);
                }
                transcript.lines.push(line);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break None,
        }
        if let Some(line) = follow.lines().iter().find_map(|line| watch.line(line)) {
            break Some(died(&line));
        }
        if Instant::now() > deadline {
            break if verdict { None } else { Some(format!("no end within {} s", budget.as_secs())) };
        }
    };
    // Already gone when it powered off; then kill has nothing to do.
    drop(child.kill());
    child.wait().context("cannot wait for qemu-system-x86_64")?;
    // A panic ends QEMU at once, before we could see it.
    let last = follow.lines().iter().find_map(|line| watch.line(line));
    transcript.ended = transcript.ended.or(last.as_deref().map(died));
    if transcript.lines.is_empty() && transcript.ended.is_none() {
        transcript.ended = Some(complaint(&mut child));
    }
    Ok(transcript)
}

fn died(line: &str) -> String {
    format!("the kernel died: {line}")
}

fn reader(child: &mut Child) -> Result<Receiver<String>> {
    let out = child.stdout.take().context("QEMU has no standard output")?;
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(out).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).trim().to_owned();
            if !line.is_empty() && sender.send(line).is_err() {
                return;
            }
        }
    });
    Ok(receiver)
}

/// QEMU's own words when the guest said nothing.
fn complaint(child: &mut Child) -> String {
    let mut text = String::new();
    if let Some(stderr) = &mut child.stderr {
        drop(stderr.read_to_string(&mut text));
    }
    let text = text.trim();
    if text.is_empty() { "the guest ended without a word".to_owned() } else { format!("QEMU: {text}") }
}
