//! The census of an observation: when a round begins, and what becomes of its facts.

use super::{
    Observation,
    rounds::{Depth, may_ask},
    survey::Survey,
};
use crate::{
    cli::Settings,
    clock,
    correlate::Snapshot,
    diagnose::{Diagnosis, diagnose},
    input::Fact,
    target::root_of,
};

impl Observation {
    /// Looks at what is stuck already, beside everything else.
    pub(super) fn begin_census(&mut self, settings: &Settings, depth: Depth, asks: bool) {
        if !settings.census {
            return self.refuse_source("census");
        }
        let first = self.census.is_first();
        let Some(request) = self.survey.census(settings, depth, first, asks) else {
            return self.refuse("census", "no program to take it with was given");
        };
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
        if !serves && let Ok(survey) = Survey::take(settings) {
            self.survey = survey;
        }
        self.begin_census(settings, depth, may_ask(snapshot));
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
