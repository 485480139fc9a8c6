//! [`Probes`]: analysed executables, their plan, and what of it is attached; follows targets that restart.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use super::{clock, inspect::Inspected, live::Live, pipeline::Pipeline, runc::Found};
use crate::{
    input::{Armed, Component, Fact, Layer, RefusedFact},
    kernel::{AttachMode, KernelError},
    plan::{Budget, Plan, PlannedBinary, Planner},
    target::{AnalysedFile, RefuseReason},
};

/// A process whose program shall be probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) component: Component,
    pub(crate) pid: u32,
    pub(crate) exe: String,
}

/// One file, by device and inode, under one role.
type FileKey = (u64, u64, Component);

/// Everything about probes that changes while we observe.
pub(crate) struct Probes {
    planner: Planner,
    /// Place in the plan's `binaries` of each analysed file that has sites.
    inspected: HashMap<FileKey, Inspected>,
    unreadable: HashSet<(Component, u32)>,
    /// How many of the plan's binaries, hooks and refusals were told.
    attached: usize,
    told_hooks: usize,
    told_refused: usize,
    sites: usize,
    took: Duration,
}

impl Probes {
    /// Nothing yet; `mode` decides how many sites are worth their price, `without` names layers that are left out.
    pub(crate) fn new(mode: AttachMode, parks: bool, without: &[Layer]) -> Self {
        keep_large_blocks_apart();
        let budget = if mode == AttachMode::Multi { Budget::All } else { Budget::Few };
        Self {
            planner: Planner::new(budget).with_parks(parks).without(without),
            inspected: HashMap::new(),
            unreadable: HashSet::new(),
            attached: 0,
            told_hooks: 0,
            told_refused: 0,
            sites: 0,
            took: Duration::ZERO,
        }
    }

    /// The plan so far.
    pub(crate) fn plan(&self) -> &Plan {
        self.planner.plan()
    }

    /// Number of sites attached.
    pub(crate) fn sites(&self) -> usize {
        self.sites
    }

    /// What was read from the file that a process runs.
    pub(crate) fn of_pid(&self, component: Component, pid: u32) -> Option<&Inspected> {
        self.inspected.values().find(|i| i.facts.component == component && i.facts.pid == pid)
    }

    /// The executable in which a hook on parks is.
    pub(crate) fn file_of(&self, hook: u32) -> Option<AnalysedFile> {
        let binaries = &self.planner.plan().binaries;
        let binary = binaries.iter().find(|b| b.parks.iter().any(|site| site.conf.hook == hook))?;
        Some(self.inspected_as(binary)?.file().clone())
    }

    fn inspected_as(&self, binary: &PlannedBinary) -> Option<&Inspected> {
        self.inspected.values().find(|i| i.facts.path == binary.path && i.facts.component == binary.component)
    }

    /// Analyses the programs of `wanted` that are not known yet, in parallel, and plans their sites.
    pub(crate) fn inspect(&mut self, wanted: &[Wanted]) {
        let fresh: Vec<&Wanted> = wanted.iter().filter(|w| self.is_fresh(w)).collect();
        let results: Vec<(&Wanted, Result<Inspected, RefuseReason>)> = std::thread::scope(|scope| {
            let jobs: Vec<_> = fresh
                .iter()
                .map(|w| (*w, scope.spawn(|| Inspected::of(w.component, w.pid, &w.exe))))
                .collect();
            jobs.into_iter().filter_map(|(w, job)| Some((w, job.join().ok()?))).collect()
        });
        if !results.is_empty() {
            give_memory_back();
        }
        for (wanted, result) in results {
            match result {
                Ok(inspected) => self.take(inspected),
                Err(why) => {
                    self.unreadable.insert((wanted.component, wanted.pid));
                    self.planner.refuse(wanted.component, &wanted.exe, &why.to_string(), true);
                }
            }
        }
    }

    /// Plans the sites of files that no process runs all the time.
    pub(crate) fn take_files(&mut self, found: Vec<Found>) {
        for (exe, result) in found {
            match result {
                Ok(inspected) => self.take(inspected),
                Err(why) => self.planner.refuse(Component::Runc, &exe, &why.to_string(), false),
            }
        }
    }

    fn is_fresh(&self, wanted: &Wanted) -> bool {
        let known = self.of_pid(wanted.component, wanted.pid).is_some();
        !known && !self.unreadable.contains(&(wanted.component, wanted.pid))
    }

    fn take(&mut self, inspected: Inspected) {
        let key = (inspected.id.dev, inspected.id.ino, inspected.facts.component);
        tracing::debug!(exe = inspected.facts.exe, took = ?inspected.took, "analysed");
        if !self.inspected.contains_key(&key) {
            self.planner.add(&inspected.facts);
        }
        // A second process of the same file needs no second set of probes: uprobes belong to the inode.
        self.inspected.entry(key).or_insert(inspected);
    }

    /// Looks at every planned file once more without attaching; what changed is refused.
    pub(crate) fn verify(&self) -> Vec<RefusedFact> {
        let plan = self.planner.plan();
        let failed = plan.binaries.iter().filter_map(|binary| Some((binary, self.check(binary).err()?)));
        failed
            .map(|(binary, why)| RefusedFact {
                source: "uprobes".to_owned(),
                component: Some(binary.component),
                what: self.name_of(binary),
                why,
                matters: binary.component != Component::Runc,
            })
            .collect()
    }

    fn check(&self, binary: &PlannedBinary) -> Result<(), String> {
        self.inspected_as(binary)
            .map_or_else(|| Err("it was never analysed".to_owned()), |i| i.verify(binary))
    }

    /// Attaches what is planned and not attached yet, after a last look at the file. A binary that fails is refused
    /// whole; the others go on.
    pub(crate) fn attach(&mut self, live: &mut Live) {
        let began = std::time::Instant::now();
        live.learn(self.planner.plan());
        let (mut refused, mut without_parks) = (Vec::new(), Vec::new());
        for (place, binary) in self.planner.plan().binaries.iter().enumerate().skip(self.attached) {
            match self.attach_one(place as u64, binary, live) {
                Ok(None) => self.sites += binary.sites(),
                Ok(Some(why)) => {
                    self.sites += binary.starts.len() + binary.ends.len();
                    without_parks.push((binary.component, binary.path.display().to_string(), chain(&why)));
                }
                Err(why) => refused.push((binary.component, self.name_of(binary), why)),
            }
        }
        self.attached = self.planner.plan().binaries.len();
        for (component, path, why) in refused {
            self.planner.refuse(component, &path, &why, component != Component::Runc);
        }
        for (component, path, why) in without_parks {
            let why = format!("{why}; not seen: where its goroutines wait");
            self.planner.refuse_source("parks", component, &path, &why, false);
        }
        self.took += began.elapsed();
    }

    /// A file that no process may be running can be written to. So nobody shall, while probes are in it, and what was
    /// written before that is seen by the last look.
    fn attach_one(
        &self,
        place: u64,
        binary: &PlannedBinary,
        live: &mut Live,
    ) -> Result<Option<KernelError>, String> {
        let lease = match self.inspected_as(binary).filter(|_| binary.pid == 0) {
            Some(inspected) => {
                let unguarded = |why| format!("it cannot be guarded against being written to: {why}");
                Some(inspected.file().lease().map_err(unguarded)?)
            }
            None => None,
        };
        self.check(binary)?;
        let parks = live.attach(place, binary).map_err(|error| chain(&error))?;
        if let Some(lease) = lease {
            live.guard(place, lease);
        }
        Ok(parks)
    }

    /// Takes the probes off from files that somebody wants to write to; what is there then is analysed anew.
    pub(crate) fn give_way(&mut self, live: &mut Live) {
        for place in live.give_way() {
            let place = usize::try_from(place).unwrap_or(usize::MAX);
            let Some(binary) = self.planner.plan().binaries.get(place).cloned() else { continue };
            let (name, path) = (self.name_of(&binary), &binary.path);
            self.sites = self.sites.saturating_sub(binary.sites());
            self.inspected.retain(|_, inspected| inspected.facts.path != *path);
            let why = "somebody wants to write to the file: its probes were taken off";
            self.planner.refuse(binary.component, &name, why, false);
        }
    }

    /// Path, version and Go version of an executable that no process runs all the time.
    pub(crate) fn file_facts(&self, binary: &PlannedBinary) -> Option<(String, Option<String>, String)> {
        let inspected = self.inspected_as(binary)?;
        Some((inspected.facts.exe.clone(), inspected.version.clone(), inspected.go_version.clone()))
    }

    /// Its path, for people.
    fn name_of(&self, binary: &PlannedBinary) -> String {
        let inspected = self.inspected_as(binary).filter(|_| binary.pid == 0);
        inspected.map_or_else(|| binary.path.display().to_string(), |inspected| inspected.facts.exe.clone())
    }

    /// Tells the pipeline what it has not been told: hooks, refusals, and how much is armed.
    pub(crate) fn tell(&mut self, pipeline: &mut Pipeline, mode: &str) {
        let now = clock::monotonic_ns();
        let plan = self.planner.plan();
        for hook in &plan.hooks[self.told_hooks..] {
            pipeline.fact(now, &Fact::Hook(hook.clone()));
        }
        for refused in &plan.refused[self.told_refused..] {
            pipeline.fact(now, &Fact::Refused(refused.clone()));
        }
        (self.told_hooks, self.told_refused) = (plan.hooks.len(), plan.refused.len());
        let armed = Armed {
            mode: mode.to_owned(),
            sites: u32::try_from(self.sites).unwrap_or(u32::MAX),
            took_ns: u64::try_from(self.took.as_nanos()).unwrap_or(u64::MAX),
        };
        pipeline.fact(now, &Fact::Armed(armed));
    }
}

/// Blocks of this size and more have mappings of their own, which go back to the kernel when they are freed.
#[cfg(target_env = "gnu")]
const OWN_MAPPING: libc::c_int = 256 << 10;

/// Keeps the allocator from moving large blocks into its arenas: glibc raises the size from which they have mappings of
/// their own with the first large one that is freed, and a thread's arena is never given back from its top.
fn keep_large_blocks_apart() {
    // SAFETY: mallopt has no preconditions.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, OWN_MAPPING);
    }
}

/// Reading function tables takes tens of megabytes for a moment; the allocator would keep them.
pub(crate) fn give_memory_back() {
    // SAFETY: malloc_trim has no preconditions.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
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

/// An error with its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}
