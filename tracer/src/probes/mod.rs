//! Analysed executables, their plan, and what of it is attached; follows targets that restart.

mod analyse;
mod analyses;
mod inspect;
mod known;
mod memory;
mod put_off;
mod recognise;
mod room;
mod runc;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    time::{Duration, Instant},
};

use crate::{
    census::{Hazard, Mappers},
    chain::chain,
    input::{Armed, Component, Fact, Layer, RefusedFact},
    kernel::{AttachMode, KernelError},
    live::{Guard, Live, OverBudget},
    plan::{Budget, Plan, PlannedBinary, Planner},
    target::{AnalysedFile, Lease, LeaseEnd},
    words::human,
};

use analyses::Analyses;
pub use inspect::Inspected;
use known::Known;
pub(crate) use memory::give_memory_back;
use memory::keep_large_blocks_apart;
use put_off::PutOff;
pub(crate) use recognise::{Content, Question, look};
use room::CrowdedOut;
pub(crate) use runc::{RuncFiles, can_tell_copies, copies_refused, found_by};

/// So many executables that nobody runs any more keep their sites, hooks and open files: of a kubelet and a runtime that
/// are being restarted.
const KEPT_ENDED: usize = 2;
/// Sites and hooks rest for so long before they stand for something else: what the kernel side wrote of them has been read
/// by then, which happens ten times a second.
const REST: Duration = Duration::from_secs(2);

/// A thread that runs the program and does not move for so long keeps us from attaching.
const PATIENCE_OF_MAPPERS: Duration = Duration::from_millis(500);

/// A process whose program shall be probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) component: Component,
    pub(crate) pid: u32,
    pub(crate) exe: String,
}

/// Everything about probes that changes while we observe.
pub(crate) struct Probes {
    planner: Planner,
    analyses: Analyses,
    known: Known<Inspected>,
    /// Processes whose files cannot be analysed: for ever, or for now.
    unreadable: HashMap<(Component, u32), Unreadable>,
    unread: PutOff<(Component, u32)>,
    /// Places in the plan's `binaries` of what is to be attached.
    waiting: Vec<usize>,
    /// What cannot be attached at the moment.
    put_off: PutOff<usize>,
    /// What is attached, by its place.
    attached: HashMap<usize, Attached>,
    /// Places of what was probed and is not any more, and since when: whoever starts from the same file has its probes put
    /// on again.
    ended: VecDeque<(Instant, usize)>,
    /// What is run and was not planned for want of room.
    crowded_out: CrowdedOut,
    took: Duration,
    /// The hooks that the stream has been told to be on.
    told: Vec<u32>,
    /// Why nothing can be attached on this kernel.
    cannot: Option<String>,
}

/// Why an executable has no probes.
#[derive(Debug)]
enum NotAttached {
    /// It would stop the node at the moment.
    Now(Hazard),
    /// It failed, for a reason that may pass, in words.
    Failed(String),
    /// Its file is not the one that was analysed.
    Changed(String),
    /// It is another reason, in words.
    Ever(String),
}

/// Why a file has not been analysed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unreadable {
    /// It is nothing that can be probed.
    Ever,
    /// It could not be read.
    ForNow,
}

/// The probes of one executable.
struct Attached {
    sites: usize,
    /// Its hooks, but for those on parks.
    hooks: BTreeSet<u32>,
    /// Takes them off.
    end: LeaseEnd,
}

impl Probes {
    /// Nothing yet; `mode` decides how many sites are worth their price, `without` names layers that are left out.
    pub(crate) fn new(mode: AttachMode, parks: bool, without: &[Layer]) -> Self {
        keep_large_blocks_apart();
        let budget = if mode == AttachMode::Multi { Budget::All } else { Budget::Few };
        Self {
            planner: Planner::new(budget).with_parks(parks).without(without),
            analyses: Analyses::default(),
            known: Known::default(),
            unreadable: HashMap::new(),
            unread: PutOff::default(),
            waiting: Vec::new(),
            put_off: PutOff::default(),
            attached: HashMap::new(),
            ended: VecDeque::new(),
            crowded_out: CrowdedOut::default(),
            took: Duration::ZERO,
            told: Vec::new(),
            cannot: None,
        }
    }

    /// From now on every executable is refused.
    pub(crate) fn cannot_attach(&mut self, why: &str) {
        self.cannot = Some(why.to_owned());
    }

    /// The plan so far.
    pub(crate) fn plan(&self) -> &Plan {
        self.planner.plan()
    }

    /// Number of sites attached.
    pub(crate) fn sites(&self) -> usize {
        self.attached.values().map(|attached| attached.sites).sum()
    }

    /// The hooks whose probes are on, in programs that run: not those that wait to be taken off.
    fn on(&self) -> Vec<u32> {
        let on = self.attached.values().filter(|attached| !attached.end.is_given_up());
        let mut hooks: Vec<u32> = on.flat_map(|attached| &attached.hooks).copied().collect();
        hooks.sort_unstable();
        hooks
    }

    /// Are other hooks on than the stream has been told?
    pub(crate) fn have_changed(&self) -> bool {
        self.on() != self.told
    }

    /// What was read from the file that a process runs.
    pub(crate) fn of_pid(&self, component: Component, pid: u32) -> Option<&Inspected> {
        self.known.of_pid(component, pid)
    }

    /// The executable in which a hook on parks is.
    pub(crate) fn file_of(&self, hook: u32) -> Option<AnalysedFile> {
        let binaries = &self.planner.plan().binaries;
        let place = binaries.iter().position(|b| b.parks.iter().any(|site| site.conf.hook == hook))?;
        Some(self.known.at(place)?.file().clone())
    }

    /// Follows processes that ended: who runs a file next may run another one in its place.
    pub(crate) fn keep(&mut self, lives: impl Fn(u32, Component) -> bool) {
        self.unreadable.retain(|(component, pid), _| lives(*pid, *component));
        self.unread.keep(|(component, pid)| lives(pid, component));
        self.analyses.keep(|wanted| lives(wanted.pid, wanted.component));
        let ended = self.known.keep(lives);
        self.forget_crowded_out();
        for place in ended {
            self.put_off.forget(place);
            match self.attached.get(&place) {
                Some(attached) => attached.end.give_up(),
                None => self.ended.push_back((Instant::now(), place)),
            }
        }
    }

    /// Gives back the sites and hooks of executables that nobody has run for a while; the last ones only when there is too
    /// little room for who comes next.
    fn release(&mut self, live: &mut Live) {
        self.release_with(|released| {
            if let Err(error) = live.forget(released) {
                tracing::warn!("{}", chain(&error));
            }
        });
    }

    fn release_with(&mut self, mut forget: impl FnMut(&PlannedBinary)) {
        loop {
            let roomy = self.crowded_out.is_empty() && self.planner.has_room_for_a_successor();
            let kept = if roomy { KEPT_ENDED } else { 0 };
            let rested = self.ended.front().is_some_and(|(since, _)| since.elapsed() >= REST);
            if !rested || self.ended.len() <= kept {
                return;
            }
            let Some((_, place)) = self.ended.pop_front() else { return };
            self.known.forget(place);
            if let Some(released) = self.planner.release(place) {
                forget(&released);
                self.plan_crowded_out();
            }
        }
    }

    /// Has the probes taken off when there is way to give next.
    fn take_off(&self, place: usize) {
        if let Some(attached) = self.attached.get(&place) {
            attached.end.give_up();
        }
    }

    /// Looks at every planned file once more without attaching; what changed is refused.
    pub(crate) fn verify(&self) -> Vec<RefusedFact> {
        let plan = self.planner.plan();
        let binaries = plan.binaries.iter().enumerate();
        binaries
            .filter_map(|(place, binary)| Some((place, binary, self.check(place, binary).err()?)))
            .map(|(place, binary, why)| RefusedFact {
                source: "uprobes".to_owned(),
                component: Some(binary.component),
                what: self.name_of(place, binary),
                why,
                matters: binary.component != Component::Runc,
            })
            .collect()
    }

    fn check(&self, place: usize, binary: &PlannedBinary) -> Result<(), String> {
        self.known.at(place).map_or_else(|| Err("not analysed".to_owned()), |i| i.verify(binary))
    }

    /// Attaches what is planned and not attached yet, after a last look at the file. A binary that fails is refused
    /// whole; the others go on.
    pub(crate) fn attach(&mut self, live: &mut Live) {
        let began = Instant::now();
        self.give_way(live);
        live.learn(self.planner.plan());
        self.attach_with(Instant::now(), |probes, place, binary| probes.attach_one(place, binary, live));
        self.took += began.elapsed();
    }

    fn attach_with(
        &mut self,
        now: Instant,
        mut attach: impl FnMut(&mut Self, usize, &PlannedBinary) -> Result<Option<KernelError>, NotAttached>,
    ) {
        for place in std::mem::take(&mut self.waiting) {
            let Some(binary) = self.planner.plan().binaries.get(place).cloned() else { continue };
            let name = self.name_of(place, &binary);
            match attach(self, place, &binary) {
                Ok(parks) => {
                    self.put_off.forget(place);
                    self.planner.admit(binary.component, &name);
                    if let Some(why) = parks {
                        let why = format!("{}; places where its goroutines wait are not traced", chain(&why));
                        self.planner.refuse_source("parks", binary.component, &name, &why, false);
                    }
                }
                Err(why) => self.not_attached(place, &binary, &name, why, now),
            }
        }
    }

    /// Says once why there are no probes, and remembers what is tried again.
    fn not_attached(
        &mut self,
        place: usize,
        binary: &PlannedBinary,
        name: &str,
        why: NotAttached,
        now: Instant,
    ) {
        let (component, matters) = (binary.component, binary.component != Component::Runc);
        match why {
            NotAttached::Now(hazard) => {
                let why = format!(
                    "attaching would stop this node: {hazard}; plegtrace tries again every few seconds; without probes: \
                     --sources census"
                );
                if self.put_off.add(place, now) {
                    self.planner.put_off(component, name, &why, matters);
                }
            }
            NotAttached::Failed(why) => {
                if self.put_off.fail(place, now) {
                    self.planner.put_off(component, name, &format!("{why}; plegtrace tries again"), matters);
                }
            }
            NotAttached::Changed(why) if binary.pid != 0 => {
                // It is analysed anew at the next look at the processes, if one still runs it.
                self.put_off.forget(place);
                self.known.forget(place);
                self.ended.push_back((now, place));
                self.planner.put_off(
                    component,
                    name,
                    &format!("{why}; plegtrace analyses it again"),
                    matters,
                );
            }
            NotAttached::Changed(why) | NotAttached::Ever(why) => {
                self.put_off.forget(place);
                self.planner.refuse(component, name, &why, matters);
            }
        }
    }

    fn attach_one(
        &mut self,
        place: usize,
        binary: &PlannedBinary,
        live: &mut Live,
    ) -> Result<Option<KernelError>, NotAttached> {
        let ever = NotAttached::Ever;
        if let Some(why) = &self.cannot {
            return Err(ever(why.clone()));
        }
        let lease = self.lease(place, binary).map_err(ever)?;
        self.check(place, binary).map_err(NotAttached::Changed)?;
        let mappers = Mappers::of_file(binary.pid, &binary.path);
        // Whoever has waited once is tried again soon.
        let patience = if self.put_off.has(place) { Duration::ZERO } else { PATIENCE_OF_MAPPERS };
        mappers.wait_until_free(patience).map_err(NotAttached::Now)?;
        let failed = |error: KernelError| NotAttached::Failed(chain(&error));
        let parks = live.attach(place as u64, binary).map_err(failed)?;
        let left_out = if parks.is_some() { binary.parks.len() + binary.resumes.len() } else { 0 };
        let sites = binary.sites() - left_out;
        let attached = Attached { sites, hooks: hooks_of(binary), end: lease.end() };
        self.attached.insert(place, attached);
        live.guard(place as u64, Guard { lease, mappers });
        Ok(parks)
    }

    /// Notes that a program passed the probes on its scheduler too often, so that they were taken off.
    pub(crate) fn parks_came_off(&mut self, over: OverBudget, budget: u64) {
        let place = usize::try_from(over.program).unwrap_or(usize::MAX);
        let Some(binary) = self.planner.plan().binaries.get(place).cloned() else { return };
        if let Some(attached) = self.attached.get_mut(&place) {
            attached.sites -= (binary.parks.len() + binary.resumes.len()).min(attached.sites);
        }
        let why = format!(
            "its goroutines hit the probes on the Go scheduler {} times a second, and {} are allowed: these probes \
                were detached, and where its goroutines wait is unknown from then on",
            human::count(over.hits_per_s),
            human::count(budget)
        );
        let name = self.name_of(place, &binary);
        self.planner.refuse_source("parks", binary.component, &name, &why, true);
    }

    /// A file that no process runs any more can be written to. So nobody shall, while probes are in it, and what was
    /// written before that is seen by the last look.
    fn lease(&self, place: usize, binary: &PlannedBinary) -> Result<Lease, String> {
        let lease = self.known.at(place).map(|inspected| inspected.file().lease());
        match lease {
            Some(Err(why)) if binary.pid == 0 => Err(format!("not probed: cannot lease the file: {why}")),
            Some(Err(why)) => {
                // Its process guards it for as long as it lives.
                tracing::debug!(path = %binary.path.display(), %why, "no lease");
                Ok(Lease::of_nothing())
            }
            Some(Ok(lease)) => Ok(lease),
            None => Ok(Lease::of_nothing()),
        }
    }

    /// Takes the probes off from files that somebody wants to write to, which are analysed anew then, and from those that
    /// nobody runs any more.
    pub(crate) fn give_way(&mut self, live: &mut Live) {
        for place in live.give_way() {
            let place = usize::try_from(place).unwrap_or(usize::MAX);
            let ended = self.attached.remove(&place).is_some_and(|attached| attached.end.is_given_up());
            self.ended.push_back((Instant::now(), place));
            let binary = self.planner.plan().binaries.get(place).filter(|_| !ended).cloned();
            let Some(binary) = binary else { continue };
            let name = self.name_of(place, &binary);
            self.known.forget(place);
            let why = "another process opened the file for writing: its probes were detached";
            self.planner.refuse(binary.component, &name, why, false);
        }
        self.release(live);
    }

    /// Path, version and Go version of an executable that no process runs all the time.
    pub(crate) fn file_facts(&self, binary: &PlannedBinary) -> Option<(String, Option<String>, String)> {
        let binaries = &self.planner.plan().binaries;
        let inspected = self.known.at(binaries.iter().position(|other| other == binary)?)?;
        Some((inspected.facts.exe.clone(), inspected.version.clone(), inspected.go_version.clone()))
    }

    /// Its path, for people.
    fn name_of(&self, place: usize, binary: &PlannedBinary) -> String {
        let inspected = self.known.at(place);
        inspected.map_or_else(|| binary.path.display().to_string(), |inspected| inspected.facts.exe.clone())
    }

    /// What has not been handed out yet: hooks, what is refused no longer, refusals, and how much is armed.
    pub(crate) fn take_facts(&mut self, mode: &str) -> Vec<Fact> {
        let hooks: Vec<Fact> = self.planner.take_hooks().into_iter().map(Fact::Hook).collect();
        let admitted: Vec<Fact> = self.planner.take_admitted().into_iter().map(Fact::Admitted).collect();
        let refused = self.planner.take_refused().into_iter().map(Fact::Refused);
        self.told = self.on();
        let armed = Armed {
            mode: mode.to_owned(),
            sites: u32::try_from(self.sites()).unwrap_or(u32::MAX),
            took_ns: u64::try_from(self.took.as_nanos()).unwrap_or(u64::MAX),
            hooks: Some(self.told.clone()),
        };
        hooks.into_iter().chain(admitted).chain(refused).chain([Fact::Armed(armed)]).collect()
    }
}

/// The hooks of an executable, but for those on parks, which can come off alone.
fn hooks_of(binary: &PlannedBinary) -> BTreeSet<u32> {
    binary.starts.iter().chain(&binary.ends).map(|site| site.conf.hook).collect()
}

/// A source that is not used at all.
pub(crate) fn source_refused(source: &str, why: &str) -> RefusedFact {
    RefusedFact {
        source: source.to_owned(),
        component: None,
        what: source.to_owned(),
        why: why.to_owned(),
        matters: true,
    }
}
