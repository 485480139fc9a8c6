//! [`Late`]: what is known of programs that have not ended: runc's phases, and where in the kernel a program waits.

use std::collections::HashMap;

use super::frame::{Frame, Kind};
use crate::{
    correlate::{Phase, ProcessSeen, Snapshot},
    input::ParkedThreads,
    span::Span,
    words::{is_entry, short_function},
};

/// System calls in which threads of every Go program rest while another one is what the program waits in.
const RESTING: [&str; 7] =
    ["futex", "epoll_wait", "epoll_pwait", "epoll_pwait2", "nanosleep", "clock_nanosleep", "rt_sigtimedwait"];

/// What is known of programs that have not ended, by pid.
#[derive(Clone, Debug, Default)]
pub(super) struct Late<'a> {
    pub(super) phases: HashMap<u32, &'a [Phase]>,
    pub(super) seen: HashMap<u32, &'a ProcessSeen>,
}

impl<'a> Late<'a> {
    pub(super) fn of(snapshot: &'a Snapshot) -> Self {
        let phases = snapshot.processes.open.iter().filter(|open| !open.phases.is_empty());
        let seen = snapshot.census.processes.iter().map(|seen| (seen.fact.pid, seen));
        Self { phases: phases.map(|open| (open.pid, open.phases.as_slice())).collect(), seen: seen.collect() }
    }

    /// Frames below that of a program which has not ended: its phases, and where it waits.
    pub(super) fn frames(&self, span: &Span) -> Vec<Frame> {
        if !span.is_open() {
            return Vec::new();
        }
        let phases = self.phases.get(&span.id.tgid).copied().unwrap_or_default();
        let phases = phases.iter().map(|phase| Frame::named(Kind::Phase, short_function(&phase.operation)));
        let seen = self.seen.get(&span.id.tgid).filter(|seen| span.start().0 <= seen.fact.at_ns);
        phases.chain(seen.into_iter().flat_map(|seen| kernel(&seen.fact.parked))).collect()
    }
}

/// The kernel's functions in which a program waits, outermost first; nothing when its threads wait at several places.
fn kernel(parks: &[ParkedThreads]) -> Vec<Frame> {
    let rests = |park: &ParkedThreads| {
        let name = park.syscall.as_ref().and_then(|syscall| syscall.name.as_deref());
        name.is_some_and(|name| RESTING.contains(&name))
    };
    let busy: Vec<&ParkedThreads> = parks.iter().filter(|park| !rests(park)).collect();
    let park = match (parks, busy.as_slice()) {
        ([only], _) => only,
        (_, [only]) => *only,
        _ => return Vec::new(),
    };
    let functions = park.kernel_stack.iter().rev().filter(|name| !is_entry(name));
    let mut frames: Vec<Frame> = functions.map(|name| Frame::named(Kind::Function, name.as_str())).collect();
    if !frames.is_empty() {
        frames.insert(0, Frame::of_kind(Kind::Kernel));
    }
    frames
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::SyscallFact;

    fn park(call: &str, stack: &[&str]) -> ParkedThreads {
        let syscall = SyscallFact {
            nr: 1,
            name: Some(call.to_owned()),
            args: [0; 6],
            fd: None,
            path: None,
            lock_holder: None,
            watched: Vec::new(),
        };
        ParkedThreads {
            threads: 1,
            tid: 7,
            state: 'S',
            syscall: Some(syscall),
            kernel_stack: stack.iter().map(|name| (*name).to_owned()).collect(),
            user_function: None,
        }
    }

    fn names(parks: &[ParkedThreads]) -> Vec<String> {
        kernel(parks).iter().map(|frame| frame.text.to_string()).collect()
    }

    const WRITE: [&str; 4] = ["pipe_write", "vfs_write", "do_syscall_64", "entry_SYSCALL_64_after_hwframe"];
    const SLEEP: [&str; 2] = ["hrtimer_nanosleep", "do_syscall_64"];

    /// Threads of the Go runtime that rest say nothing; the one that does not is what the program waits in.
    #[test]
    fn the_thread_that_does_not_rest() {
        let expected = ["[in the kernel, as last seen]", "vfs_write", "pipe_write"];
        assert_eq!(names(&[park("write", &WRITE)]), expected);
        assert_eq!(names(&[park("futex", &["futex_wait"]), park("write", &WRITE)]), expected);
    }

    /// A program of one thread that sleeps does just that; of two that wait elsewhere nobody can tell; one that runs is not
    /// in the kernel as far as is known.
    #[test]
    fn sleeping_undecided_running() {
        assert_eq!(names(&[park("nanosleep", &SLEEP)])[1..], ["hrtimer_nanosleep"]);
        assert!(names(&[park("write", &WRITE), park("read", &["pipe_read"])]).is_empty());
        assert!(names(&[park("futex", &["a"]), park("epoll_wait", &["b"])]).is_empty());
        assert!(names(&[park("read", &[])]).is_empty());
    }
}
