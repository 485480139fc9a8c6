//! Where the threads of a process wait: those that wait alike are one [`ParkedThreads`].

use std::{io, path::Path};

use super::{files::Holders, read, sockets::Sockets, syscall};
use crate::{
    census::text::{Position, function, functions, position},
    input::{FdTarget, ParkedThreads, SyscallFact},
};

/// Threads that are looked at, per process.
pub(super) const MAX_THREADS: usize = 512;
/// Groups that are told.
const MAX_PARKS: usize = 64;

/// All threads of a process.
#[derive(Debug, Default)]
pub(super) struct Threads {
    /// How many there are, up to [`MAX_THREADS`].
    pub(super) seen: u32,
    /// Of these, how many are stopped.
    pub(super) stopped: u32,
    pub(super) parks: Vec<Seen>,
    /// Groups that did not fit.
    pub(super) parks_left_out: bool,
    /// Why system calls cannot be read; stacks.
    pub(super) no_syscall: Option<io::Error>,
    pub(super) no_stack: Option<io::Error>,
}

/// A group, with what is asked later.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) park: ParkedThreads,
    /// Instruction of user space at which it goes on.
    pub(super) pc: Option<u64>,
}

/// What can be known of one thread.
struct Thread {
    state: char,
    at: Option<Position>,
    stack: Vec<String>,
}

/// Looks at the threads; `whole` also at what waits for an `execve` that is under way: calls and stacks. Without, the
/// one kernel function of `wchan` must do.
pub(super) fn look(dir: &Path, pid: u32, whole: bool, holders: &Holders, sockets: &Sockets) -> Threads {
    let mut threads = Threads::default();
    for tid in read::numbers(&dir.join("task"), MAX_THREADS).unwrap_or_default() {
        let task = dir.join("task").join(tid.to_string());
        let Some(thread) = thread(&task, whole, &mut threads) else { continue };
        threads.seen += 1;
        threads.stopped += u32::from(matches!(thread.state, 'T' | 't'));
        let park = ParkedThreads {
            threads: 1,
            tid,
            state: thread.state,
            syscall: thread.at.and_then(|at| syscall::fact(pid, &at, holders, sockets)),
            kernel_stack: thread.stack,
            user_function: None,
        };
        let pc = match thread.at {
            Some(Position::Inside { pc, .. } | Position::Outside { pc, .. }) => Some(pc),
            _ => None,
        };
        threads.add(Seen { park, pc });
    }
    threads.parks.sort_by_key(|seen| (std::cmp::Reverse(seen.park.threads), seen.park.tid));
    threads
}

impl Threads {
    fn add(&mut self, new: Seen) {
        if let Some(same) = self.parks.iter_mut().find(|old| alike(&old.park, &new.park)) {
            same.park.threads += 1;
        } else if self.parks.len() < MAX_PARKS {
            self.parks.push(new);
        } else {
            self.parks_left_out = true;
        }
    }
}

/// Same state, same stack, same call on the same thing. Other arguments differ between threads that wait alike: where
/// the futex is, where the buffer is.
fn alike(a: &ParkedThreads, b: &ParkedThreads) -> bool {
    let call = |park: &ParkedThreads| {
        let syscall = park.syscall.as_ref()?;
        let path = syscall::path_address(syscall);
        Some((syscall.nr, syscall.fd.as_ref().map(|fd| fd.fd), path))
    };
    a.state == b.state && a.kernel_stack == b.kernel_stack && call(a) == call(b)
}

/// Reads one thread. Call and stack are two reads: when the call has changed meanwhile, the thread is on its way, and
/// what was read does not belong together.
fn thread(task: &Path, whole: bool, threads: &mut Threads) -> Option<Thread> {
    let state = read::stat(task)?.state;
    if !whole || matches!(state, 'Z' | 'X') {
        return Some(Thread { state, at: None, stack: wchan(task) });
    }
    let at = call(task, threads);
    if state == 'R' || at == Some(Position::Running) {
        return Some(Thread { state, at: None, stack: Vec::new() });
    }
    // Most threads of a node: where they sleep is what the call says.
    if state == 'S' && at.is_some_and(is_asleep) {
        return Some(Thread { state, at, stack: Vec::new() });
    }
    let stack = match read::text(&task.join("stack")) {
        Ok(text) => functions(&text),
        Err(error) => {
            note(&mut threads.no_stack, error, task);
            wchan(task)
        }
    };
    if at.is_some() && call(task, threads) != at {
        return Some(Thread { state: 'R', at: None, stack: Vec::new() });
    }
    Some(Thread { state, at, stack })
}

fn call(task: &Path, threads: &mut Threads) -> Option<Position> {
    match read::text(&task.join("syscall")) {
        Ok(text) => position(&text),
        Err(error) => {
            note(&mut threads.no_syscall, error, task);
            None
        }
    }
}

/// Is the thread still in this call, with the same arguments?
pub(super) fn is_still_in(task: &Path, call: &SyscallFact) -> bool {
    let now = read::text(&task.join("syscall")).ok().and_then(|text| position(&text));
    matches!(now, Some(Position::Inside { nr, args, .. }) if (nr, args) == (call.nr, call.args))
}

/// A thread that has ended is no refusal.
fn note(place: &mut Option<io::Error>, error: io::Error, task: &Path) {
    let ended = error.raw_os_error() == Some(libc::ESRCH) || !task.exists();
    if place.is_none() && !ended {
        *place = Some(error);
    }
}

/// The one function in which it waits; "0" when it does not, or when we may not know.
fn wchan(task: &Path) -> Vec<String> {
    let text = read::text(&task.join("wchan")).unwrap_or_default();
    function(&text).filter(|name| *name != "0").map(str::to_owned).into_iter().collect()
}

/// Calls in which programs wait for events, for a child or for time.
const RESTS: [&str; 12] = [
    "epoll_wait",
    "epoll_pwait",
    "poll",
    "ppoll",
    "select",
    "pselect6",
    "wait4",
    "waitid",
    "nanosleep",
    "clock_nanosleep",
    "rt_sigtimedwait",
    "pause",
];

/// Does the name of its call say where a sleeping thread waits, so that its stack would tell nothing more?
fn is_asleep(at: Position) -> bool {
    let Position::Inside { nr, .. } = at else { return false };
    syscall::name(nr).is_some_and(|name| name == "futex" || RESTS.contains(&name))
}

/// Does nothing move in this park that should? Waiting for events, for a child or for time is how programs rest.
pub(super) fn is_rest(park: &ParkedThreads) -> bool {
    let Some(call) = park.syscall.as_ref() else { return park.state != 'D' };
    let rest = call.name.as_deref().is_some_and(|name| RESTS.contains(&name));
    let listens = call.fd.as_ref().is_some_and(|fd| match &fd.target {
        FdTarget::Socket(socket) => socket.listening,
        _ => false,
    });
    park.state != 'D' && (rest || listens)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn park(name: &str, args: [u64; 6], stack: &[&str]) -> ParkedThreads {
        let nr = (0..400).find(|nr| syscall::name(*nr) == Some(name)).unwrap();
        ParkedThreads {
            threads: 1,
            tid: 1,
            state: 'S',
            syscall: Some(SyscallFact {
                nr,
                name: Some(name.into()),
                args,
                fd: None,
                path: None,
                lock_holder: None,
                watched: Vec::new(),
            }),
            kernel_stack: stack.iter().map(|name| (*name).to_owned()).collect(),
            user_function: None,
        }
    }

    /// Where a futex is makes no difference; which path is opened does, and so does the stack.
    #[test]
    fn groups() {
        let futex = |at| park("futex", [at, 0, 0, 0, 0, 0], &["futex_wait"]);
        assert!(alike(&futex(1), &futex(2)));
        assert!(!alike(&futex(1), &ParkedThreads { state: 'D', ..futex(1) }));
        assert!(!alike(&futex(1), &park("futex", [1, 0, 0, 0, 0, 0], &["exit_robust_list"])));
        let open = |path| park("openat", [0, path, 0, 0, 0, 0], &["fifo_open"]);
        assert!(!alike(&open(1), &open(2)));
        assert!(is_rest(&park("epoll_wait", [0; 6], &[])) && !is_rest(&open(1)));
    }

    /// Sleep needs no stack; a call that waits for somebody does, and so does a thread outside of all calls.
    #[test]
    fn asleep_or_held_up() {
        let inside = |name| {
            let nr = (0..400).find(|nr| syscall::name(*nr) == Some(name)).unwrap();
            Position::Inside { nr, args: [0; 6], sp: 0, pc: 0 }
        };
        assert!(["epoll_wait", "futex", "nanosleep", "wait4"].iter().all(|name| is_asleep(inside(name))));
        assert!(["openat", "read", "flock", "recvmsg"].iter().all(|name| !is_asleep(inside(name))));
        assert!(!is_asleep(Position::Outside { sp: 0, pc: 0 }) && !is_asleep(Position::Running));
    }

    /// A thread that has gone on, or to another path, is not in the call that was seen.
    #[test]
    fn threads_that_go_on() {
        let task = tempfile::tempdir().unwrap();
        let open = park("openat", [0, 0x10, 0, 0, 0, 0], &[]).syscall.unwrap();
        let is_in = |line: &str| {
            std::fs::write(task.path().join("syscall"), line).unwrap();
            is_still_in(task.path(), &open)
        };
        assert!(is_in(&format!("{} 0x0 0x10 0x0 0x0 0x0 0x0 0x1 0x2\n", open.nr)));
        assert!(!is_in(&format!("{} 0x0 0x20 0x0 0x0 0x0 0x0 0x1 0x2\n", open.nr)));
        assert!(!is_in("0 0x0 0x10 0x0 0x0 0x0 0x0 0x1 0x2\n") && !is_in("running\n"));
        assert!(!is_still_in(&task.path().join("gone"), &open));
    }

    /// Groups are bounded, and say so.
    #[test]
    fn many_groups() {
        let mut threads = Threads::default();
        for path in 0..100 {
            threads.add(Seen { park: park("openat", [0, 1 + path, 0, 0, 0, 0], &[]), pc: None });
        }
        assert!(threads.parks.len() == MAX_PARKS && threads.parks_left_out);
    }
}
