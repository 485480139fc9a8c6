//! How an observation ends: a last look, the probes off, the last picture.

use std::time::Duration;

use super::{AnyWatcher, Observation, Observed, left, progress::Progress};
use crate::{
    census,
    chain::chain,
    cli::Settings,
    clock,
    diagnose::diagnose,
    input::{Fact, RefusedFact, Stop, StopWhy},
    kernel::AttachMode,
    live::Live,
    probes::source_refused,
};

/// The report waits so long for probes that cannot come off at once.
const LEAVE: Duration = Duration::from_secs(1);

impl Observation {
    /// Takes a last look, takes the probes off, and draws the picture.
    pub(super) fn end(mut self, settings: &Settings, why: StopWhy, progress: &mut Progress) -> Observed {
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
    pub(super) fn end_watching(
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
        if why == StopWhy::Enough {
            // The last look is what made it enough; another one, which may be cut, could only take that away.
            self.take_census(true);
        } else {
            // Only now: it takes its time, and the node shall not carry the probes meanwhile.
            self.last_census(settings);
        }
        // Its child keeps what this observation has seen; another one sees for itself.
        census::end_idle();
        let now = seen_until.unwrap_or_else(clock::monotonic_ns);
        self.pipeline.fact(now, Fact::Stop(Stop { why }));
        progress.clear();
        now
    }

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
