//! [`Live`]: the running kernel as a source of the input stream.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use bytes::Bytes;
use plegtrace_common::key::{CallKey, OpenCall, Parker, ParkerKey, Watched};

use super::clock;
use crate::{
    census,
    decode::stack,
    input::{
        Component, Cost, Fact, Frame, InFlight, Liveness, LossCount, OpenCallFact, ParkerFact, ProcessesFact,
        WatchedFact, admit, frame_fact, next_frame,
    },
    kernel::{AttachMode, Kernel, KernelError, OpenCalls, Processes},
    plan::{Plan, PlannedBinary},
    target::Lease,
};

/// A call younger than this is not worth a question.
const ASK_AFTER_NS: u64 = 1_000_000_000;
/// How long answers may take, all together.
const ASK_DEADLINE: Duration = Duration::from_millis(300);
/// Most questions per round.
const ASK_AT_MOST: usize = 512;

/// The kernel side and what is needed to read it.
pub(crate) struct Live {
    kernel: Kernel,
    /// Leases on probed files that nobody may be running, by the number of the executable. Given up after the probes.
    leases: HashMap<u64, Lease>,
    /// Processes are followed.
    follows: bool,
    /// Parks are followed.
    follows_parks: bool,
    /// Offset of `goid` in `runtime.g`, by hook.
    goid_offsets: HashMap<u32, u32>,
    hooks: u32,
    /// Records that were no records: a defect, counted all the same.
    damaged: u64,
    began_ns: u64,
    began_cpu_ns: u64,
}

impl Live {
    /// Takes a loaded kernel side over.
    #[must_use]
    pub(crate) fn new(kernel: Kernel, follows: bool, follows_parks: bool) -> Self {
        Self {
            kernel,
            leases: HashMap::new(),
            follows,
            follows_parks,
            goid_offsets: HashMap::new(),
            hooks: 0,
            damaged: 0,
            began_ns: clock::monotonic_ns(),
            began_cpu_ns: clock::cpu_ns(),
        }
    }

    /// How sites are attached.
    #[must_use]
    pub(crate) fn mode(&self) -> AttachMode {
        self.kernel.mode()
    }

    /// Watches a process.
    ///
    /// # Errors
    ///
    /// The kernel's table of processes is full.
    pub(crate) fn watch(&mut self, pid: u32, component: Component) -> Result<(), KernelError> {
        self.kernel.watch(pid, Watched::found(component.role()))
    }

    /// Learns the hooks of a plan that has grown.
    pub(crate) fn learn(&mut self, plan: &Plan) {
        self.hooks = u32::try_from(plan.hooks.len()).unwrap_or(u32::MAX);
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

    /// Keeps a lease for as long as the probes of this executable are on.
    pub(crate) fn guard(&mut self, id: u64, lease: Lease) {
        self.leases.insert(id, lease);
    }

    /// Takes the probes off from files that somebody wants to write to, and lets them; says which.
    pub(crate) fn give_way(&mut self) -> Vec<u64> {
        let broken = |(id, lease): (&u64, &Lease)| (!lease.is_intact()).then_some(*id);
        let wanted: Vec<u64> = self.leases.iter().filter_map(broken).collect();
        for id in &wanted {
            self.kernel.detach(*id);
            self.leases.remove(id);
        }
        wanted
    }

    /// Hands over every record that is waiting.
    pub(crate) fn drain(&mut self, sink: &mut dyn FnMut(Frame)) {
        let damaged = &mut self.damaged;
        self.kernel.drain(&mut |mut bytes: Bytes| match next_frame(&mut bytes).and_then(admit) {
            Ok((frame, fact)) => {
                sink(frame);
                fact.into_iter().for_each(&mut *sink);
            }
            Err(_) => *damaged += 1,
        });
    }

    /// Reads what is open now, then drains, then says what it read: in this order, so that a call that ended in
    /// between is known to have ended.
    ///
    /// # Errors
    ///
    /// A map cannot be read.
    pub(crate) fn read_in_flight(&mut self, sink: &mut dyn FnMut(Frame)) -> Result<(), KernelError> {
        let at_ns = clock::monotonic_ns();
        let mut open = self.kernel.open_calls()?;
        let parkers = if self.follows_parks { self.kernel.parkers()?.parkers } else { Vec::new() };
        let processes = self.follows.then(|| self.kernel.processes()).transpose()?;
        self.drain(sink);
        if let Some(processes) = processes {
            self.forget_ended_programs(&mut open, &processes);
            sink(frame_fact(at_ns, &Fact::Processes(told(at_ns, &processes))));
        }
        let answers = self.ask(&open.calls, at_ns);
        let calls = open
            .calls
            .iter()
            .map(|(key, call)| {
                let liveness = self
                    .question(key, call)
                    .and_then(|q| answers.get(&q).copied())
                    .unwrap_or(Liveness::Unknown);
                open_call(key, call, liveness)
            })
            .collect::<Vec<_>>();
        for (key, call) in &open.calls {
            let over = self.question(key, call).and_then(|q| answers.get(&q)) == Some(&Liveness::Over);
            if over {
                self.kernel.forget_call(key);
                self.kernel.forget_parker(&ParkerKey { goid: key.goid, tgid: key.tgid, reserved: 0 });
            }
        }
        if open.complete {
            self.forget_stale(&parkers, &open.calls, at_ns);
        }
        let parkers = parkers.iter().map(|(key, parker)| parker_fact(key, parker)).collect();
        let fact = InFlight { at_ns, calls, complete: open.complete, parkers };
        sink(frame_fact(at_ns, &Fact::InFlight(fact)));
        Ok(())
    }

    /// Forgets the calls of programs that have ended: by an `execve`, or with their process. This is how the last phases
    /// of every runc end. The processes were read after the calls, and whoever makes a watched call is watched.
    fn forget_ended_programs(&mut self, open: &mut OpenCalls, processes: &Processes) {
        if !processes.complete {
            return;
        }
        let began: HashMap<u32, u64> =
            processes.processes.iter().map(|(pid, watched)| (*pid, watched.since_ns)).collect();
        let (over, calls) =
            std::mem::take(&mut open.calls).into_iter().partition(|(key, call)| has_ended(key, call, &began));
        open.calls = calls;
        let over: Vec<(CallKey, OpenCall)> = over;
        for (key, _) in over {
            self.kernel.forget_call(&key);
        }
    }

    /// Forgets goroutines that were in no call when the calls were read, and did not begin one since.
    fn forget_stale(&mut self, parkers: &[(ParkerKey, Parker)], calls: &[(CallKey, OpenCall)], at_ns: u64) {
        let inside: HashSet<(u32, u64)> = calls.iter().map(|(key, _)| (key.tgid, key.goid)).collect();
        for (key, parker) in parkers {
            let began = parker.root_start_ns;
            // 0: it is being entered right now.
            if began != 0 && began < at_ns && !inside.contains(&(key.tgid, key.goid)) {
                self.kernel.forget_parker(key);
            }
        }
    }

    fn ask(&self, calls: &[(CallKey, OpenCall)], now_ns: u64) -> HashMap<census::Asked, Liveness> {
        let questions = calls
            .iter()
            .filter(|(_, call)| now_ns.saturating_sub(call.start_ns) >= ASK_AFTER_NS)
            .filter_map(|(key, call)| self.question(key, call))
            .take(ASK_AT_MOST)
            .collect();
        census::ask_all(questions, ASK_DEADLINE)
    }

    fn question(&self, key: &CallKey, call: &OpenCall) -> Option<census::Asked> {
        let goid_offset = *self.goid_offsets.get(&call.hook)?;
        Some(census::Asked { tgid: key.tgid, goid: key.goid, g_addr: call.g_addr, goid_offset })
    }

    /// Forgets the open calls of a process that is gone.
    ///
    /// # Errors
    ///
    /// The map of open calls cannot be read.
    pub(crate) fn sweep(&mut self, tgid: u32) -> Result<(), KernelError> {
        for (key, _) in self.kernel.open_calls()?.calls {
            if key.tgid == tgid {
                self.kernel.forget_call(&key);
            }
        }
        for (key, _) in self.kernel.parkers()?.parkers {
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
        for (pid, _) in self.kernel.processes()?.processes {
            if !census::exists(pid) {
                self.kernel.forget_process(pid);
            }
        }
        Ok(())
    }

    /// Hands over counters, losses and own cost.
    ///
    /// # Errors
    ///
    /// A map cannot be read.
    pub(crate) fn read_counters(&mut self, sink: &mut dyn FnMut(Frame)) -> Result<(), KernelError> {
        let now = clock::monotonic_ns();
        let hooks = self.kernel.counters(self.hooks)?;
        let mut counts = self.kernel.reasons()?;
        if self.damaged > 0 {
            counts.push(LossCount {
                stage: "ring".to_owned(),
                reason: "damaged_record".to_owned(),
                sentence: "records of the kernel side could not be read".to_owned(),
                count: self.damaged,
                is_loss: true,
            });
        }
        sink(frame_fact(now, &Fact::Counters { hooks }));
        sink(frame_fact(now, &Fact::Loss { counts }));
        let (rss_bytes, rss_peak_bytes) = census::own_memory();
        let cost = Cost {
            cpu_ns: clock::cpu_ns().saturating_sub(self.began_cpu_ns),
            wall_ns: now.saturating_sub(self.began_ns),
            rss_bytes,
            rss_peak_bytes,
            child_peak_bytes: clock::largest_child_bytes(),
        };
        sink(frame_fact(now, &Fact::Cost(cost)));
        Ok(())
    }
}

/// Has the program ended that made the call? `began`: when the programs of the watched processes did; 0: before us.
fn has_ended(key: &CallKey, call: &OpenCall, began: &HashMap<u32, u64>) -> bool {
    began.get(&key.tgid).is_none_or(|began| *began > call.start_ns)
}

fn told(at_ns: u64, read: &Processes) -> ProcessesFact {
    let fact = |&(pid, watched): &(u32, Watched)| WatchedFact {
        pid,
        role: watched.role,
        parent_role: watched.parent_role,
        since_ns: watched.since_ns,
        parent: watched.parent,
        flags: watched.flags,
    };
    ProcessesFact { at_ns, processes: read.processes.iter().map(fact).collect(), complete: read.complete }
}

fn open_call(key: &CallKey, call: &OpenCall, liveness: Liveness) -> OpenCallFact {
    OpenCallFact {
        tgid: key.tgid,
        goid: key.goid,
        hook: call.hook,
        start_ns: call.start_ns,
        mark_ns: call.mark_ns,
        depth: call.depth,
        flags: call.flags,
        liveness,
        parked_ns: call.parked_ns,
        short_ns: call.short_ns,
        parks: call.parks,
    }
}

fn parker_fact(key: &ParkerKey, parker: &Parker) -> ParkerFact {
    let parked = parker.since_ns != 0;
    let stack = if parked { stack(parker.start_code, parker.caller, &parker.frames) } else { Vec::new() };
    ParkerFact {
        tgid: key.tgid,
        goid: key.goid,
        parked_ns: parker.parked_ns,
        short_ns: parker.short_ns,
        parks: parker.parks,
        since_ns: parker.since_ns,
        hook: parker.hook,
        reason: parker.reason,
        stack,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A call is over with its process, and with the program that made it; one of a program from before us is not.
    #[test]
    fn calls_end_with_their_program() {
        let call = |tgid| {
            (
                CallKey { goid: 1, tgid, class: 8, depth: 640, reserved: 0 },
                OpenCall {
                    start_ns: 500,
                    mark_ns: 0,
                    g_addr: 0,
                    hook: 3,
                    flags: 0,
                    depth: 640,
                    tid: tgid,
                    parked_ns: 0,
                    short_ns: 0,
                    parks: 0,
                    reserved: 0,
                },
            )
        };
        let began = HashMap::from([(10, 400), (11, 501), (12, 0)]);
        let ended = |tgid| {
            let (key, call) = call(tgid);
            has_ended(&key, &call, &began)
        };
        let pids = [10, 11, 12, 13];
        assert_eq!(pids.map(ended), [false, true, false, true], "runs; executed another; was there; is gone");
    }
}
