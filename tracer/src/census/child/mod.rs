//! The child of the census: reads its order from stdin, looks, and tells on stdout. Before each read that can block
//! it says what it is about to ask of whom, so that its parent knows whom to blame when it does not come back.
//!
//! It is a process of its own because nothing else can be given up: a thread that waits for the memory lock of another
//! process, or for a filesystem that does not answer, waits for as long as that takes.

mod classify;
mod containers;
mod cri;
mod files;
mod freezer;
mod goroutines;
mod guard;
mod locks;
mod look;
mod names;
mod node;
mod read;
mod scan;
mod sockets;
mod syscall;
mod tell;
mod threads;
mod unix_diag;
mod versions;

use std::io::{self, Read as _};

use super::{
    liveness::{self, Asked},
    protocol::{Answer, Order, Step, What},
};
use tell::Tell;

/// An order is short: pids and paths.
const MAX_ORDER: u64 = 4 << 20;

/// Serves one order; what the hidden sub-command [`super::CHILD_COMMAND`] runs.
///
/// # Errors
///
/// No order came, or nobody listens any more.
pub fn serve() -> io::Result<()> {
    let mut line = Vec::new();
    io::stdin().take(MAX_ORDER).read_to_end(&mut line)?;
    let order: Order = serde_json::from_slice(&line).map_err(io::Error::other)?;
    guard::protect(order.parent)?;
    let mut tell = Tell::new(order);
    tell.hello()?;
    match tell.order.what.clone() {
        What::Processes => node::processes(&mut tell)?,
        What::Goroutines(wanted) => goroutines::all(&mut tell, &wanted)?,
        What::Versions(wanted) => versions::all(&mut tell, &wanted)?,
        What::Arguments(pids) => arguments(&mut tell, &pids)?,
        What::Runtime(runtime) => cri::ask(&mut tell, &runtime)?,
        What::SearchPath(pid) => search_path(&mut tell, pid)?,
        What::Calls(questions) => calls(&mut tell, &questions)?,
    }
    tell.done()
}

/// Asks process by process, because one that does not answer is not asked again.
fn calls(tell: &mut Tell, questions: &[Asked]) -> io::Result<()> {
    for of in questions {
        if tell.ask(of.tgid, "", Step::Call)? {
            tell.say(&Answer::Call { of: *of, is: liveness::ask(of) })?;
        }
    }
    Ok(())
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

fn arguments(tell: &mut Tell, pids: &[u32]) -> io::Result<()> {
    for pid in pids {
        let comm = read::stat(&tell.process(*pid)).map(|stat| stat.comm).unwrap_or_default();
        if tell.is_finished(*pid) || !tell.ask(*pid, &comm, Step::Arguments)? {
            continue;
        }
        let arguments = read::arguments(&tell.process(*pid)).unwrap_or_default();
        tell.say(&Answer::Arguments { pid: *pid, arguments })?;
    }
    Ok(())
}
