//! One observation: looks for the node, puts the probes on, watches, draws the picture.

mod begin;
mod census;
pub(crate) mod checks;
mod confine;
mod error;
mod left;
mod needs;
mod pictures;
mod pipeline;
mod progress;
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

pub(crate) use crate::live::let_interrupts_end_us;
use crate::{
    census::CpuReader,
    chain::chain,
    cli::Settings,
    clock,
    correlate::{Pulse, Snapshot},
    diagnose::{Diagnosis, diagnose},
    flame::Flame,
    input::{Component, Fact, RefusedFact, Stop, StopWhy},
    kernel::AttachMode,
    live::Live,
    probes::{Probes, RuncFiles, source_refused},
    recording::Recorder,
    render::escape,
    words::human,
};
pub(crate) use confine::confine;
pub use error::EngineError;
pub use left::detach_rest;
use pictures::Pictures;
pub(crate) use pipeline::Pipeline;
pub use pipeline::Tap;
use progress::Progress;
use rounds::{Rounds, is_suspicious};
use stop::Interrupts;
pub(crate) use survey::Survey;
pub use survey::node_and_kernel;
use symbols::Symbols;
use targets::{Steps, warn};
pub(crate) use watcher::{AnyWatcher, Watcher};

/// Finished records are looked at this often; a thread takes them out of the ring meanwhile.
const DRAIN: Duration = Duration::from_millis(200);
/// Open calls are read this often.
const LOOK: Duration = Duration::from_secs(1);
/// Counters are read at each look, and this often while the node rests.
const COUNT_AT_REST: Duration = Duration::from_secs(5);
/// New processes are looked for this often even when no exec was seen; and where none can be seen.
const RESCAN: Duration = Duration::from_secs(120);
const RESCAN_BLIND: Duration = Duration::from_secs(15);
/// The report waits so long for probes that cannot come off at once.
const LEAVE: Duration = Duration::from_secs(1);
/// A century, as far as timers reach.
const ENDLESS: Duration = Duration::from_secs(100 * 365 * 86_400);
/// The node must have been watched this long before an early end.
const ENOUGH: Duration = Duration::from_secs(4);

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
    let mut interrupts = Interrupts::new().map_err(EngineError::Signals)?;
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
    live: Option<Live>,
    /// `None` when its phases are not followed.
    runc: Option<RuncFiles>,
    /// Kubelet and runtime as last seen, to notice when they go.
    alive: HashMap<u32, Component>,
    rescan: bool,
    /// What has gone and has no successor yet: it is looked for before each judgement, because the operator's word for
    /// it is a number, and the start of another is no news then.
    lost: Vec<Component>,
    census: Rounds,
    /// When the whole picture is drawn.
    pictures: Pictures,
    /// What the daemons get of the processors.
    cpu: CpuReader,
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

    /// Observes until there is a reason to stop.
    async fn run(
        &mut self,
        settings: &Settings,
        interrupts: &mut Interrupts,
        progress: &mut Progress,
        mut watcher: Option<&mut AnyWatcher>,
    ) -> Result<StopWhy, EngineError> {
        let began = Instant::now();
        let sees_execs = self.live.as_ref().is_some_and(Live::follows_processes);
        let rescan = if sees_execs { RESCAN } else { RESCAN_BLIND };
        let (mut drain, mut look, mut rescan) =
            (tokio::time::interval(DRAIN), tokio::time::interval(LOOK), tokio::time::interval(rescan));
        rescan.reset();
        let deadline = tokio::time::sleep(settings.duration);
        tokio::pin!(deadline);
        loop {
            tokio::select! {
                () = interrupts.next() => return Ok(StopWhy::Interrupt),
                () = &mut deadline => return Ok(StopWhy::Duration),
                _ = drain.tick() => {
                    self.drain();
                    self.take_census(false);
                }
                _ = rescan.tick() => self.rescan = true,
                _ = look.tick() => {
                    self.look(settings)?;
                    self.name_stacks(false);
                    self.collect(false);
                    let now = clock::monotonic_ns();
                    let pulse = self.pipeline.pulse(now);
                    let mut due = self.pictures.is_due(&pulse);
                    if let Some(watcher) = watcher.as_deref_mut() {
                        watcher.second(&mut self.pipeline, now, false);
                        due |= watcher.is_due(now);
                    }
                    if due && self.judge(settings, began.elapsed(), watcher.as_deref_mut()) {
                        return Ok(StopWhy::Enough);
                    }
                    if self.recorder.as_ref().is_some_and(|recorder| recorder.is_over()) {
                        return Ok(StopWhy::RecordingOver);
                    }
                    progress.tick(&self.line(&pulse, began.elapsed(), settings.duration));
                }
            }
        }
    }

    /// Looks at the whole picture: is another look of the census worth its price, and is all known that can be?
    fn judge(&mut self, settings: &Settings, elapsed: Duration, watcher: Option<&mut AnyWatcher>) -> bool {
        let snapshot = self.pipeline.snapshot(clock::monotonic_ns());
        let diagnosis = diagnose(&snapshot);
        self.pictures.showed(is_suspicious(&snapshot, &diagnosis));
        if let Some(watcher) = watcher {
            watcher.judged(&snapshot, &diagnosis, false);
        }
        self.census_again(settings, &snapshot, &diagnosis, false);
        !settings.to_the_end && self.is_enough(&snapshot, &diagnosis, elapsed, !settings.needs_kernel())
    }

    /// A cause that is settled, and was looked at twice, needs no more time; nor does a census that has nobody to wait for.
    fn is_enough(&self, snapshot: &Snapshot, diagnosis: &Diagnosis, elapsed: Duration, alone: bool) -> bool {
        let watched = elapsed >= ENOUGH && self.census.are_enough();
        watched && diagnosis.is_settled(snapshot) || alone && self.census.are_all()
    }

    fn line(&self, pulse: &Pulse, elapsed: Duration, of: Duration) -> String {
        let recorded = self.recorder.as_ref().map(|recorder| human::size(recorder.bytes()));
        format!(
            "observing {:.0} of {:.0} s, {} relists, {} calls open{}   (Ctrl-C: report now)",
            elapsed.as_secs_f64(),
            of.as_secs_f64(),
            pulse.relists,
            pulse.open,
            recorded.map_or_else(String::new, |size| format!(", {size} recorded")),
        )
    }

    /// Takes what has ended, before it is forgotten.
    fn collect(&mut self, last: bool) {
        if let Some(flame) = self.flame.as_mut() {
            self.pipeline.collect(flame, last);
        }
    }

    fn drain(&mut self) {
        let Some(live) = self.live.as_mut() else { return };
        let pipeline = &mut self.pipeline;
        let mut steps = Steps { rescan: &mut self.rescan, runc: self.runc.as_ref(), exited: Vec::new() };
        live.drain(&mut |item| pipeline.read(item, &mut |event| steps.see(event)));
        for tgid in steps.exited.into_iter().filter(|tgid| self.alive.contains_key(tgid)) {
            warn(live.sweep(tgid));
        }
        self.give_way();
        self.follow_late();
        self.follow_runc();
    }

    /// Has the places where goroutines park named; the last time it waits for the names.
    fn name_stacks(&mut self, last: bool) {
        for again in [false, true] {
            for fact in self.symbols.take(last) {
                self.pipeline.fact(clock::monotonic_ns(), Fact::Symbols(fact));
            }
            if !again {
                self.symbols.ask(self.pipeline.unnamed(), &self.probes, last);
            }
        }
    }

    /// Reads what is open, and follows targets that came or went.
    fn look(&mut self, settings: &Settings) -> Result<(), EngineError> {
        if let Some(live) = self.live.as_mut() {
            let pipeline = &mut self.pipeline;
            let mut steps = Steps { rescan: &mut self.rescan, runc: self.runc.as_ref(), exited: Vec::new() };
            live.read_in_flight(&mut |item| pipeline.read(item, &mut |event| steps.see(event)))?;
            let exited = steps.exited;
            for tgid in exited.into_iter().filter(|tgid| self.alive.contains_key(tgid)) {
                warn(live.sweep(tgid));
            }
        }
        let at_rest = self.pictures.is_at_rest();
        if !at_rest || self.counted.is_none_or(|last| last.elapsed() >= COUNT_AT_REST) {
            self.counted = Some(Instant::now());
            if let Some(live) = self.live.as_mut() {
                let pipeline = &mut self.pipeline;
                live.read_counters(&mut |item| pipeline.read(item, &mut |_| {}))?;
            }
            self.read_cpu();
        }
        self.tell_shed();
        if std::mem::take(&mut self.rescan) {
            self.follow(settings)?;
        }
        Ok(())
    }

    /// Reads what kubelet and runtime get of the processors.
    fn read_cpu(&mut self) {
        let mut pids: Vec<u32> = self.alive.keys().copied().collect();
        pids.sort_unstable();
        let now = clock::monotonic_ns();
        let fact = self.cpu.read(&pids, now);
        self.pipeline.fact(now, Fact::Cpu(fact));
    }

    /// Takes a last look, takes the probes off, and draws the picture.
    fn end(mut self, settings: &Settings, why: StopWhy, progress: &mut Progress) -> Observed {
        let now = self.stop(settings, why, progress);
        self.collect(true);
        let snapshot = self.pipeline.snapshot(now);
        let flame = self.flame.map(|mut flame| {
            flame.add_open(&snapshot);
            flame
        });
        Observed { snapshot, flame }
    }

    /// The same for the last window.
    fn end_watching(
        mut self,
        settings: &Settings,
        why: StopWhy,
        progress: &mut Progress,
        watcher: &mut AnyWatcher,
    ) {
        let now = self.stop(settings, why, progress);
        watcher.second(&mut self.pipeline, now, true);
        let snapshot = self.pipeline.snapshot(now);
        watcher.judged(&snapshot, &diagnose(&snapshot), true);
    }

    /// Takes a last look, and the probes off; the moment when observing ended.
    fn stop(&mut self, settings: &Settings, why: StopWhy, progress: &mut Progress) -> u64 {
        // What is seen ends here: taking perf events off can take longer than the observation.
        let mut seen_until = None;
        if let Some(mut live) = self.live.take() {
            let pipeline = &mut self.pipeline;
            let last = live
                .read_in_flight(&mut |item| pipeline.read(item, &mut |_| {}))
                .and_then(|()| live.read_counters(&mut |item| pipeline.read(item, &mut |_| {})));
            if let Err(error) = last {
                tracing::warn!("{}", chain(&error));
            }
            self.read_cpu();
            seen_until = Some(clock::monotonic_ns());
            progress.step(&taking_off(self.probes.sites(), live.mode()));
            self.leave(live);
        }
        self.name_stacks(true);
        // Only now: it takes its time, and the node shall not carry the probes meanwhile.
        self.last_census(settings);
        let now = seen_until.unwrap_or_else(clock::monotonic_ns);
        self.pipeline.fact(now, Fact::Stop(Stop { why }));
        progress.clear();
        now
    }
}

impl Observation {
    /// Takes the probes off; later, when it would stop the node now.
    fn leave(&mut self, live: Live) {
        let Err(hazard) = live.wait_until_free(LEAVE) else { return drop(live) };
        let why = format!("still attached when this report was written: {hazard}");
        let fact =
            RefusedFact { what: "detaching".to_owned(), matters: false, ..source_refused("uprobes", &why) };
        self.pipeline.fact(clock::monotonic_ns(), Fact::Refused(fact));
        left::keep(live);
    }
}

fn taking_off(sites: usize, mode: AttachMode) -> String {
    match mode {
        AttachMode::Multi => format!("detaching {sites} probes"),
        AttachMode::PerfCookie | AttachMode::PerfAddress => {
            format!("detaching {sites} probes, about {} s on this kernel", sites.div_ceil(9))
        }
    }
}
