//! The place where goroutines are asked for: the reader itself is another module of the census.

use std::io;

use crate::{
    census::{
        child::tell::Tell,
        protocol::{Answer, Step},
    },
    input::{Component, GoroutinesFact},
};

/// Asks every process, most important first; each has a deadline of its own.
pub(super) fn all(tell: &mut Tell, wanted: &[(u32, Component)]) -> io::Result<()> {
    for (pid, component) in wanted {
        let comm = super::read::stat(&tell.process(*pid)).map(|stat| stat.comm).unwrap_or_default();
        if tell.is_finished(*pid) || !tell.ask(*pid, &comm, Step::Goroutines)? {
            continue;
        }
        match ask_goroutines(*pid, *component) {
            Ok(fact) => tell.say(&Answer::Goroutines(fact))?,
            Err(why) => tell.cut(*pid, &comm, Step::Goroutines.words(), why)?,
        }
    }
    Ok(())
}

/// Goroutines of a process, without a signal and without stopping it.
///
/// # Errors
///
/// Why there is no answer, in words.
fn ask_goroutines(_pid: u32, _component: Component) -> Result<GoroutinesFact, String> {
    Err("not built in".to_owned())
}
