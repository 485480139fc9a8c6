//! [`Planner`]: functions found in executables + catalogue → [`Plan`], with a reason for everything left out.

mod found;
mod function;
mod slots;
#[cfg(test)]
mod tests;

pub use found::{BinaryFacts, FoundFunction, FoundSite};

use std::collections::BTreeSet;

use function::Unplanned;
use plegtrace_common::site::{MAX_HOOKS, MAX_SITES, action};
use slots::Slots;

use super::{
    catalogue::CATALOGUE,
    planned::{Plan, PlannedBinary},
    row::{Class, End, HookRole, Mark, Row, Wanted},
};
use crate::{
    cri::Method,
    input::{Component, HookFact, Layer, RefusedFact},
};

/// The source of refusals that say: a program has none of the functions by which a kind of calls would be seen.
pub const CATALOGUE_SOURCE: &str = "catalogue";

/// Most sites in one executable: every probed page of its text is copied once per process.
const MAX_SITES_PER_BINARY: usize = 400;
/// Executables that are remembered as refused for now; the refusal of any more stays.
const MAX_PUT_OFF: usize = 256;

/// Fewest hooks that the kernel side has room for: those of a kubelet and a runtime that start later, with what a kubelet
/// of another version may have besides.
const HOOKS_AT_LEAST: u32 = 192;
/// Hooks of the runc that is found when everything else is attached, of two files at once.
const HOOKS_OF_RUNC: u32 = 32;

/// How many sites are worth their price.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Budget {
    /// Every one: they cost nothing to take off (uprobe_multi).
    #[default]
    All,
    /// What a stall shows in: each site takes 0.1 s to take off (perf events).
    Few,
}

/// Makes one plan out of many executables.
#[derive(Debug)]
pub struct Planner {
    plan: Plan,
    sites: Slots,
    hooks: Slots,
    /// Hooks that nobody has been told of yet.
    fresh_hooks: Vec<u32>,
    /// Refused for now, oldest first.
    put_off: Vec<RefusedFact>,
    /// Of these, what is probed and was not handed out yet.
    admitted: Vec<RefusedFact>,
    budget: Budget,
    without: Vec<Layer>,
    follow_parks: bool,
}

impl Default for Planner {
    fn default() -> Self {
        Self::new(Budget::default())
    }
}

impl Planner {
    /// An empty plan.
    #[must_use]
    pub fn new(budget: Budget) -> Self {
        Self {
            plan: Plan::default(),
            sites: Slots::new(MAX_SITES),
            hooks: Slots::new(MAX_HOOKS),
            fresh_hooks: Vec::new(),
            put_off: Vec::new(),
            admitted: Vec::new(),
            budget,
            without: Vec::new(),
            follow_parks: false,
        }
    }

    /// Refuses every function of these layers, as an executable that has none of them would be.
    #[must_use]
    pub fn without(mut self, layers: &[Layer]) -> Self {
        self.without = layers.to_vec();
        self
    }

    /// Plans the sites of the source `parks` too, or not.
    #[must_use]
    pub fn with_parks(self, follow_parks: bool) -> Self {
        Self { follow_parks, ..self }
    }

    /// How many hooks the kernel side is to have room for: each takes 376 bytes for each processor that there may ever be.
    /// There is headroom for one successor of every program in the plan so far, whose hooks rest before they are used again.
    #[must_use]
    pub fn hooks_wanted(&self) -> u32 {
        let planned = u32::try_from(self.plan.hooks.len()).unwrap_or(MAX_HOOKS);
        (2 * planned + HOOKS_OF_RUNC).clamp(HOOKS_AT_LEAST, MAX_HOOKS)
    }

    /// The kernel side has room for so many hooks.
    pub fn limit_hooks(&mut self, most: u32) {
        self.hooks.limit(most.min(MAX_HOOKS));
    }

    /// The plan so far.
    #[must_use]
    pub fn finish(self) -> Plan {
        self.plan
    }

    /// Are there hooks left for a successor of any executable in the plan?
    #[must_use]
    pub fn has_room_for_a_successor(&self) -> bool {
        let hooks = |binary: &PlannedBinary| {
            binary.every_site().map(|site| site.conf.hook).collect::<BTreeSet<u32>>().len()
        };
        self.plan.binaries.iter().all(|binary| hooks(binary) <= self.hooks.room())
    }

    /// Is no site planned?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.plan.sites() == 0
    }

    /// The plan so far, with the planner still usable for executables that appear later.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The hooks planned since the last time.
    pub fn take_hooks(&mut self) -> Vec<HookFact> {
        let fresh = std::mem::take(&mut self.fresh_hooks);
        fresh.into_iter().filter_map(|index| self.plan.hooks.get(index as usize).cloned()).collect()
    }

    /// The refusals since the last time, which are not in the plan any more.
    pub fn take_refused(&mut self) -> Vec<RefusedFact> {
        std::mem::take(&mut self.plan.refused)
    }

    /// The refusals that hold no longer, since the last time. To be handed out before the new ones, which may be the same.
    pub fn take_admitted(&mut self) -> Vec<RefusedFact> {
        std::mem::take(&mut self.admitted)
    }

    /// Takes an executable out of the plan whose probes are off: its sites and hooks can stand for others now. Gives what
    /// they stood for. No place is used again.
    pub fn release(&mut self, place: usize) -> Option<PlannedBinary> {
        let planned = self.plan.binaries.get_mut(place)?;
        let released = planned.clone();
        for sites in [&mut planned.starts, &mut planned.ends, &mut planned.parks, &mut planned.resumes] {
            // With their memory: a program of a node that is upgraded for years has a place for each of its versions.
            drop(std::mem::take(sites));
        }
        self.give_back(&released);
        Some(released)
    }

    fn give_back(&mut self, binary: &PlannedBinary) {
        let hooks: BTreeSet<u32> = binary.every_site().map(|site| site.conf.hook).collect();
        binary.every_site().for_each(|site| self.sites.give_back(site.index));
        hooks.into_iter().for_each(|hook| self.hooks.give_back(hook));
    }

    /// Notes something that is not seen.
    pub fn refuse(&mut self, component: Component, what: &str, why: &str, matters: bool) {
        self.refuse_source("uprobes", component, what, why, matters);
    }

    /// Notes an executable that is not seen for now.
    pub fn put_off(&mut self, component: Component, exe: &str, why: &str, matters: bool) {
        self.refuse(component, exe, why, matters);
        if let Some(refused) = self.plan.refused.last()
            && self.put_off.len() < MAX_PUT_OFF
            && !self.put_off.contains(refused)
        {
            self.put_off.push(refused.clone());
        }
    }

    /// An executable is seen that was not for now, if it was one of those.
    pub fn admit(&mut self, component: Component, exe: &str) {
        let is_it = |refused: &mut RefusedFact| refused.component == Some(component) && refused.what == exe;
        let admitted: Vec<RefusedFact> = self.put_off.extract_if(.., is_it).collect();
        // A refusal that was not handed out yet never is.
        self.plan.refused.retain(|refused| !admitted.contains(refused));
        self.admitted.extend(admitted);
    }

    /// Notes something that another source does not see.
    pub fn refuse_source(
        &mut self,
        source: &str,
        component: Component,
        what: &str,
        why: &str,
        matters: bool,
    ) {
        self.plan.refused.push(RefusedFact {
            source: source.to_owned(),
            component: Some(component),
            what: what.to_owned(),
            why: why.to_owned(),
            matters,
        });
    }

    /// Plans the sites of one executable, or as many of them as there is room for; gives its place in the plan when it has
    /// any.
    pub fn add(&mut self, facts: &BinaryFacts) -> Option<usize> {
        let (binary, _) = self.planned(facts);
        self.place(binary)
    }

    /// The same where there will be room later: with too little now nothing is planned, and nothing is refused.
    ///
    /// # Errors
    ///
    /// What there are too many of.
    pub fn add_whole(&mut self, facts: &BinaryFacts) -> Result<Option<usize>, String> {
        let (hooks, refused) = (self.fresh_hooks.len(), self.plan.refused.len());
        let (binary, too_many) = self.planned(facts);
        if let Some(why) = too_many {
            self.give_back(&binary);
            self.fresh_hooks.truncate(hooks);
            self.plan.refused.truncate(refused);
            return Err(why);
        }
        Ok(self.place(binary))
    }

    fn place(&mut self, binary: PlannedBinary) -> Option<usize> {
        let place = self.plan.binaries.len();
        let planned = binary.sites() > 0;
        self.plan.binaries.extend(planned.then_some(binary));
        planned.then_some(place)
    }

    /// The sites of one executable, and what there was no room for.
    fn planned(&mut self, facts: &BinaryFacts) -> (PlannedBinary, Option<String>) {
        let mut too_many = None;
        let mut binary = PlannedBinary {
            component: facts.component,
            pid: facts.pid,
            path: facts.path.clone(),
            inode: facts.inode,
            kernel_dev: facts.kernel_dev,
            starts: Vec::new(),
            ends: Vec::new(),
            parks: Vec::new(),
            resumes: Vec::new(),
        };
        self.report_missing(facts);
        let parks = self.parks(facts);
        let mut endless = BTreeSet::new();
        for function in marks_first(facts).filter(|function| !is_park(function) || parks) {
            if self.without.contains(&layer(&function.wanted)) {
                self.refuse(facts.component, &function.symbol, "left out by --without", true);
            } else if self.budget == Budget::Few && !is_essential(&function.wanted) {
                let why = "left out: on this kernel each probe takes 0.1 s to detach";
                self.refuse(facts.component, &function.symbol, why, false);
            } else if let Some(why) = self.shared(facts, function) {
                self.refuse(facts.component, &function.symbol, &why, matters(facts.component));
            } else if lacks_an_end(&binary, &function.wanted) {
                endless.insert(calls_of(function.wanted.row.class));
            } else if binary.sites() >= MAX_SITES_PER_BINARY {
                let why = format!("more than {MAX_SITES_PER_BINARY} sites in one executable");
                self.refuse(facts.component, &function.symbol, &why, matters(facts.component));
            } else if let Err(why) = self.add_function(facts, function, &mut binary) {
                let why = match why {
                    Unplanned::Refused(why) => why,
                    Unplanned::NoRoom(why) => too_many.insert(why).clone(),
                };
                self.refuse(facts.component, &function.symbol, &why, matters(facts.component));
            }
        }
        for calls in endless {
            let why = "not probed: nothing shows when they end";
            self.refuse(facts.component, calls, why, matters(facts.component));
        }
        follow_parks(&mut binary);
        (binary, too_many)
    }

    /// The executable at a place of the plan is reached through another process now.
    pub fn reach(&mut self, place: usize, facts: &BinaryFacts) {
        if let Some(binary) = self.plan.binaries.get_mut(place) {
            (binary.pid, binary.path) = (facts.pid, facts.path.clone());
        }
    }

    /// Why a function is not probed again that is probed for another component whose executable is the same file: each
    /// process that runs it would hit both.
    fn shared(&self, facts: &BinaryFacts, function: &FoundFunction) -> Option<String> {
        let file =
            |binary: &PlannedBinary| (binary.inode, binary.kernel_dev) == (facts.inode, facts.kernel_dev);
        let mut others =
            self.plan.binaries.iter().filter(|binary| file(binary) && binary.component != facts.component);
        let returns = function.returns.iter().flatten();
        let wanted: BTreeSet<u64> =
            function.start.iter().chain(returns).map(|site| site.file_offset).collect();
        let other =
            others.find(|binary| binary.every_site().any(|site| wanted.contains(&site.file_offset)))?;
        let other = other.component.name();
        Some(format!("already probed for {other}, which is the same file"))
    }

    /// Are the parks of this executable followed? Both sites or none: a park whose end is not seen would last forever.
    fn parks(&mut self, facts: &BinaryFacts) -> bool {
        let wanted = |row: &&Row| row.components.contains(&facts.component) && is_park_row(row);
        if !self.follow_parks || !CATALOGUE.iter().any(|row| wanted(&row)) {
            return false;
        }
        let mut missing = None;
        for (id, name) in [("park", "runtime.gopark"), ("resume", "runtime.execute")] {
            let found = facts.functions.iter().find(|function| function.wanted.row.id == id);
            let shared = found.and_then(|function| self.shared(facts, function));
            let why = match found.map(|function| &function.start) {
                Some(Ok(_)) if shared.is_none() => continue,
                Some(Ok(_)) => shared.unwrap_or_default(),
                Some(Err(why)) => why.clone(),
                None => "no such function in this build".to_owned(),
            };
            missing.get_or_insert((name, why));
        }
        if let Some((name, why)) = &missing {
            let why = format!("{why}; not seen: where its goroutines wait");
            self.refuse_source("parks", facts.component, name, &why, false);
        }
        missing.is_none()
    }

    /// Rows without a function in this executable.
    fn report_missing(&mut self, facts: &BinaryFacts) {
        for row in CATALOGUE.iter().filter(|row| row.components.contains(&facts.component)) {
            let found = facts.functions.iter().any(|f| f.wanted.row.id == row.id);
            if let (false, Some(lost)) = (found, row.lost_without) {
                let why = format!("no such function in this build ({}); not seen: {lost}", row.versions);
                self.refuse(facts.component, row.id, &why, matters(facts.component));
            }
        }
        let class_seen = |class| facts.functions.iter().any(|f| f.wanted.row.class == class && is_call(f));
        for class in in_every_release(facts.component).into_iter().filter(|class| !class_seen(*class)) {
            let why = format!("newer than this plegtrace knows: none found in {}", facts.exe);
            self.refuse_source(CATALOGUE_SOURCE, facts.component, calls_of(class), &why, true);
        }
    }
}

/// Classes of calls of which every release that is known has some.
fn in_every_release(component: Component) -> BTreeSet<Class> {
    let daemon = component == Component::Kubelet || component.role().is_runtime();
    let rows = CATALOGUE.iter().filter(|row| daemon && row.components.contains(&component));
    let calls = rows.filter(|row| matches!(row.what, HookRole::Calls { .. }));
    // Relists of one pod are there since Kubernetes 1.36.
    calls.map(|row| row.class).filter(|class| *class != Class::PodRelist).collect()
}

/// The layers of the calls that people know by this name: those that a refusal of [`CATALOGUE_SOURCE`] is about.
pub fn layers_of(calls: &str) -> impl Iterator<Item = Layer> {
    CATALOGUE.iter().filter_map(move |row| match row.what {
        HookRole::Calls { layer, .. } if calls_of(row.class) == calls => Some(layer),
        _ => None,
    })
}

/// Calls of a class, for people.
fn calls_of(class: Class) -> &'static str {
    match class {
        Class::Relist => "relists",
        Class::PodRelist => "relists of one pod",
        Class::ListPhase => "list phases of relists",
        Class::StatusPhase => "status phases of relists",
        Class::KubeletCall => "calls that the kubelet counts",
        Class::KubeletClient => "CRI client methods",
        Class::Handler => "CRI handlers",
        Class::Scheduler => "waits of goroutines",
        Class::RuncStep | Class::RuncWait => "phases of runc",
    }
}

/// Calls are planned by what there is to end them.
fn marks_first(facts: &BinaryFacts) -> impl Iterator<Item = &FoundFunction> {
    let marks = facts.functions.iter().filter(|function| !is_call(function));
    marks.chain(facts.functions.iter().filter(|function| is_call(function)))
}

/// Would its calls stay open forever, because no mark that ends them is planned?
fn lacks_an_end(binary: &PlannedBinary, wanted: &Wanted) -> bool {
    let by_marks = matches!(wanted.row.what, HookRole::Calls { end: End::Marks, .. });
    by_marks && !has_mark(binary, wanted.row.class, action::END)
}

/// Is there a mark of this kind?
fn has_mark(binary: &PlannedBinary, class: Class, action: u8) -> bool {
    binary.ends.iter().any(|site| site.conf.class == class as u32 && site.conf.action == action)
}

fn layer(wanted: &Wanted) -> Layer {
    match wanted.row.what {
        HookRole::Calls { layer, .. } => layer,
        HookRole::Mark(_) => Layer::Mark,
    }
}

/// Does a stall of the node show in it?
fn is_essential(wanted: &Wanted) -> bool {
    match wanted.row.what {
        HookRole::Mark(Mark::Sent(..) | Mark::Came(..)) => false,
        HookRole::Mark(_) => wanted.row.class != Class::KubeletClient,
        HookRole::Calls { layer: Layer::KubeletClient, .. } => false,
        HookRole::Calls { layer: Layer::KubeletCall | Layer::Handler, .. } => {
            Method::from_name(&wanted.operation).is_some_and(|method| method.facts().essential)
        }
        HookRole::Calls { layer: Layer::RuncPhase, .. } => wanted.row.class == Class::RuncWait,
        HookRole::Calls { .. } => true,
    }
}

/// Is the report weaker without it? Without its phases, runc is still seen as a process, as every other command is.
fn matters(component: Component) -> bool {
    component != Component::Runc
}

fn is_park(function: &FoundFunction) -> bool {
    is_park_row(function.wanted.row)
}

fn is_park_row(row: &Row) -> bool {
    matches!(row.what, HookRole::Mark(mark) if mark.is_park())
}

/// Tells the starts whether the parks of what they start are followed; half of the sites are none.
fn follow_parks(binary: &mut PlannedBinary) {
    if binary.parks.is_empty() || binary.resumes.is_empty() {
        binary.parks.clear();
        binary.resumes.clear();
        return;
    }
    binary.starts.iter_mut().for_each(|site| site.conf.parks = 1);
}

fn is_call(function: &FoundFunction) -> bool {
    matches!(function.wanted.row.what, HookRole::Calls { .. })
}
