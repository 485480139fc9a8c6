//! Goroutines of the programs that were asked for, each within a time of its own.

use std::io;

use crate::{
    census::{
        child::{kept::Kept, tell::Tell},
        clock,
        goroutines::{GoroutineError, Limits},
        protocol::{Answer, Step},
    },
    input::{Component, GoroutinesFact},
};

/// After so long a reader ends with what it has: before its parent would kill it.
const READ_NS: u64 = 700_000_000;

/// Asks every process, most important first; each has a deadline of its own.
pub(super) fn all(tell: &mut Tell, wanted: &[(u32, Component)], kept: &mut Kept) -> io::Result<()> {
    kept.grow_older();
    for (pid, component) in wanted {
        let comm = super::read::stat(&tell.process(*pid)).map(|stat| stat.comm).unwrap_or_default();
        if tell.is_finished(*pid) || !tell.ask(*pid, &comm, Step::Goroutines)? {
            continue;
        }
        match ask_goroutines(*pid, *component, kept) {
            Ok(fact) => tell.say(&Answer::Goroutines(fact))?,
            // A runc ends all the time; a daemon that does is news.
            Err(why) if *component == Component::Runc && has_ended(&why) => {}
            Err(why) => tell.cut(*pid, &comm, Step::Goroutines.words(), why.to_string())?,
        }
    }
    Ok(())
}

/// Goroutines of a process, without a signal and without stopping it.
fn ask_goroutines(pid: u32, component: Component, kept: &mut Kept) -> Result<GoroutinesFact, GoroutineError> {
    let reader = kept.reader(pid, component)?;
    let until = clock::now_ns().saturating_add(READ_NS);
    reader.read(&Limits::until(until), &clock::now_ns)
}

fn has_ended(why: &GoroutineError) -> bool {
    matches!(why, GoroutineError::Gone(_) | GoroutineError::NoSuchProcess(_) | GoroutineError::NoProgram(_))
}
