//! Kubelet, runtime and shims while an observation goes on: who came, who went, who follows whom.

use plegtrace_common::role::Role;

use super::{EngineError, Observation, Recognised, survey::Survey};
use crate::{
    chain::chain,
    cli::Settings,
    clock,
    decode::{Event, Process, Step},
    input::{Component, Fact, Layer, RefusedFact, TargetGone},
    kernel::{AttachMode, KernelError},
    probes::{RuncFiles, can_tell_copies, copies_refused, source_refused},
    target::DiscoverError,
};

impl Observation {
    pub(super) fn tell_targets(&mut self) {
        let now = clock::monotonic_ns();
        for target in self.survey.targets(&self.probes, clock::boottime_offset_ns()) {
            if target.component == Component::Kubelet || target.component.role().is_runtime() {
                self.alive.insert(target.pid, target.component);
            }
            self.pipeline.fact(now, Fact::Target(target));
        }
    }

    /// Says where somebody listens as kubelets and runtimes do, if one of them is not known.
    pub(super) fn tell_listening(&mut self) {
        if let Some(listening) = self.survey.listening() {
            self.pipeline.fact(clock::monotonic_ns(), Fact::Listening(listening));
        }
    }

    /// Puts into the stream what is new about hooks and probes.
    pub(super) fn pass_on_facts(&mut self, mode: AttachMode) {
        let now = clock::monotonic_ns();
        for fact in self.probes.take_facts(mode.name()) {
            self.pipeline.fact(now, fact);
        }
    }

    /// Looks at the processes again: says who is gone, probes who is new.
    pub(super) fn follow(&mut self, settings: &Settings) -> Result<(), EngineError> {
        self.survey = survey_again(settings, &mut self.recognised)?;
        self.tell_listening();
        self.dying.leave_out(&mut self.survey.node.processes);
        let now_alive: Vec<u32> = self.survey.node.processes.iter().map(|p| p.pid).collect();
        let gone: Vec<(u32, Component)> =
            self.alive.iter().filter(|(pid, _)| !now_alive.contains(pid)).map(|(p, c)| (*p, *c)).collect();
        self.lost.extend(gone.iter().map(|(_, component)| *component).filter(|it| *it != Component::Shim));
        let found = self.survey.watched();
        self.lost.retain(|lost| !found.iter().any(|(_, component)| component == lost));
        self.rescan = !self.lost.is_empty();
        for (pid, component) in gone {
            self.alive.remove(&pid);
            let how = "ended".to_owned();
            let fact = Fact::TargetGone(TargetGone { component, pid, how });
            self.pipeline.fact(clock::monotonic_ns(), fact);
        }
        self.leave_the_ended();
        if settings.uprobes {
            self.probes.inspect(&self.survey.wanted());
            self.watch_all();
            self.attach();
        }
        // After watching: who ended between the survey and that has no end that the kernel side could see.
        if let Some(live) = self.live.as_mut() {
            warn(live.sweep_processes());
        }
        let fresh = self.survey.targets(&self.probes, clock::boottime_offset_ns());
        if fresh.iter().any(|t| !self.alive.contains_key(&t.pid) && t.component != Component::Shim) {
            self.tell_targets();
            self.ask_for_runc(settings);
        }
        Ok(())
    }
}

impl Observation {
    /// Takes the probes off from files whose last process has ended: they can be written to from now on.
    fn leave_the_ended(&mut self) {
        let processes = &self.survey.node.processes;
        self.probes.keep(|pid, component| {
            processes.iter().any(|p| p.pid == pid && Component::of_role(p.role) == Some(component))
        });
        self.give_way();
    }

    /// Takes probes off that shall not stay, and says how many are left.
    pub(super) fn give_way(&mut self) {
        let Some(live) = self.live.as_mut() else { return };
        let before = self.probes.sites();
        self.probes.give_way(live);
        if self.probes.sites() != before || self.probes.have_changed() {
            let mode = live.mode();
            self.pass_on_facts(mode);
        }
    }

    /// Attaches what is planned and not attached yet, and says what came of it.
    pub(super) fn attach(&mut self) {
        let Some(live) = self.live.as_mut() else { return };
        self.probes.attach(live);
        let mode = live.mode();
        self.pass_on_facts(mode);
    }

    /// Watches all that was found. A table that is full is no reason to stop: what is not followed is said.
    pub(super) fn watch_all(&mut self) {
        let Some(live) = self.live.as_mut() else { return };
        let all = self.survey.watched();
        let docker = all.iter().any(|(_, component)| *component == Component::Dockerd);
        for (pid, component) in all {
            if let Err(error) = live.watch(pid, component, docker) {
                let why = chain(&error);
                let fact = RefusedFact { component: Some(component), ..source_refused("processes", &why) };
                let fact = RefusedFact { what: format!("process {pid}"), ..fact };
                self.pipeline.fact(clock::monotonic_ns(), Fact::Refused(fact));
            }
        }
    }

    /// Begins to look for the files of runc. Its calls count only in processes that are watched.
    pub(super) fn look_for_runc(&mut self, settings: &Settings) {
        if !settings.uprobes || !settings.processes || settings.without.contains(&Layer::RuncPhase) {
            return;
        }
        if self.live.as_ref().is_some_and(|live| !can_tell_copies(live.mode())) {
            return self.pipeline.fact(clock::monotonic_ns(), Fact::Refused(copies_refused()));
        }
        match RuncFiles::start() {
            Ok(runc) => self.runc = Some(runc),
            Err(error) => return self.refuse("uprobes", &format!("cannot look for runc: {error}")),
        }
        self.ask_for_runc(settings);
    }

    fn ask_for_runc(&self, settings: &Settings) {
        if let (Some(runc), Some((request, pid))) = (&self.runc, self.survey.runtime_to_ask(settings)) {
            runc.runtime(request, pid);
        }
    }

    /// Probes the programs whose files have answered at last.
    pub(super) fn follow_late(&mut self) {
        if self.probes.take_late() {
            self.tell_targets();
            self.attach();
        }
    }

    /// Probes the files of runc that were found.
    pub(super) fn follow_runc(&mut self) {
        let found = self.runc.as_ref().map_or_else(Vec::new, RuncFiles::take);
        if !found.is_empty() {
            self.probes.take_files(found);
            self.attach();
        }
    }
}

/// After a restart a process that the operator named is gone; its successor is found by what it has to do with the
/// other one, which lives, else by name.
fn survey_again(settings: &Settings, recognised: &mut Recognised) -> Result<Survey, DiscoverError> {
    let kubelet = Settings { runtime_pid: None, ..settings.clone() };
    let runtime = Settings { kubelet_pid: None, ..settings.clone() };
    let neither = Settings { kubelet_pid: None, runtime_pid: None, ..settings.clone() };
    let others = [kubelet, runtime, neither];
    let first = recognised.survey(settings);
    others.iter().fold(first, |found, other| found.or_else(|_| recognised.survey(other)))
}

/// What fails here once is tried again at the next look.
pub(super) fn warn(done: Result<(), KernelError>) {
    if let Err(error) = done {
        tracing::warn!("{}", chain(&error));
    }
}

/// What the control of an observation reads from the records that pass.
pub(super) struct Steps<'a> {
    /// A kubelet or runtime came or went.
    pub(super) rescan: &'a mut bool,
    pub(super) runc: Option<&'a RuncFiles>,
    /// Processes that ended.
    pub(super) exited: Vec<u32>,
}

impl Steps<'_> {
    pub(super) fn see(&mut self, event: &Event) {
        let Event::Process(process) = event else { return };
        *self.rescan |= concerns_targets(process);
        if matches!(process.step, Step::Exit(_)) {
            self.exited.push(process.meta.tgid);
        }
        if let Some(runc) = self.runc {
            runc.step(process);
        }
    }
}

/// Did a kubelet or runtime come or go?
fn concerns_targets(process: &Process) -> bool {
    let of_target = process.role == Role::Kubelet || process.role.is_runtime();
    of_target && matches!(process.step, Step::Exec | Step::Exit(_))
}
