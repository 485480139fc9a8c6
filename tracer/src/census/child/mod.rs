//! The child of the census: reads orders from stdin, looks, and tells on stdout. Before each read that can block it says
//! what it is about to ask of whom, so that its parent knows whom to blame when it does not come back.
//!
//! It is a process of its own because nothing else can be given up: a thread that waits for the memory lock of another
//! process, or for a filesystem that does not answer, waits for as long as that takes.

mod answerers;
mod calls;
mod classify;
mod connections;
mod containers;
mod cri;
mod disk;
mod docker;
mod epoll;
mod files;
mod freezer;
mod goroutines;
mod guard;
mod inotify;
mod io_limit;
mod kept;
mod locks;
mod look;
mod names;
mod node;
mod other_end;
mod peer;
mod plugins;
mod queues;
mod read;
mod sandbox;
mod scan;
mod scarce;
mod sockets;
mod syscall;
mod systemd_work;
mod task_limit;
mod tcp_diag;
mod tell;
mod threads;
mod unkillable;
mod versions;

use std::io::{self, BufRead, Read as _};

use super::protocol::{Answer, Job, Order, Step};
use crate::target;
use kept::Kept;
pub use queues::{BusConnection, Queues};
use tell::Tell;

/// An order is short: pids and paths.
const MAX_ORDER: u64 = 4 << 20;

/// Serves orders until there are no more; what the hidden sub-command [`super::CHILD_COMMAND`] runs.
///
/// # Errors
///
/// What came was no order, or nobody listens any more.
pub fn serve() -> io::Result<()> {
    // It was started as /proc/self/exe, and would be called `exe`.
    let _ = rustix::thread::set_name(c"plegtrace");
    let mut orders = io::stdin().lock();
    let mut kept = Kept::default();
    let (mut protected, mut confined, mut entered) = (false, false, false);
    while let Some(order) = next(&mut orders)? {
        if !protected {
            guard::protect(order.parent)?;
            protected = true;
        }
        let is_for_one = order.what.is_for_one();
        let wanted = order.files_of.filter(|_| !entered);
        if wanted.is_some() && confined {
            // Too late for that: another child takes this order.
            return Ok(());
        }
        let refused = wanted.and_then(|pid| target::enter(pid).err());
        entered |= wanted.is_some();
        let mut tell = Tell::new(order);
        tell.hello()?;
        if let Some(error) = refused {
            tell.refused(0, "", "the node's files, from inside of a container", &error)?;
        }
        if !is_for_one && !confined {
            // Without it sockets are read from /proc.
            let _ = kept.link();
            for why in sandbox::confine() {
                tell.say(&Answer::Unconfined { why })?;
            }
            confined = true;
        }
        follow(&mut tell, &mut kept)?;
        tell.done()?;
        if is_for_one || !kept.tidy_up() {
            // Another one begins with less.
            return Ok(());
        }
    }
    Ok(())
}

/// The next order; `None` when the parent has no more.
fn next(orders: &mut impl BufRead) -> io::Result<Option<Order>> {
    let mut line = Vec::new();
    orders.take(MAX_ORDER).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    serde_json::from_slice(&line).map(Some).map_err(io::Error::other)
}

fn follow(tell: &mut Tell, kept: &mut Kept) -> io::Result<()> {
    match tell.order.what.clone() {
        Job::Processes => node::processes(tell, kept),
        Job::Goroutines(wanted) => goroutines::all(tell, &wanted, kept),
        Job::Versions(wanted) => versions::all(tell, &wanted),
        Job::Arguments(pids) => arguments(tell, pids),
        Job::Runtime(runtime) => cri::ask(tell, &runtime, kept),
        Job::SearchPath(pid) => search_path(tell, pid),
        Job::Calls(questions) => calls::all(tell, &questions),
    }
}

fn search_path(tell: &mut Tell, pid: u32) -> io::Result<()> {
    let comm = read::stat(&tell.process(pid)).map(|stat| stat.comm).unwrap_or_default();
    if tell.ask(pid, &comm, Step::Environment)? {
        let environment = read::environment(&tell.process(pid)).unwrap_or_default();
        if let Some(path) = environment.iter().find_map(|variable| variable.strip_prefix("PATH=")) {
            tell.say(&Answer::SearchPath { path: path.to_owned() })?;
        }
    }
    Ok(())
}

fn arguments(tell: &mut Tell, mut pids: Vec<u32>) -> io::Result<()> {
    tell.own_first(&mut pids);
    for pid in pids {
        let comm = read::stat(&tell.process(pid)).map(|stat| stat.comm).unwrap_or_default();
        if tell.is_finished(pid) || !tell.ask(pid, &comm, Step::Arguments)? {
            continue;
        }
        let arguments = read::arguments(&tell.process(pid)).unwrap_or_default();
        tell.say(&Answer::Arguments { pid, arguments })?;
    }
    Ok(())
}
