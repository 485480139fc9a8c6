//! A [`Snapshot`] → [`Stuck`]: each thing that does not move, since when, where it is parked, and who waits for it.
//!
//! Only the innermost things are named: a runc that waits for its hook is a waiter, the hook is stuck; a handler behind a
//! lock is a waiter, what holds up the lock's holder is stuck. Why it is stuck is the business of diagnosis.

mod bus;
mod callers;
mod chain;
mod daemon;
mod halted;
mod jammed;
mod loops;
mod pulls;
mod shim_lock;
mod silent;
mod unreported;
mod work;

use std::cmp::Reverse;

use crate::{
    correlate::{Age, Known, OpenProcess, Phase, Request, Snapshot},
    input::{
        Command, Component, ContainerFact, Freezer, Holder, ParkedThreads, PipeFact, ProcessFact, SocketFact,
    },
};

pub use bus::{BusParty, BusStall};
pub(crate) use callers::is_late;
pub(crate) use chain::{matters, processes, runner_of, with_those_behind};
pub(crate) use halted::is_shim_of_node;
pub use loops::LoopStall;
pub(crate) use loops::{api_is_awaited, loops_wait, plugins_are_awaited};
pub(crate) use pulls::{Pull, any_pull, silent_pulls};
pub(crate) use shim_lock::Deadlock;
pub use shim_lock::ShimLock;
pub(crate) use silent::shims_to_read;
pub(crate) use work::{blocked, late_from, waiting};

/// [`Stuck::reach`] of what holds up the relist: nothing reaches farther.
pub const REACH_RELIST: u8 = 3;

/// Something that does not move.
#[derive(Clone, Debug, PartialEq)]
pub struct Stuck {
    /// What.
    pub what: StuckKind,
    /// For how long.
    pub since: Age,
    /// Container and pod it belongs to, or works for.
    pub container: Option<ContainerFact>,
    /// Where its threads are parked in the kernel.
    pub parks: Vec<ParkedThreads>,
    /// Where its goroutines are parked, innermost first; full Go names.
    pub frames: Vec<String>,
    /// What it is doing, when it is a runc whose phases are seen; outermost first.
    pub phases: Vec<Phase>,
    /// Its sockets on which somebody waits for it.
    pub sockets: Vec<SocketFact>,
    /// Who waits for it, the nearest first.
    pub waiters: Vec<Waiter>,
}

impl Stuck {
    /// How far it reaches: [`REACH_RELIST`] (3) holds up the relist, 2 requests, 1 other processes, 0 nobody that is known.
    #[must_use]
    pub fn reach(&self) -> u8 {
        let halted = match &self.what {
            StuckKind::Stopped { component, .. } | StuckKind::Frozen { component, .. } => {
                *component == Component::Kubelet || component.role().is_runtime()
            }
            _ => false,
        };
        let of_waiter = |waiter: &Waiter| match waiter {
            Waiter::Relist { .. } => REACH_RELIST,
            Waiter::Requests(_) => 2,
            Waiter::Process { .. } => 1,
        };
        if let StuckKind::Loop(stall) = &self.what {
            return stall.oldest.kind.reach();
        }
        if halted { REACH_RELIST } else { self.waiters.iter().map(of_waiter).max().unwrap_or(0) }
    }
}

/// What does not move.
#[derive(Clone, Debug, PartialEq)]
pub enum StuckKind {
    /// All threads of a process were stopped by a signal (or by a debugger).
    Stopped {
        /// What it is to the node.
        component: Component,
        /// Process.
        pid: u32,
        /// Number of its threads.
        threads: u32,
        /// What it was told to do, when it is a program that does one thing and ends.
        command: Option<Command>,
        /// The kernel's name of it. Hostile text.
        comm: String,
    },
    /// A process in a frozen cgroup.
    Frozen {
        /// What it is to the node.
        component: Component,
        /// Process.
        pid: u32,
        /// The cgroup.
        freezer: Freezer,
        /// What it was told to do, when it is a program that does one thing and ends.
        command: Option<Command>,
        /// The kernel's name of it. Hostile text.
        comm: String,
    },
    /// A process that should have ended long ago: runc, a CNI plugin, a hook.
    Process {
        /// What it was told to do.
        command: Command,
        /// The kernel's name of it. Hostile text.
        comm: String,
        /// Process.
        pid: u32,
        /// State of its first thread.
        state: char,
    },
    /// A process that has ended, and nobody has asked how.
    Unreaped {
        /// The kernel's name of it. Hostile text.
        comm: String,
        /// Process.
        pid: u32,
        /// Who should have asked.
        parent: u32,
    },
    /// The output of a command that has ended is held open by another process.
    OutputHeld {
        /// The pipe.
        pipe: PipeFact,
        /// The shim that reads it.
        shim: u32,
    },
    /// A container has ended, and the runtime still says that it runs; or a command in it has, and its ExecSync goes on.
    Unreported {
        /// Id of the container or sandbox.
        id: String,
        /// The runtime's id of the command; `None` for the container itself.
        exec: Option<String>,
        /// Its first process.
        pid: u32,
        /// That process waits to be asked how it ended; otherwise it is gone.
        zombie: bool,
        /// Who traces that process, so that its parent does not hear of the end.
        tracer: Option<Holder>,
        /// What the runtime says of the container: "running", "ready"; `None` for a command.
        state: Option<String>,
        /// The runtime.
        runtime: u32,
    },
    /// A containerd and a shim of which neither reads what the other has sent.
    Jammed {
        /// containerd.
        runtime: u32,
        /// The shim.
        shim: u32,
    },
    /// A shim that runs, runs no program, and does not answer.
    SilentShim {
        /// The shim.
        shim: u32,
        /// What it was asked: the method of its task service.
        method: String,
        /// How it waits for itself, when its goroutines tell.
        lock: Option<ShimLock>,
    },
    /// Whoever does not answer calls over D-Bus.
    Bus(Box<BusStall>),
    /// A loop of the kubelet.
    Loop(Box<LoopStall>),
    /// A request that waits for nothing else that is known.
    Request(Request),
}

impl StuckKind {
    /// Stable name for JSON.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Stopped { .. } => "stopped",
            Self::Frozen { .. } => "frozen",
            Self::Process { .. } => "process",
            Self::Unreaped { .. } => "unreaped",
            Self::OutputHeld { .. } => "output_held",
            Self::Unreported { .. } => "unreported",
            Self::Jammed { .. } => "jammed",
            Self::SilentShim { .. } => "silent_shim",
            Self::Bus(_) => "bus",
            Self::Loop(_) => "loop",
            Self::Request(_) => "request",
        }
    }

    /// The process it is about.
    #[must_use]
    pub fn pid(&self) -> u32 {
        match self {
            Self::Stopped { pid, .. }
            | Self::Frozen { pid, .. }
            | Self::Process { pid, .. }
            | Self::Unreaped { pid, .. }
            | Self::Unreported { pid, .. } => *pid,
            Self::Jammed { runtime, .. } => *runtime,
            Self::SilentShim { shim, .. } => *shim,
            Self::OutputHeld { pipe, shim } => pipe.writers.first().map_or(*shim, |writer| writer.pid),
            // Who does not answer; when that is not known, who does not get an answer.
            Self::Bus(stall) => {
                if stall.pid == 0 {
                    stall.call.fact.asker
                } else {
                    stall.pid
                }
            }
            Self::Loop(stall) => stall.oldest.pid,
            Self::Request(request) => request.pid,
        }
    }
}

/// Who waits.
#[derive(Clone, Debug, PartialEq)]
pub enum Waiter {
    /// A process, for its child.
    Process {
        /// What it is to the node.
        component: Component,
        /// What it was told to do.
        command: Option<Command>,
        /// The kernel's name of it. Hostile text.
        comm: String,
        /// Process.
        pid: u32,
        /// What it is doing, as in [`Stuck::phases`].
        phases: Vec<Phase>,
    },
    /// Requests.
    Requests(Request),
    /// A relist of the kubelet.
    Relist {
        /// The kubelet.
        pid: u32,
        /// How long it is open.
        age: Age,
    },
}

/// The phases of a process of the census. It is still the same when its program was there before the census looked.
fn phases(fact: &ProcessFact, snapshot: &Snapshot) -> Vec<Phase> {
    let same = |process: &&OpenProcess| {
        process.pid == fact.pid && process.start.is_none_or(|start| start.0 <= fact.at_ns)
    };
    snapshot.processes.open.iter().find(same).map(|process| process.phases.clone()).unwrap_or_default()
}

/// Everything that does not move, what holds others up first, then what is older.
#[must_use]
pub fn find(snapshot: &Snapshot) -> Vec<Stuck> {
    let known = Known::collect(snapshot.census.round.as_ref(), snapshot.census.processes.iter());
    let mut found = halted::find(snapshot);
    found.extend(work::processes(snapshot));
    found.extend(work::outputs(&known, snapshot));
    found.extend(jammed::find(snapshot));
    found.extend(unreported::find(&found, &known, snapshot));
    found.extend(silent::find(&found, &known, snapshot));
    for stuck in &mut found {
        let waiters = chain::waiters(stuck, &known, snapshot);
        stuck.waiters.extend(waiters);
    }
    found.extend(bus::find(&known, snapshot));
    found.extend(loops::find(snapshot));
    let explained =
        found.iter().flat_map(|stuck| stuck.waiters.iter().filter_map(chain::goroutines)).collect();
    found.extend(chain::unexplained(&known, snapshot, &explained));
    found.sort_by_key(|stuck| (Reverse((stuck.reach(), stuck.since.ns)), stuck.what.pid()));
    found
}
