//! [`Reader`]: one process, read as often as wanted.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use super::about::About;
use super::allgs;
use super::code::{Code, ProgramCode};
use super::collect::{Collector, Counts, Limits};
use super::cycles::Cycles;
use super::error::GoroutineError;
use super::group::Groups;
use super::loaded;
use super::program::Program;
use super::reasons::Reasons;
use super::receivers::Seek;
use super::relist_time::{self, RelistTime};
use crate::census::clock;
use crate::census::memory::{Memory, MemoryError, ProcessMemory};
use crate::input::{Component, GoroutineGroup, GoroutinesFact};
use crate::target::{GOffsets, read_stat};

/// The list is looked for this often: a process that runs can look wrong for a moment.
const TRIES: usize = 3;

/// All goroutines at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Picture {
    /// Goroutines that exist. Where entries of the list were not looked at, these are in it.
    pub total: u32,
    /// Of these, those that could not be read, or were not reached within the limits.
    pub unread: u32,
    /// Those that are alike, the largest group first.
    pub groups: Vec<GoroutineGroup>,
    /// Groups that were left out.
    pub groups_left_out: u32,
    /// What can be the receiver of a relist.
    pub receivers: BTreeSet<u64>,
}

/// Which of the places holds the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    At(u64),
    None(usize),
    Several(usize),
}

/// Reads the goroutines of a process.
#[derive(Debug)]
pub struct Reader {
    pid: u32,
    component: Component,
    started: u64,
    program: Arc<Program>,
    /// Of a kubelet, once it is found.
    relist_time: OnceLock<RelistTime>,
}

impl Reader {
    /// Analyses the executable of a process. It may take some 100 ms for a large one; reading takes milliseconds.
    ///
    /// # Errors
    ///
    /// The process cannot be looked at, or what it runs is not Go of a known version.
    pub fn open(pid: u32, component: Component) -> Result<Self, GoroutineError> {
        Self::with_program(pid, component, Arc::new(Program::of_process(pid)?))
    }

    /// A process that runs an executable which was analysed before; the caller has compared
    /// [`Program::id`] with the file behind `/proc/PID/exe`.
    ///
    /// # Errors
    ///
    /// There is no such process.
    pub fn with_program(
        pid: u32,
        component: Component,
        program: Arc<Program>,
    ) -> Result<Self, GoroutineError> {
        Ok(Self { started: started(pid)?, pid, component, program, relist_time: OnceLock::new() })
    }

    /// Is it for this process, as this component?
    #[must_use]
    pub fn is_for(&self, pid: u32, component: Component) -> bool {
        (self.pid, self.component) == (pid, component)
    }

    /// Is there still the process that was opened? Waits for nothing.
    #[must_use]
    pub fn lives(&self) -> bool {
        started(self.pid).ok() == Some(self.started)
    }

    /// Does the process still run the file that was analysed, and is that as it was? One `stat` and two small reads.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.lives() && self.program.is_run_by(self.pid)
    }

    /// The analysed executable.
    #[must_use]
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// Reads all goroutines. `clock` is CLOCK_MONOTONIC in nanoseconds, that of [`Limits::until_ns`].
    ///
    /// Reading memory can block for as long as somebody holds the memory lock of the process; see
    /// [`Memory`].
    ///
    /// # Errors
    ///
    /// The process cannot be read, or its list of goroutines cannot be found.
    pub fn read(&self, limits: &Limits, clock: &dyn Fn() -> u64) -> Result<GoroutinesFact, GoroutineError> {
        let at_ns = clock();
        // Only of a kubelet it matters whether what no call shows has gone on.
        let limits = &Limits { fingerprints: self.component == Component::Kubelet, ..*limits };
        let memory = ProcessMemory { pid: self.pid };
        let bias = loaded::bias(self.pid, &self.program, &memory)?;
        if started(self.pid).ok() != Some(self.started) {
            return Err(GoroutineError::Gone(self.pid));
        }
        let biased = |addrs: &[u64]| addrs.iter().map(|addr| addr.wrapping_add(bias)).collect::<Vec<u64>>();
        let lists: Vec<Vec<u64>> = self.program.lists.iter().map(|list| biased(list)).collect();
        let mut code = ProgramCode::new(&self.program, bias);
        let g = self.program.functions.abi().g;
        let sought = self.component == Component::Kubelet && self.relist_time.get().is_none();
        let methods = sought.then(|| biased(&self.program.relists));
        let places =
            Places { lists: &lists, reasons: &biased(&self.program.reasons), methods: methods.as_deref() };
        let cycles = self.cycles(&memory, bias);
        let picture = cycles
            .map_err(TakeError::Memory)
            .and_then(|cycles| take(&memory, &mut code, &g, &places, cycles, limits, clock));
        let mut picture = picture.map_err(|why| match why {
            TakeError::Memory(why) => GoroutineError::memory(self.pid, why),
            TakeError::NoList(places) => GoroutineError::NoList(places),
            TakeError::AmbiguousList(places) => GoroutineError::AmbiguousList(places),
        })?;
        for group in &mut picture.groups {
            let subjects = group.subjects.iter_mut().map(|subject| &mut subject.parked_by_ns);
            for by in subjects.chain([&mut group.parked_by_ns]) {
                *by = by.filter(|by| *by <= at_ns);
            }
        }
        let last_list_ns = self.last_list(&memory, bias, &picture.receivers, clock);
        Ok(GoroutinesFact {
            at_ns,
            took_ns: clock().saturating_sub(at_ns),
            pid: self.pid,
            component: self.component,
            go_version: self.program.go_version.clone(),
            total: picture.total,
            unread: picture.unread,
            groups: picture.groups,
            groups_left_out: picture.groups_left_out,
            last_list_ns: last_list_ns.map_err(|why| GoroutineError::memory(self.pid, why))?,
        })
    }
}

impl Reader {
    /// When the last list of a kubelet succeeded, by its own clock.
    fn last_list(
        &self,
        memory: &dyn Memory,
        bias: u64,
        receivers: &BTreeSet<u64>,
        clock: &dyn Fn() -> u64,
    ) -> Result<Option<u64>, MemoryError> {
        if !receivers.is_empty() && self.relist_time.get().is_none() {
            let clocks: Vec<u64> = self.program.clocks.iter().map(|at| at.wrapping_add(bias)).collect();
            let node = relist_time::Node {
                moduledata: self.program.moduledata.wrapping_add(bias),
                clocks: &clocks,
                started_ns: clock::started_ns(self.started).unwrap_or(0),
                now_ns: clock(),
            };
            if let Some(found) = RelistTime::find(memory, receivers, &node)? {
                // Only this thread reads this process.
                drop(self.relist_time.set(found));
            }
        }
        self.relist_time.get().map_or(Ok(None), |time| time.read(memory, clock()))
    }

    /// The collections so far. They are read first: one that ends while goroutines are read bounds nothing.
    fn cycles(&self, memory: &dyn Memory, bias: u64) -> Result<Cycles, MemoryError> {
        let Some((place, gc)) = self.program.gc else { return Ok(Cycles::default()) };
        Cycles::read(memory, place.wrapping_add(bias), gc, clock::realtime_offset_ns())
    }
}

/// Start of a process in clock ticks: with its id unique until the next boot.
fn started(pid: u32) -> Result<u64, GoroutineError> {
    let stat = read_stat(&Path::new("/proc").join(pid.to_string()));
    match stat {
        Some(stat) if stat.has_ended() => Err(GoroutineError::NoProgram(pid)),
        Some(stat) => Ok(stat.start_ticks),
        None => Err(GoroutineError::NoSuchProcess(pid)),
    }
}

/// Why [`take`] has no picture.
#[derive(Debug)]
pub enum TakeError {
    /// Nothing can be read.
    Memory(MemoryError),
    /// None of so many places holds the list of goroutines.
    NoList(usize),
    /// So many places do.
    AmbiguousList(usize),
}

impl From<MemoryError> for TakeError {
    fn from(why: MemoryError) -> Self {
        Self::Memory(why)
    }
}

/// Where things may be in memory.
#[derive(Clone, Copy, Debug)]
pub struct Places<'a> {
    /// The list of goroutines: groups, the likeliest first.
    pub lists: &'a [Vec<u64>],
    /// The words for wait reasons.
    pub reasons: &'a [u64],
    /// The code of the method values of a relist, which older kubelets have; `None` when its receiver is not sought.
    pub methods: Option<&'a [u64]>,
}

/// Reads all goroutines of any memory with any code. `cycles`: the collections that have ended.
///
/// # Errors
///
/// The memory cannot be read at all, or not exactly one place of a group holds a list of goroutines.
pub fn take(
    memory: &dyn Memory,
    code: &mut dyn Code,
    g: &GOffsets,
    places: &Places<'_>,
    cycles: Cycles,
    limits: &Limits,
    clock: &dyn Fn() -> u64,
) -> Result<Picture, TakeError> {
    let place = match find(memory, g, places.lists)? {
        Found::At(place) => place,
        Found::None(places) => return Err(TakeError::NoList(places)),
        Found::Several(places) => return Err(TakeError::AmbiguousList(places)),
    };
    let reasons = Reasons::find(memory, places.reasons)?;
    let Some(list) = allgs::read(memory, place, limits.goroutines)? else {
        return Err(TakeError::NoList(1));
    };
    let mut collector = Collector {
        memory,
        code,
        g,
        groups: Groups::new(limits.groups),
        about: About::default(),
        seek: Seek::new(places.methods),
        counts: Counts { total: list.left_out, unread: list.left_out },
        cycles,
        until_ns: limits.until_ns,
        fingerprints: limits.fingerprints,
        clock,
        pause: &std::thread::sleep,
    };
    collector.run(&list.entries)?;
    let Collector { groups, counts, cycles, code, seek, .. } = collector;
    let receivers = seek.found();
    let (groups, groups_left_out) = groups.finish(code, &reasons, &cycles, limits.text_bytes);
    let count = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    let (total, unread) = (count(counts.total), count(counts.unread));
    Ok(Picture { total, unread, groups, groups_left_out, receivers })
}

/// The one place that holds a list of goroutines.
fn find(memory: &dyn Memory, g: &GOffsets, lists: &[Vec<u64>]) -> Result<Found, MemoryError> {
    let mut tried = 0;
    for _ in 0..TRIES {
        tried = 0;
        for places in lists {
            tried += places.len();
            let mut right = Vec::new();
            for place in places {
                if allgs::is_list(memory, g, *place)? {
                    right.push(*place);
                }
            }
            match right[..] {
                [] => {}
                [place] => return Ok(Found::At(place)),
                _ => return Ok(Found::Several(right.len())),
            }
        }
    }
    Ok(Found::None(tried))
}
