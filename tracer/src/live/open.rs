//! What is open: read from the maps, asked about, forgotten when it is over without its end having been seen.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    time::Duration,
};

use plegtrace_common::key::{CallKey, OpenCall, Parker, ParkerKey, Watched};

use super::{Live, govern};
use crate::{
    census, clock,
    decode::stack,
    input::{Arrival, Fact, InFlight, Liveness, OpenCallFact, ParkerFact, ProcessesFact, WatchedFact},
    kernel::{KernelError, OpenCalls, Processes},
};

/// A call younger than this is not worth a question.
const ASK_AFTER_NS: u64 = 1_000_000_000;
/// How long answers may take, all together.
const ASK_DEADLINE: Duration = Duration::from_millis(300);
/// Most questions per round.
const ASK_AT_MOST: usize = 512;

impl Live {
    /// Reads what is open now, then drains, then says what it read: in this order, so that a call that ended in
    /// between is known to have ended.
    ///
    /// # Errors
    ///
    /// A map cannot be read.
    pub(crate) fn read_in_flight(&mut self, sink: &mut dyn FnMut(Arrival)) -> Result<(), KernelError> {
        let at_ns = clock::monotonic_ns();
        let mut open = self.kernel.open_calls()?;
        let parkers = if self.follows_parks { self.kernel.parkers()?.entries } else { Vec::new() };
        let messages = self.follows_wire.then(|| self.kernel.messages()).transpose()?;
        let requests = self.follows_wire.then(|| self.kernel.requests()).transpose()?;
        let others = self.follows_wire.then(|| self.kernel.other_requests()).transpose()?;
        let docker = self.follows_wire.then(|| self.kernel.docker_requests()).transpose()?;
        let bus_calls = self.follows_wire.then(|| self.kernel.bus_calls()).transpose()?;
        let processes = self.follows.then(|| self.kernel.processes()).transpose()?;
        govern::disown_young_parkers(&mut open.entries, &parkers);
        self.drain_all(sink);
        if self.follows_wire {
            self.requests.conclude(at_ns, &open);
            if let Some(fact) = self.requests.learnt() {
                sink(Arrival::Fact { at_ns, fact: Fact::Names(fact) });
            }
            if let Some(fact) = self.requests.errors() {
                sink(Arrival::Fact { at_ns, fact: Fact::Errors(fact) });
            }
        }
        if let Some(messages) = messages {
            let mut fact = self.open_messages(at_ns, &messages);
            self.unread.tell(at_ns, &mut fact.open);
            sink(Arrival::Fact { at_ns, fact: Fact::Messages(fact) });
        }
        if let (Some(requests), Some(others), Some(processes)) = (requests, others, &processes) {
            let (mut requests, others) = self.open_requests(at_ns, &requests, &others, processes);
            self.unread.tell(at_ns, &mut requests.open);
            sink(Arrival::Fact { at_ns, fact: Fact::Requests(requests) });
            if let Some(mut fact) = others {
                self.unread.tell(at_ns, &mut fact.requests.open);
                sink(Arrival::Fact { at_ns, fact: Fact::OtherClients(fact) });
            }
        }
        if let (Some(docker), Some(processes)) = (docker, &processes)
            && let Some(mut fact) = self.open_docker_requests(at_ns, &docker, processes)
        {
            self.unread.tell(at_ns, &mut fact.open);
            sink(Arrival::Fact { at_ns, fact: Fact::DockerRequests(fact) });
        }
        if let Some(fact) = self.open_bus_calls(at_ns, bus_calls.as_ref()) {
            sink(Arrival::Fact { at_ns, fact: Fact::BusCalls(fact) });
        }
        if let Some(processes) = processes {
            self.forget_ended_programs(&mut open, &processes);
            sink(Arrival::Fact { at_ns, fact: Fact::Processes(told(at_ns, &processes)) });
        }
        let answers = self.ask(&open.entries, at_ns);
        let calls = open
            .entries
            .iter()
            .map(|(key, call)| {
                let liveness = self
                    .question(key, call)
                    .and_then(|q| answers.get(&q).copied())
                    .unwrap_or(Liveness::Unknown);
                open_call(key, call, liveness)
            })
            .collect::<Vec<_>>();
        for (key, call) in &open.entries {
            let over = self.question(key, call).and_then(|q| answers.get(&q)) == Some(&Liveness::Over);
            if over {
                self.kernel.forget_call(key);
                self.kernel.forget_parker(&ParkerKey { goid: key.goid, tgid: key.tgid, reserved: 0 });
            }
        }
        if open.complete {
            self.forget_stale(&parkers, &open.entries, at_ns);
        }
        let parkers = parkers.iter().map(|(key, parker)| parker_fact(key, parker)).collect();
        let fact = InFlight { at_ns, calls, complete: open.complete, parkers };
        sink(Arrival::Fact { at_ns, fact: Fact::InFlight(fact) });
        Ok(())
    }

    /// Forgets the calls of programs that have ended: by an `execve`, or with their process. This is how the last phases
    /// of every runc end. The processes were read after the calls, and whoever makes a watched call is watched.
    fn forget_ended_programs(&mut self, open: &mut OpenCalls, processes: &Processes) {
        if !processes.complete {
            return;
        }
        let began: HashMap<u32, u64> =
            processes.entries.iter().map(|(pid, watched)| (*pid, watched.since_ns)).collect();
        let (over, calls) = std::mem::take(&mut open.entries)
            .into_iter()
            .partition(|(key, call)| has_ended(key, call, &began));
        open.entries = calls;
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

    fn ask(&mut self, calls: &[(CallKey, OpenCall)], now_ns: u64) -> HashMap<census::Asked, Liveness> {
        let old = |(_, call): &&(CallKey, OpenCall)| now_ns.saturating_sub(call.start_ns) >= ASK_AFTER_NS;
        // Calls inside each other are on one goroutine.
        let questions: BTreeSet<census::Asked> =
            calls.iter().filter(old).filter_map(|(key, call)| self.question(key, call)).collect();
        let Some(request) = &self.census else { return HashMap::new() };
        let turn = in_turn(questions.into_iter().collect(), self.asked, ASK_AT_MOST);
        self.asked = self.asked.wrapping_add(turn.len());
        census::ask_all(request, turn, ASK_DEADLINE)
    }

    fn question(&self, key: &CallKey, call: &OpenCall) -> Option<census::Asked> {
        let goid_offset = *self.goid_offsets.get(&call.hook)?;
        Some(census::Asked { tgid: key.tgid, goid: key.goid, g_addr: call.g_addr, goid_offset })
    }
}

/// At most `most` of them, those that were not among the `before` ones of earlier looks first.
fn in_turn<T>(mut all: Vec<T>, before: usize, most: usize) -> Vec<T> {
    if all.len() > most {
        let from = before % all.len();
        all.rotate_left(from);
        all.truncate(most);
    }
    all
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
        known: None,
    };
    ProcessesFact { at_ns, processes: read.entries.iter().map(fact).collect(), complete: read.complete }
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
        stream: call.stream,
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
                    stream: 0,
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

    /// Too many questions for one look are all asked within a few.
    #[test]
    fn each_has_its_turn() {
        assert_eq!(in_turn(vec![1, 2, 3], 7, 3), [1, 2, 3]);
        let mut before = 0;
        let mut asked = BTreeSet::new();
        for _ in 0..3 {
            let turn = in_turn((0..5).collect(), before, 2);
            before += turn.len();
            asked.extend(turn);
        }
        assert_eq!(asked.len(), 5);
    }
}
