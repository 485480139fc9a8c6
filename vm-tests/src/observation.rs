//! A one-shot of plegtrace in a thread of its own, and the records it has seen so far.

use std::collections::HashMap;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use plegtrace::cli::{Attach, Color, Output, Settings, SocketBackend};
use plegtrace::correlate::Snapshot;
use plegtrace::decode::{BusCall, Call, Event, decode};
use plegtrace::engine::{self, EngineError};
use plegtrace::input::{Armed, Fact, Frame, HookCounters, HookFact, Layer, LossCount};

use crate::feature::Feature;
use crate::kernel::KernelVersion;
use crate::wait::BUDGET;

/// Longer than the guest may live: a test ends the observation itself.
pub(crate) const ENDLESS: Duration = Duration::from_secs(3600);

/// Has the kernel left out runs of our programs, as it does from Linux 7.0 on (decision 0089), and is that told?
///
/// # Errors
/// When the version of the kernel cannot be read.
pub fn runs_are_left_out(snapshot: &Snapshot) -> Result<bool> {
    let is_preempted = KernelVersion::running()? >= Feature::PreemptedMaps.since();
    Ok(is_preempted && snapshot.real_losses().any(|loss| loss.reason == "recursion"))
}

/// What came through the input stream.
#[derive(Debug, Default)]
pub struct Seen {
    /// Every hook by its number.
    pub hooks: HashMap<u32, HookFact>,
    /// How the probes are attached.
    pub armed: Option<Armed>,
    /// The open calls were read once, so the observation is under way.
    pub running: bool,
    /// Calls that ended, in the order of the stream.
    pub calls: Vec<Call>,
    /// Answered calls over D-Bus, in the order of the stream.
    pub bus_calls: Vec<BusCall>,
    /// When systemd was looked at, because a call over D-Bus waits for it; nanoseconds.
    pub systemd_looks: Vec<u64>,
    /// When the last round of the census began; nanoseconds.
    pub looked_ns: u64,
    /// Rounds of the census in which the kernel took no seccomp filter.
    pub filters_refused: usize,
    /// The last counters of each hook.
    pub counters: Vec<HookCounters>,
    /// Why each thing that was refused was.
    pub refused: Vec<String>,
    /// The last counts of what was lost.
    pub losses: Vec<LossCount>,
}

impl Seen {
    /// Finished CRI handlers with their method.
    pub fn handlers(&self) -> impl Iterator<Item = (&str, &Call)> {
        self.calls.iter().filter_map(|call| {
            let hook = self.hooks.get(&call.hook).filter(|hook| hook.layer == Layer::Handler)?;
            Some((hook.operation.as_str(), call))
        })
    }

    fn take(&mut self, frame: &Frame) -> Result<()> {
        match decode(frame).context("a record cannot be decoded")? {
            Event::Call(call) => self.calls.push(call),
            Event::BusCall(call) => self.bus_calls.push(call),
            Event::Park(_) | Event::Process(_) | Event::Message(_) | Event::Request(_) | Event::Docker(_) => {
            }
            Event::Fact { fact, .. } => match *fact {
                Fact::Hook(hook) => drop(self.hooks.insert(hook.index, hook)),
                Fact::Armed(armed) => self.armed = Some(armed),
                Fact::Refused(refused) => self.refused.push(refused.why),
                Fact::InFlight(_) => self.running = true,
                Fact::BusCalls(bus) if bus.peers.iter().any(|peer| peer.is_init) => {
                    self.systemd_looks.push(bus.at_ns);
                }
                Fact::Census(round) => {
                    self.looked_ns = round.began_ns;
                    self.filters_refused += usize::from(round.seccomp.is_some());
                }
                Fact::Counters { hooks } => self.counters = hooks,
                Fact::Loss { counts } => self.losses = counts,
                _ => {}
            },
        }
        Ok(())
    }
}

/// An observation under way; dropping it takes the probes off.
#[derive(Debug)]
pub struct Observation {
    /// `None` once it has been joined.
    thread: Option<JoinHandle<Result<Snapshot, EngineError>>>,
    frames: Receiver<Frame>,
    seen: Seen,
}

impl Observation {
    /// Starts plegtrace and waits until its probes are on and it observes.
    ///
    /// # Errors
    /// When it ends instead, with its reason.
    pub fn begin(attach: Attach) -> Result<Self> {
        Self::begin_with(settings(attach))
    }

    /// The same with settings of the test's own.
    ///
    /// # Errors
    /// As [`Self::begin`].
    pub fn begin_with(settings: Settings) -> Result<Self> {
        let (sender, frames) = mpsc::channel();
        let tap = move |frame: &Frame| drop(sender.send(frame.clone()));
        let thread = thread::spawn(move || engine::observe(&settings, Some(Box::new(tap))));
        Self { thread: Some(thread), frames, seen: Seen::default() }
            .until("plegtrace to observe", |seen| seen.running)
    }

    /// Waits until what was seen is as wanted.
    ///
    /// # Errors
    /// When the budget is used up or plegtrace ends.
    pub fn until(mut self, what: &str, done: impl Fn(&Seen) -> bool) -> Result<Self> {
        let deadline = Instant::now() + BUDGET;
        while !done(&self.seen) {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.frames.recv_timeout(left) {
                Ok(frame) => self.seen.take(&frame)?,
                Err(RecvTimeoutError::Timeout) => {
                    let Seen { calls, losses, .. } = &self.seen;
                    bail!("waited {} s for {what}; {} calls, {losses:?}", BUDGET.as_secs(), calls.len());
                }
                Err(RecvTimeoutError::Disconnected) => {
                    self.join()?;
                    bail!("plegtrace ended while we waited for {what}");
                }
            }
        }
        Ok(self)
    }

    /// What was seen so far.
    #[must_use]
    pub fn seen(&self) -> &Seen {
        &self.seen
    }

    /// Ends the observation as an operator would and waits until the probes are off.
    ///
    /// # Errors
    /// When plegtrace fails.
    pub fn end(mut self) -> Result<(Snapshot, Seen)> {
        let snapshot = self.stop()?;
        // plegtrace is gone, so these are all.
        for frame in self.frames.try_iter() {
            self.seen.take(&frame)?;
        }
        Ok((snapshot, std::mem::take(&mut self.seen)))
    }

    /// Waits until it ends by itself.
    ///
    /// # Errors
    /// When plegtrace fails.
    pub fn ended(mut self) -> Result<Snapshot> {
        self.join()
    }

    fn stop(&mut self) -> Result<Snapshot> {
        // SAFETY: no memory is involved; plegtrace has taken the signal over before it began to observe.
        let sent = unsafe { libc::kill(libc::getpid(), libc::SIGTERM) };
        ensure!(sent == 0, "cannot signal ourselves");
        self.join()
    }

    fn join(&mut self) -> Result<Snapshot> {
        let thread = self.thread.take().context("plegtrace has already ended")?;
        match thread.join() {
            Ok(result) => result.context("plegtrace failed"),
            Err(_) => bail!("plegtrace panicked"),
        }
    }
}

impl Drop for Observation {
    fn drop(&mut self) {
        // A failed test must not leave probes behind for the next one; before it observes, a signal would end us.
        if self.thread.is_some() && self.seen.running {
            drop(self.stop());
        }
    }
}

/// A one-shot of everything that the kernel side tells, until it is ended.
pub(crate) fn settings(attach: Attach) -> Settings {
    Settings {
        per_relist: false,
        against: None,
        otlp: None,
        duration: ENDLESS,
        to_the_end: true,
        output: Output::Text,
        uprobes: true,
        parks: true,
        processes: true,
        wire: false,
        wire_named: true,
        census: false,
        census_program: None,
        dry_run: false,
        kubelet_pid: None,
        runtime_pid: None,
        runtime_endpoint: None,
        attach,
        socket_backend: SocketBackend::Auto,
        color: Color::Never,
        quiet: true,
        verbose: 0,
        show: Vec::new(),
        without: Vec::new(),
        park_budget: u64::MAX,
        syscall_budget: u64::MAX,
        ring_bytes: None,
        hook_slots: None,
    }
}
