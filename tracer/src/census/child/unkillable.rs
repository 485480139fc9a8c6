//! Processes of containers that were sent SIGKILL and do not end: a thread of each waits in the kernel where no signal reaches it (state D;
//! kernel/signal.c, `complete_signal` gives SIGKILL to every thread). As long as one is there the kernel does not report the end of the
//! container, and its pod stays Terminating.

use std::{
    io,
    path::Path,
    time::{Duration, Instant},
};

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
/// How long is looked at all of them: a server of files that is gone leaves thousands of threads in state D.
const TIME: Duration = Duration::from_millis(400);
/// Processes that are reported in a round.
const MAX_REPORTED: usize = 64;
/// SIGKILL in a mask of signals.
const SIGKILL: u64 = 1 << (libc::SIGKILL - 1);

/// Reports them; whether one of them waits for a program that answers for the kernel. Says so when there were too many.
pub(super) fn tell(tell: &mut Tell, interests: &Interests, node: &Node) -> io::Result<bool> {
    let mut awaits = false;
    let (doomed, all) = doomed(tell, &interests.workloads, TIME);
    for workload in &doomed {
        let Some(found) = look(tell, workload, node)? else { continue };
        awaits |= are_awaited(&found.park);
        tell.say(&Answer::Unkillable(Box::new(found)))?;
    }
    if !all {
        let why = "too many processes of containers are in state D".to_owned();
        tell.cut(0, "", "processes that SIGKILL does not end", why)?;
    }
    Ok(awaits)
}

/// Those that were sent SIGKILL, within this time; and whether these are all.
fn doomed<'a>(tell: &Tell, workloads: &'a [Interest], time: Duration) -> (Vec<&'a Interest>, bool) {
    let (mut found, began) = (Vec::new(), Instant::now());
    for (number, workload) in workloads.iter().filter(|one| may_wait(one)).enumerate() {
        if number == MAX_LOOKED_AT || found.len() == MAX_REPORTED || began.elapsed() >= time {
            return (found, false);
        }
        if is_doomed(&tell.process(workload.pid)) {
            found.push(workload);
        }
    }
    (found, true)
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
    use std::fs;

    use super::*;
    use crate::{
        census::child::{classify::Kind, scan::Seen},
        input::Component,
        target::Stat,
    };

    /// A process of a container in this state; `killed`: SIGKILL waits for it.
    fn workload(root: &Path, pid: u32, state: char, killed: bool) -> Interest {
        let task = root.join(format!("proc/{pid}/task/{pid}"));
        fs::create_dir_all(&task).unwrap();
        let mask = if killed { "0000000000000100" } else { "0000000000000000" };
        fs::write(task.join("status"), format!("State:\t{state}\nSigPnd:\t{mask}\n")).unwrap();
        let stat = Stat { comm: "cat".into(), state, parent: 1, session: 1, threads: 1, start_ticks: 5 };
        Interest {
            pid,
            component: Component::Helper,
            seen: Seen { stat, role: None, init: false, program: None },
            kind: Kind::Workload { shim: 1 },
            by_hand: None,
            detached: false,
        }
    }

    /// Only what was killed and waits in the kernel; and whoever was not looked at is not forgotten silently.
    #[test]
    fn those_that_were_killed() {
        let root = tempfile::tempdir().unwrap();
        let tell = Tell::below(root.path(), io::sink());
        let few: Vec<Interest> = [(10, 'D', true), (11, 'D', false), (12, 'S', true)]
            .map(|(pid, state, killed)| workload(root.path(), pid, state, killed))
            .into();
        let pids =
            |(found, all): (Vec<&Interest>, bool)| (found.iter().map(|one| one.pid).collect::<Vec<_>>(), all);
        assert_eq!(pids(doomed(&tell, &few, TIME)), (vec![10], true));
        assert_eq!(pids(doomed(&tell, &few, Duration::ZERO)), (vec![], false), "no time is left");
        let long = Duration::from_secs(3600);
        let waiting = |count: u32, killed| -> Vec<Interest> {
            (100..100 + count).map(|pid| workload(root.path(), pid, 'D', killed)).collect()
        };
        let (reported, looked_at) = (MAX_REPORTED as u32, MAX_LOOKED_AT as u32);
        assert_eq!(pids(doomed(&tell, &waiting(looked_at, false), long)), (vec![], true));
        assert_eq!(pids(doomed(&tell, &waiting(looked_at + 1, false), long)), (vec![], false));
        let (found, all) = pids(doomed(&tell, &waiting(reported + 1, true), long));
        assert_eq!((found.len(), all), (MAX_REPORTED, false));
    }

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
