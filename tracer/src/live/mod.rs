//! [`Live`]: the running kernel as a source of the input stream.

mod bus;
mod bus_waits;
mod docker;
mod drain;
mod errors;
mod govern;
mod governor;
mod interrupt;
mod messages;
mod open;
mod open_requests;
mod others;
mod own_cost;
mod requests;
mod system_calls;
mod unread;

use std::{
    collections::{HashMap, VecDeque},
    io, thread,
    time::Duration,
};

use plegtrace_common::key::Watched;

use crate::{
    census::{self, Hazard, Mappers},
    chain::chain,
    clock,
    input::{Arrival, Component, Cost, Fact, LossCount, admit, next_frame},
    kernel::{AttachMode, Kernel, KernelError, Records},
    plan::{Plan, PlannedBinary},
    render::escape,
    target::Lease,
};
pub(crate) use bus::OpenBus;
use drain::Drainer;
pub(crate) use governor::OverBudget;
pub(crate) use interrupt::let_interrupt_end_us;

/// How long and how often whoever keeps us from detaching is looked at.
const AGAIN: Duration = Duration::from_millis(200);

/// The kernel side and what is needed to read it.
pub(crate) struct Live {
    /// Before the kernel side: its thread reads the ring.
    drainer: Drainer,
    kernel: Kernel,
    /// What guards the probes of an executable, by its number. Given up after the probes.
    guards: HashMap<u64, Guard>,
    /// Processes are followed.
    follows: bool,
    /// Parks are followed.
    follows_parks: bool,
    /// Requests between runtime and shims are followed.
    follows_wire: bool,
    /// There is, or was, a Docker on this node.
    follows_docker: bool,
    /// Requests to the runtime, besides what the kernel keeps of them.
    requests: requests::Requests,
    /// Calls over D-Bus without an answer.
    bus: OpenBus,
    unread: unread::Unread,
    /// How goroutines are asked whether they are still there; `None`: they are not.
    census: Option<census::Request>,
    /// Questions that were asked so far, when there were too many for one look.
    asked: usize,
    /// Offset of `goid` in `runtime.g`, by hook.
    goid_offsets: HashMap<u32, u32>,
    hooks: u32,
    costs: govern::Costs,
    system_calls: system_calls::SystemCalls,
    /// Records that could not be read, each counted: a defect of the kernel side.
    damaged: u64,
    began_ns: u64,
    began_cpu_ns: u64,
}

/// What guards the probes of one executable.
pub(crate) struct Guard {
    /// Against writing to its file while nobody runs it.
    pub(crate) lease: Lease,
    /// Against detaching while it would stop the node.
    pub(crate) mappers: Mappers,
}

impl Live {
    /// Takes a loaded kernel side over.
    ///
    /// # Errors
    ///
    /// No thread can be started that drains the ring.
    pub(crate) fn new(
        mut kernel: Kernel,
        follows: bool,
        follows_parks: bool,
        census: Option<census::Request>,
    ) -> io::Result<Self> {
        let ring = kernel.take_ring().ok_or(io::ErrorKind::AlreadyExists)?;
        Ok(Self {
            drainer: Drainer::start(ring)?,
            kernel,
            guards: HashMap::new(),
            follows,
            follows_parks,
            follows_wire: false,
            follows_docker: false,
            requests: requests::Requests::default(),
            bus: OpenBus::default(),
            unread: unread::Unread::default(),
            census,
            asked: 0,
            goid_offsets: HashMap::new(),
            hooks: 0,
            costs: govern::Costs::new(u64::MAX),
            system_calls: system_calls::SystemCalls::new(u64::MAX),
            damaged: 0,
            began_ns: clock::monotonic_ns(),
            began_cpu_ns: own_cost::cpu_ns(),
        })
    }

    /// Allows each program so many hits per second of the probes on its scheduler.
    #[must_use]
    pub(crate) fn with_park_budget(mut self, budget: u64) -> Self {
        self.costs = govern::Costs::new(budget);
        self
    }

    /// Allows each processor so many system calls per second while requests on sockets are followed.
    #[must_use]
    pub(crate) fn with_syscall_budget(mut self, budget: u64) -> Self {
        let cpus = thread::available_parallelism().map_or(1, usize::from) as u64;
        self.system_calls = system_calls::SystemCalls::new(budget.saturating_mul(cpus));
        self
    }

    /// Begins to follow requests between runtime and shims; all shims there are must be watched.
    ///
    /// # Errors
    ///
    /// The kernel refuses; why, in words.
    pub(crate) fn follow_wire(&mut self) -> Result<(), String> {
        if let Some(why) = self.kernel.wire_refused() {
            return Err(why.to_owned());
        }
        self.kernel.attach_wire().map_err(|error| chain(&error))?;
        self.follows_wire = true;
        self.requests.follow();
        Ok(())
    }

    /// How sites are attached.
    #[must_use]
    pub(crate) fn mode(&self) -> AttachMode {
        self.kernel.mode()
    }

    /// Does the kernel side say when programs begin and end?
    #[must_use]
    pub(crate) fn follows_processes(&self) -> bool {
        self.follows
    }

    /// Watches a process; `docker`: the node's dockerd is watched too.
    ///
    /// # Errors
    ///
    /// The kernel's table of processes is full.
    pub(crate) fn watch(&mut self, pid: u32, component: Component, docker: bool) -> Result<(), KernelError> {
        let found = Watched::found(component.role());
        if self.kernel.watch(pid, if docker { found.beside_dockerd() } else { found })? {
            self.requests.watch(pid, component.role(), clock::monotonic_ns());
        }
        Ok(())
    }

    /// Learns the hooks of a plan that has grown.
    pub(crate) fn learn(&mut self, plan: &Plan) {
        self.hooks = u32::try_from(plan.hooks.len()).unwrap_or(u32::MAX);
        self.costs.learn(plan);
        self.requests.learn(&plan.hooks);
        for binary in &plan.binaries {
            for site in binary.every_site() {
                self.goid_offsets.insert(site.conf.hook, site.conf.goid_off);
            }
        }
    }

    /// Attaches one executable under a number of the caller's.
    ///
    /// # Errors
    ///
    /// The kernel refuses; nothing of it is attached then. What comes back without an error is why its parks are not
    /// followed, if so.
    pub(crate) fn attach(
        &mut self,
        id: u64,
        binary: &PlannedBinary,
    ) -> Result<Option<KernelError>, KernelError> {
        self.kernel.attach(id, binary)
    }

    /// Forgets what the sites and hooks of an executable stood for. Its probes are off.
    ///
    /// # Errors
    ///
    /// The counters of a hook cannot be set to zero.
    pub(crate) fn forget(&mut self, binary: &PlannedBinary) -> Result<(), KernelError> {
        self.kernel.forget(binary)
    }

    /// Keeps what guards the probes of this executable for as long as they are on.
    pub(crate) fn guard(&mut self, id: u64, guard: Guard) {
        self.guards.insert(id, guard);
    }

    /// Takes the probes off from files that somebody wants to write to, and lets them; says which. Where that would stop
    /// the node, it is tried again the next time.
    pub(crate) fn give_way(&mut self) -> Vec<u64> {
        let broken = |(id, guard): (&u64, &Guard)| {
            (!guard.lease.is_intact() && is_free(&guard.mappers)).then_some(*id)
        };
        let wanted: Vec<u64> = self.guards.iter().filter_map(broken).collect();
        for id in &wanted {
            self.kernel.detach(*id);
            self.guards.remove(id);
        }
        wanted
    }

    /// Waits until nothing that runs a probed file keeps detaching from being quick.
    ///
    /// # Errors
    ///
    /// It did not come to that within `patience`.
    pub(crate) fn wait_until_free(&self, patience: Duration) -> Result<(), Hazard> {
        self.guards.values().try_for_each(|guard| guard.mappers.wait_until_free(patience))
    }

    /// Hands over the records that were drained so far.
    pub(crate) fn drain(&mut self, sink: &mut dyn FnMut(Arrival)) {
        let chunks = self.drainer.take();
        self.damaged += hand_over(chunks, &mut self.requests, sink);
    }

    /// Hands over every record that was committed before this call.
    fn drain_all(&mut self, sink: &mut dyn FnMut(Arrival)) {
        let chunks = self.drainer.take_all();
        self.damaged += hand_over(chunks, &mut self.requests, sink);
    }

    /// Forgets the open calls of a process that is gone.
    ///
    /// # Errors
    ///
    /// The map of open calls cannot be read.
    pub(crate) fn sweep(&mut self, tgid: u32) -> Result<(), KernelError> {
        for (key, _) in self.kernel.open_calls()?.entries {
            if key.tgid == tgid {
                self.kernel.forget_call(&key);
            }
        }
        for (key, _) in self.kernel.parkers()?.entries {
            if key.tgid == tgid {
                self.kernel.forget_parker(&key);
            }
        }
        Ok(())
    }

    /// Forgets watched processes that are not there any more: those whose end came before they were entered by
    /// [`Self::watch`]. The kernel side forgets all others itself.
    ///
    /// # Errors
    ///
    /// The map of watched processes cannot be read.
    pub(crate) fn sweep_processes(&mut self) -> Result<(), KernelError> {
        for (pid, _) in self.kernel.processes()?.entries {
            if !census::exists(pid) {
                self.kernel.forget_process(pid);
            }
        }
        Ok(())
    }

    /// What was lost between the ring and the stream.
    fn losses(&self) -> impl Iterator<Item = LossCount> {
        let all = [
            ("damaged_record", "records from the kernel side could not be read", self.damaged),
            ("queue_full", "records came faster than they could be processed", self.drainer.dropped()),
        ];
        all.into_iter().filter(|(_, _, count)| *count > 0).map(|(reason, sentence, count)| LossCount {
            stage: "ring".to_owned(),
            reason: reason.to_owned(),
            sentence: sentence.to_owned(),
            count,
            is_loss: true,
        })
    }

    /// Hands over counters, losses and own cost.
    ///
    /// # Errors
    ///
    /// A map cannot be read.
    pub(crate) fn read_counters(&mut self, sink: &mut dyn FnMut(Arrival)) -> Result<(), KernelError> {
        let now = clock::monotonic_ns();
        let hooks = self.kernel.counters(self.hooks)?;
        let mut counts = self.kernel.reasons()?;
        counts.extend(self.losses());
        counts.extend(self.requests.losses());
        self.requests.counted(now, &counts);
        self.govern(now, &hooks);
        self.govern_system_calls(now, sink)?;
        let probes_ns = Some(self.costs.probes_ns(&hooks));
        sink(Arrival::Fact { at_ns: now, fact: Fact::Counters { hooks } });
        sink(Arrival::Fact { at_ns: now, fact: Fact::Loss { counts } });
        let (rss_bytes, rss_peak_bytes) = census::own_memory();
        let cost = Cost {
            cpu_ns: own_cost::cpu_ns().saturating_sub(self.began_cpu_ns),
            wall_ns: now.saturating_sub(self.began_ns),
            rss_bytes,
            rss_peak_bytes,
            child_peak_bytes: own_cost::largest_child_bytes(),
            probes_ns,
            syscalls_ns: self.system_calls.ns(),
        };
        sink(Arrival::Fact { at_ns: now, fact: Fact::Cost(cost) });
        Ok(())
    }
}

/// Detaching while a process that runs a probed file is stuck holds up every fork of the node: it waits.
impl Drop for Live {
    fn drop(&mut self) {
        let mut warned = false;
        while let Err(hazard) = self.wait_until_free(AGAIN) {
            if !std::mem::replace(&mut warned, true) {
                // Also after an error, when nobody else says so.
                let_interrupt_end_us();
                tracing::warn!(
                    "not detached yet (Ctrl-C detaches at once): {}",
                    escape::line(&hazard.to_string())
                );
            }
            thread::sleep(AGAIN);
        }
    }
}

fn is_free(mappers: &Mappers) -> bool {
    mappers.is_free().inspect_err(|hazard| tracing::debug!("not detached yet: {hazard}")).is_ok()
}

/// Hands over every record that is one, with the fact that goes with it, and says how many are none. The ring says where
/// each ends, so what comes after a damaged one is read all the same.
fn hand_over(
    chunks: VecDeque<Records>,
    requests: &mut requests::Requests,
    sink: &mut dyn FnMut(Arrival),
) -> u64 {
    let mut damaged = 0;
    for mut record in chunks.into_iter().flat_map(Records::into_each) {
        let frame = next_frame(&mut record).and_then(admit);
        match frame.ok().filter(|_| record.is_empty()) {
            Some((frame, fact)) => {
                requests.name(frame).into_iter().map(Arrival::Record).for_each(&mut *sink);
                fact.into_iter().map(Arrival::Record).for_each(&mut *sink);
            }
            None => damaged += 1,
        }
    }
    damaged
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::{Stop, StopWhy, frame_fact};

    /// A record that is none is counted as one, whatever is wrong with it, and takes no other with it.
    #[test]
    fn damage_is_counted_record_by_record() {
        let fact = |at| frame_fact(at, &Fact::Stop(Stop { why: StopWhy::Duration })).bytes.to_vec();
        let with = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = fact(9);
            change(&mut bytes);
            bytes
        };
        let damaged = [
            with(&|bytes| bytes[14..16].copy_from_slice(&0xffff_u16.to_le_bytes())),
            with(&|bytes| bytes[8..12].copy_from_slice(&3_u32.to_le_bytes())),
            with(&|bytes| bytes.truncate(5)),
            with(&|bytes| bytes.truncate(bytes.len() - 1)),
            with(&|bytes| bytes.extend([0; 8])),
            Vec::new(),
        ];
        let mut chunks = VecDeque::from([Records::default(), Records::default()]);
        for (number, bytes) in damaged.iter().enumerate() {
            let chunk = &mut chunks[number % 2];
            chunk.push(&fact(number as u64));
            chunk.push(bytes);
        }
        chunks[1].push(&fact(100));
        let mut seen = Vec::new();
        let mut see = |item| match item {
            Arrival::Record(frame) => seen.push(frame.header.ts_ns),
            Arrival::Fact { .. } => unreachable!("these are records"),
        };
        let count = hand_over(chunks, &mut requests::Requests::default(), &mut see);
        assert_eq!((count, seen), (damaged.len() as u64, vec![0, 2, 4, 1, 3, 5, 100]));
    }
}
