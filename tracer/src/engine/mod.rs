//! One observation: looks for the node, puts the probes on, watches, draws the picture.

mod begin;
mod census;
pub(crate) mod checks;
mod confine;
mod cycle;
mod dying;
mod ending;
mod error;
mod left;
mod needs;
mod pictures;
mod pipeline;
mod progress;
mod recognised;
mod rounds;
mod shed;
mod stop;
mod survey;
mod symbols;
mod targets;
mod watcher;

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

pub(crate) use crate::live::let_interrupt_end_us;
use crate::{
    census::{CpuReader, HaltWatch},
    chain::chain,
    cli::Settings,
    correlate::Snapshot,
    flame::Flame,
    input::Component,
    kernel::AttachMode,
    live::{Live, OpenBus},
    probes::{Probes, RuncFiles},
    recording::Recorder,
    render::escape,
};
pub(crate) use confine::confine;
use dying::Dying;
pub use error::EngineError;
pub use left::detach_rest;
use pictures::Pictures;
pub(crate) use pipeline::Pipeline;
pub use pipeline::Tap;
use progress::Progress;
pub(crate) use recognised::Recognised;
use rounds::Rounds;
use stop::Interrupts;
pub(crate) use survey::Survey;
pub use survey::node_and_kernel;
use symbols::Symbols;
pub(crate) use watcher::{AnyWatcher, Watcher};

/// A century, as far as timers reach.
const ENDLESS: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Observes this machine as the one-shot does; `tap` sees every record of the input stream.
///
/// # Errors
///
/// plegtrace cannot run here, or there is nothing to trace.
pub fn observe(settings: &Settings, tap: Option<Tap>) -> Result<Snapshot, EngineError> {
    Ok(observe_in(settings, ready(settings)?, tap, None)?.snapshot)
}

/// What came of an observation.
pub(crate) struct Observed {
    /// The node at its end.
    pub(crate) snapshot: Snapshot,
    /// Where the time of relists and requests went, when that is what the settings ask for.
    pub(crate) flame: Option<Flame>,
}

/// How probes will be attached here.
///
/// # Errors
///
/// plegtrace cannot run here.
pub(crate) fn ready(settings: &Settings) -> Result<AttachMode, EngineError> {
    // The census works where nothing can be loaded; no mode is used then.
    if settings.needs_kernel() { checks::ready(settings) } else { Ok(AttachMode::Multi) }
}

/// Observes; ends early when the recorder has no use for more.
///
/// # Errors
///
/// Something that is needed cannot be done.
pub(crate) fn observe_in(
    settings: &Settings,
    mode: AttachMode,
    tap: Option<Tap>,
    recorder: Option<Arc<Recorder>>,
) -> Result<Observed, EngineError> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(EngineError::EventLoop)?;
    runtime.block_on(observe_here(settings, mode, tap, recorder))
}

async fn observe_here(
    settings: &Settings,
    mode: AttachMode,
    tap: Option<Tap>,
    recorder: Option<Arc<Recorder>>,
) -> Result<Observed, EngineError> {
    // First of all: a Ctrl-C while arming ends the observation at once, with a report.
    let mut interrupts = Interrupts::new().map_err(EngineError::Signals)?;
    let mut progress = Progress::new(settings.quiet);
    let mut observation = Observation::begin(settings, mode, tap, recorder, &mut progress)?;
    let seconds = settings.duration.as_secs_f64();
    observation.set_out(settings, mode, &format!("observing for {seconds:.0} s"), &mut progress)?;
    let why = observation.run(settings, &mut interrupts, &mut progress, None).await?;
    Ok(observation.end(settings, why, &mut progress))
}

/// Observes until a signal comes, and waits where there is nothing to observe yet.
///
/// # Errors
///
/// Something that is needed cannot be done.
pub(crate) fn watch(
    settings: &Settings,
    mode: AttachMode,
    watcher: &mut AnyWatcher,
) -> Result<(), EngineError> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(EngineError::EventLoop)?;
    // Longer than any machine runs.
    let settings = Settings { duration: ENDLESS, to_the_end: true, ..settings.clone() };
    runtime.block_on(watch_here(&settings, mode, watcher))
}

async fn watch_here(
    settings: &Settings,
    mode: AttachMode,
    watcher: &mut AnyWatcher,
) -> Result<(), EngineError> {
    let interrupts =
        if watcher.is_a_screen() { Interrupts::of_a_screen() } else { Interrupts::of_a_service() };
    let mut interrupts = interrupts.map_err(EngineError::Signals)?;
    let mut progress = Progress::new(settings.quiet);
    let mut told = String::new();
    let mut observation = loop {
        match Observation::begin(settings, mode, Some(watcher.tap()), None, &mut progress) {
            Ok(observation) => break observation,
            Err(error) if error.may_pass() => {
                let why = chain(&error);
                watcher.waits(&why);
                if told != why {
                    progress.step(&format!("waiting: {}", escape::line(&why)));
                    told = why;
                }
            }
            Err(error) => return Err(error),
        }
        tokio::select! {
            () = interrupts.next() => return Ok(()),
            () = tokio::time::sleep(watcher.pause()) => {}
        }
    };
    observation.set_out(settings, mode, "watching", &mut progress)?;
    let why = observation.run(settings, &mut interrupts, &mut progress, Some(watcher)).await?;
    observation.end_watching(settings, why, &mut progress, watcher);
    Ok(())
}

/// One observation.
struct Observation {
    pipeline: Pipeline,
    probes: Probes,
    survey: Survey,
    /// What processes are whose names do not tell.
    recognised: Recognised,
    live: Option<Live>,
    /// Without it: calls over D-Bus that goroutines wait for.
    bus: OpenBus,
    /// `None` when its phases are not followed.
    runc: Option<RuncFiles>,
    /// Kubelet and runtime as last seen, to notice when they go.
    alive: HashMap<u32, Component>,
    /// Those of them that have ended, and are still there.
    dying: Dying,
    rescan: bool,
    /// What has gone and has no successor yet: it is looked for before each judgement, because the operator's word for
    /// it is a number, and the start of another is no news then.
    lost: Vec<Component>,
    census: Rounds,
    /// When the whole picture is drawn.
    pictures: Pictures,
    /// What the daemons get of the processors.
    cpu: CpuReader,
    /// Which daemons have stopped since the last second.
    halts: HaltWatch,
    /// When the counters were last read.
    counted: Option<Instant>,
    /// Writes what the tap sees.
    recorder: Option<Arc<Recorder>>,
    symbols: Symbols,
    /// Where the time of relists and requests goes; `None` when nobody asks.
    flame: Option<Flame>,
}

impl Observation {
    /// Puts the probes on, or says why there are none.
    fn set_out(
        &mut self,
        settings: &Settings,
        mode: AttachMode,
        what: &str,
        progress: &mut Progress,
    ) -> Result<(), EngineError> {
        if settings.needs_kernel() {
            self.arm(settings, mode, progress)?;
            progress.step(&format!("armed: {} probes; {what}", self.probes.sites()));
        } else {
            self.refuse_source("uprobes");
            self.refuse_parks();
            self.refuse_source("processes");
            self.tell_targets();
            progress.step("inspecting processes, sockets, cgroups and goroutines");
        }
        Ok(())
    }
}
