//! The census of an observation: when a round begins, and what becomes of its facts.

use super::{
    Observation,
    rounds::{Depth, may_ask},
};
use crate::{
    census::{GOROUTINES, HANGS},
    cli::Settings,
    clock,
    correlate::Snapshot,
    diagnose::{Diagnosis, diagnose},
    input::Fact,
    stuck::{plugins_are_awaited, shims_to_read},
    target::root_of,
};

/// Shims whose goroutines are read in one round.
const MAX_SHIMS: usize = 2;

/// What a round looks at beside what each does.
#[derive(Debug)]
pub(super) struct Wants {
    /// The runtime may be asked for its containers.
    asks: bool,
    /// Shims whose goroutines would tell more.
    shims: Vec<u32>,
    /// Who is at the other ends of the kubelet's connections to its plugins.
    plugins: bool,
    /// Processes whose reader hung in the kernel the last time, so that it could not even be killed: a calm round leaves them alone.
    silent: Vec<u32>,
}

impl Wants {
    /// What the first round wants.
    pub(super) fn first() -> Self {
        Self { asks: true, shims: Vec::new(), plugins: false, silent: Vec::new() }
    }

    /// What the last rounds give reason to want.
    fn of(snapshot: &Snapshot) -> Self {
        let unanswered = snapshot.census.round.iter().flat_map(|round| &round.unanswered);
        let silent =
            unanswered.filter(|one| one.what == GOROUTINES && one.why.ends_with(HANGS)).map(|one| one.pid);
        Self {
            asks: may_ask(snapshot),
            shims: shims_to_read(snapshot),
            plugins: plugins_are_awaited(snapshot),
            silent: silent.collect(),
        }
    }
}

impl Observation {
    /// Looks at what is stuck already, beside everything else.
    pub(super) fn begin_census(&mut self, settings: &Settings, depth: Depth, wants: &Wants) {
        if !settings.census {
            return self.refuse_source("census");
        }
        let first = self.census.is_first();
        let Some(mut request) = self.survey.census(settings, depth, first, wants.asks) else {
            return self.refuse("census", "no program to take it with was given");
        };
        if depth == Depth::Goroutines {
            request.goroutines.extend(wants.shims.iter().take(MAX_SHIMS));
        }
        // What is pulled, or waits for the API server, when we come is not known before the first look.
        request.connections = first || self.census.wants_connections();
        request.goroutines.retain(|pid| depth == Depth::Goroutines || !wants.silent.contains(pid));
        request.plugins = wants.plugins;
        request.tries_seccomp = first || self.census.tries_seccomp();
        if let Err(error) = self.census.begin(request) {
            self.refuse("census", &error.to_string());
        }
    }

    /// Another round, on the processes of now, when one is due.
    pub(super) fn census_again(
        &mut self,
        settings: &Settings,
        snapshot: &Snapshot,
        diagnosis: &Diagnosis,
        last: bool,
    ) {
        let Some(depth) = self.census.due(snapshot, diagnosis, !settings.needs_kernel(), last) else {
            return;
        };
        let serves = !last && depth == Depth::Processes && self.survey.is_fresh();
        if !serves && let Ok(mut survey) = self.recognised.survey(settings) {
            self.dying.leave_out(&mut survey.node.processes);
            self.survey = survey;
            self.rescan |= self.survey.daemons().any(|pid| !self.alive.contains_key(&pid));
        }
        self.census.look_for_failed_starts(snapshot);
        self.census.look_for_connections(snapshot);
        self.begin_census(settings, depth, &Wants::of(snapshot));
    }

    /// The last look, so that the report is of now; it has its own deadlines.
    pub(super) fn last_census(&mut self, settings: &Settings) {
        self.take_census(true);
        let snapshot = self.pipeline.snapshot(clock::monotonic_ns());
        self.census_again(settings, &snapshot, &diagnose(&snapshot), true);
        self.take_census(true);
    }

    /// Takes what a round has found when it is over; was one?
    pub(super) fn take_census(&mut self, wait: bool) -> bool {
        let facts = self.census.take(wait);
        let any = !facts.is_empty();
        for fact in facts {
            self.pictures.something_new();
            if let Fact::Goroutines(look) = &fact {
                match &mut self.live {
                    Some(live) => live.read_goroutines(look),
                    None => self.bus.read_goroutines(look, false),
                }
            }
            if let Fact::Process(process) = &fact {
                self.halts.found(process);
                if let Some(group) = &process.cpu_group {
                    let root = root_of(self.survey.files_of());
                    self.cpu.belongs(process.pid, &root.join(group.trim_start_matches('/')));
                }
            }
            self.pipeline.fact(clock::monotonic_ns(), fact);
        }
        any
    }
}
