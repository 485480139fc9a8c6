//! Processes of containers that were sent SIGKILL and do not end: a thread of each waits in the kernel where no signal reaches it (state D;
//! kernel/signal.c, `complete_signal` gives SIGKILL to every thread). As long as one is there the kernel does not report the end of the
//! container, and its pod stays Terminating.

use std::{io, path::Path};

use super::{
    answerers::are_awaited,
    classify::{Interest, Interests},
    node::{Node, cgroup},
    read,
    tell::Tell,
    threads,
};
use crate::{
    census::{
        clock,
        protocol::{Answer, Step},
    },
    input::{ParkedThreads, Unkillable},
};

/// Processes in containers that are looked at: those of which a thread may be in state D. A healthy node has a few for a moment.
const MAX_LOOKED_AT: usize = 256;
/// Threads of each.
const MAX_THREADS: usize = 512;
/// Processes of a round.
const MAX_TOLD: usize = 64;
/// SIGKILL in a mask of signals.
const SIGKILL: u64 = 1 << (libc::SIGKILL - 1);

/// Tells of them; whether one of them waits for a program that answers for the kernel.
pub(super) fn tell(tell: &mut Tell, interests: &Interests, node: &Node) -> io::Result<bool> {
    let (mut told, mut awaits) = (0, false);
    let may_wait = interests.workloads.iter().filter(|one| may_wait(one)).take(MAX_LOOKED_AT);
    for workload in may_wait {
        let dir = tell.process(workload.pid);
        if !is_doomed(&dir) {
            continue;
        }
        let Some(found) = look(tell, workload, node)? else { continue };
        awaits |= are_awaited(&found.park);
        tell.say(&Answer::Unkillable(Box::new(found)))?;
        told += 1;
        if told == MAX_TOLD {
            break;
        }
    }
    Ok(awaits)
}

/// Can a thread of it be in state D? The leader is, or it has ended before the others.
fn may_wait(workload: &Interest) -> bool {
    let stat = &workload.seen.stat;
    stat.state == 'D' || matches!(stat.state, 'Z' | 'X') && stat.threads > 1
}

/// Was it sent SIGKILL, and has not taken it?
fn is_doomed(process: &Path) -> bool {
    let threads = read::numbers(&process.join("task"), MAX_THREADS).unwrap_or_default();
    let text = |tid| read::text(&process.join(format!("task/{tid}/status"))).ok();
    threads.into_iter().filter_map(text).any(|status| is_killed(&status))
}

/// `SigPnd` are the signals of the thread, `ShdPnd` those of the process that no thread has taken (fs/proc/array.c, hexadecimal).
fn is_killed(status: &str) -> bool {
    let mask = |line: &str| {
        let mask = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    };
    status.lines().filter_map(mask).any(|mask| mask & SIGKILL != 0)
}

fn look(tell: &mut Tell, workload: &Interest, node: &Node) -> io::Result<Option<Unkillable>> {
    let (pid, stat) = (workload.pid, &workload.seen.stat);
    let whole = tell.ask(pid, &stat.comm, Step::Stacks)?;
    let process = tell.process(pid);
    let threads = threads::look(&process, pid, whole, &node.holders, &node.sockets);
    let waits = |park: &ParkedThreads| park.state == 'D';
    let Some(park) = threads.parks.into_iter().map(|seen| seen.park).find(waits) else { return Ok(None) };
    let groups = cgroup(tell, workload, node)?.unwrap_or_default();
    // What a freezer holds is in state D as well, and ends when it is thawed.
    if groups.freezer.is_some() || park.are_frozen() {
        return Ok(None);
    }
    // Its number may belong to another one by now, or it is about to end.
    let is_there = read::stat(&process).is_some_and(|now| now.start_ticks == stat.start_ticks);
    Ok((is_there && is_doomed(&process)).then(|| Unkillable {
        at_ns: clock::now_ns(),
        pid,
        comm: stat.comm.clone(),
        started_ns: clock::started_ns(stat.start_ticks),
        container: groups.container,
        park,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a thread, of the process, of neither; and a mask that is none.
    #[test]
    fn pending_signals() {
        let status = |thread: &str, process: &str| {
            format!(
                "Name:\tcat\nState:\tD (disk sleep)\nSigQ:\t1/2\nSigPnd:\t{thread}\nShdPnd:\t{process}\nSigBlk:\t0000000000000100\n"
            )
        };
        assert!(is_killed(&status("0000000000000100", "0000000000000000")));
        assert!(is_killed(&status("0000000000000000", "0000000000004100")));
        assert!(!is_killed(&status("0000000000000000", "0000000000004000")), "SIGTERM alone");
        assert!(!is_killed(&status("x", "")));
    }
}
