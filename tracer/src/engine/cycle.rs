//! What an observation does again and again until there is a reason to stop: it drains, looks, and judges.

use std::time::{Duration, Instant};

use super::{
    AnyWatcher, EngineError, Observation,
    progress::Progress,
    rounds::is_suspicious,
    stop::Interrupts,
    targets::{Steps, warn},
};
use crate::{
    cli::Settings,
    clock,
    correlate::{Pulse, Snapshot},
    diagnose::{Diagnosis, Doubt, Sign, diagnose},
    input::{Fact, StopWhy},
    live::Live,
    probes::give_memory_back,
    words::human,
};

/// Finished records are looked at this often; a thread takes them out of the ring meanwhile.
const DRAIN: Duration = Duration::from_millis(200);
/// Open calls are read this often.
const LOOK: Duration = Duration::from_secs(1);
/// The same at the start of an observation that ends as soon as it has an answer, while something looks stuck.
const SHORT_LOOK: Duration = Duration::from_millis(200);
/// Counters are read at each look, and this often while the node rests.
const COUNT_AT_REST: Duration = Duration::from_secs(5);
/// New processes are looked for this often even when no exec was seen; and where none can be seen.
const RESCAN: Duration = Duration::from_secs(120);
const RESCAN_BLIND: Duration = Duration::from_secs(15);
/// While something shows a kubelet or runtime that is not known, it is looked for this often.
const SIGN_AGAIN: Duration = Duration::from_secs(10);
/// What was freed goes back to the node this often: a month of upgrades leaves the allocator's memory in pieces.
const GIVE_BACK: Duration = Duration::from_secs(60);
/// The node must have been watched this long before an early end, unless what holds it up is proved to be older.
const ENOUGH: Duration = Duration::from_secs(4);

impl Observation {
    /// Observes until there is a reason to stop.
    pub(super) async fn run(
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
        let mut give_back = tokio::time::interval(GIVE_BACK);
        rescan.reset();
        let deadline = tokio::time::sleep(settings.duration);
        tokio::pin!(deadline);
        loop {
            tokio::select! {
                () = interrupts.next() => return Ok(StopWhy::Interrupt),
                () = &mut deadline => return Ok(StopWhy::Duration),
                _ = drain.tick() => {
                    self.drain();
                    // Somebody waits for what the census has found.
                    if self.take_census(false) && !settings.to_the_end {
                        look.reset_immediately();
                    }
                }
                _ = rescan.tick() => self.rescan = true,
                _ = give_back.tick() => give_memory_back(),
                _ = look.tick() => {
                    self.look(settings)?;
                    self.name_stacks(false);
                    self.collect(false);
                    if self.halts.is_new() && self.census.hurry() {
                        self.pictures.something_new();
                    }
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
                    if let Some(soon) = self.next_look(settings, began.elapsed(), &pulse) {
                        look.reset_after(soon);
                    }
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
        self.look_for_kubelet(&diagnosis);
        self.census_again(settings, &snapshot, &diagnosis, false);
        !settings.to_the_end && self.is_enough(&snapshot, &diagnosis, elapsed, !settings.needs_kernel())
    }

    /// Somebody asks the runtime as a kubelet does, or listens as one: it may be the kubelet, and where it is not, it may be gone soon.
    fn look_for_kubelet(&mut self, diagnosis: &Diagnosis) {
        let unknown = |doubt: &Doubt| match doubt {
            Doubt::KubeletUnknown { sign } | Doubt::RuntimeUnknown { sign } => Some(sign.clone()),
            _ => None,
        };
        for sign in diagnosis.doubts.iter().filter_map(unknown) {
            let news = matches!(sign, Sign::Lists { pid, .. } if self.recognised.suspect(pid));
            self.rescan |= news || self.survey.is_older(SIGN_AGAIN);
        }
    }

    /// A cause that is settled, and was looked at twice, needs no more time; nor does a census that has nobody to wait for.
    /// One that is proved does not even need that.
    fn is_enough(&self, snapshot: &Snapshot, diagnosis: &Diagnosis, elapsed: Duration, alone: bool) -> bool {
        let watched = elapsed >= ENOUGH && self.census.are_enough();
        let proved = !alone && self.census.is_idle() && diagnosis.is_proved(snapshot);
        proved || watched && diagnosis.is_settled(snapshot) || alone && self.census.are_all()
    }

    /// When the next look is due, if that is before [`LOOK`]: somebody waits for an answer, or something that is open is late
    /// then.
    fn next_look(&self, settings: &Settings, elapsed: Duration, pulse: &Pulse) -> Option<Duration> {
        let waits = !settings.to_the_end && self.pictures.is_suspicious();
        if waits && (elapsed < ENOUGH || self.census.is_hasty()) {
            return Some(SHORT_LOOK);
        }
        let until = Duration::from_nanos(pulse.until_late_ns?);
        (until < LOOK).then_some(until.max(SHORT_LOOK))
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
    pub(super) fn collect(&mut self, last: bool) {
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
            self.dying.note(tgid, &self.survey.node.processes);
            warn(live.sweep(tgid));
        }
        self.give_way();
        self.follow_late();
        self.follow_runc();
    }

    /// Has the places where goroutines park named; the last time it waits for the names.
    pub(super) fn name_stacks(&mut self, last: bool) {
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
                self.dying.note(tgid, &self.survey.node.processes);
                warn(live.sweep(tgid));
            }
        } else {
            let now = clock::monotonic_ns();
            let waits = self.bus.fact(now, None);
            waits.into_iter().for_each(|fact| self.pipeline.fact(now, Fact::BusCalls(fact)));
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
    pub(super) fn read_cpu(&mut self) {
        let mut pids: Vec<u32> = self.alive.keys().copied().collect();
        pids.sort_unstable();
        let now = clock::monotonic_ns();
        let fact = self.cpu.read(&pids, now);
        self.pipeline.fact(now, Fact::Cpu(fact));
    }
}
