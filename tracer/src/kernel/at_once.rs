//! Programs that are loaded at the same time.
//!
//! The verifier walks through each of the largest for 100 to 200 ms, which is most of what the start of an observation takes.
//! Since Linux 5.2 it takes several at once (kernel/bpf/verifier.c, `bpf_check`: `bpf_verifier_lock` is for the unprivileged).

use std::{
    collections::HashMap,
    num::NonZero,
    panic,
    sync::{Mutex, PoisonError},
    thread,
};

use aya::{
    Ebpf,
    programs::{Program, ProgramError},
};

use super::{error::KernelError, load::refused};

/// Does the work on all items, as many at once as there are processors; results in the order of the items. Where no thread is to
/// be had, the caller does all of it.
pub(super) fn at_once<I: Send, T: Send>(items: Vec<I>, work: impl Fn(I) -> T + Sync) -> Vec<T> {
    let lanes = thread::available_parallelism().map_or(1, NonZero::get).min(items.len());
    let left = Mutex::new(items.into_iter().enumerate());
    let next = || left.lock().unwrap_or_else(PoisonError::into_inner).next();
    let lane = || {
        let taken = std::iter::from_fn(next);
        taken.map(|(place, item)| (place, work(item))).collect::<Vec<_>>()
    };
    let mut done = thread::scope(|scope| {
        let start = |_| thread::Builder::new().name("verify".to_owned()).spawn_scoped(scope, lane).ok();
        let others: Vec<_> = (1..lanes).map_while(start).collect();
        let mut done = lane();
        for other in others {
            done.extend(other.join().unwrap_or_else(|panic| panic::resume_unwind(panic)));
        }
        done
    });
    done.sort_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, result)| result).collect()
}

/// What the kernel said of programs that were loaded ahead.
#[derive(Default)]
pub(super) struct Loaded(HashMap<&'static str, Result<(), ProgramError>>);

impl Loaded {
    /// Loads those of these programs that are there, in this order: the largest should be first.
    pub(super) fn ahead(ebpf: &mut Ebpf, names: &[&'static str]) -> Self {
        let mut programs: HashMap<&str, &mut Program> = ebpf.programs_mut().collect();
        let found = names.iter().filter_map(|name| Some((*name, programs.remove(name)?))).collect();
        Self(at_once(found, |(name, program)| (name, load(program))).into_iter().collect())
    }

    /// What the kernel said of a program; it is loaded now if that was not done ahead.
    ///
    /// # Errors
    ///
    /// There is no such program, or the kernel refuses it.
    pub(super) fn take(&mut self, ebpf: &mut Ebpf, name: &'static str) -> Result<(), KernelError> {
        let loaded = match self.0.remove(name) {
            Some(loaded) => loaded,
            None => load(ebpf.program_mut(name).ok_or(KernelError::Missing(name))?),
        };
        loaded.map_err(|error| refused(name, &error))
    }
}

fn load(program: &mut Program) -> Result<(), ProgramError> {
    match program {
        Program::RawTracePoint(program) => program.load(),
        Program::TracePoint(program) => program.load(),
        Program::UProbe(program) => program.load(),
        _ => Err(ProgramError::UnexpectedProgramType),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    /// All items are done, in order, whatever the number of lanes; none is no work.
    #[test]
    fn results_are_in_order() {
        assert_eq!(at_once((0..100).collect(), |item| 2 * item), Vec::from_iter((0..200).step_by(2)));
        assert!(at_once(Vec::<u8>::new(), |item| item).is_empty());
    }

    /// Where there are processors for two, two run at once.
    #[test]
    fn two_at_once() {
        let both = Barrier::new(if thread::available_parallelism().unwrap().get() > 1 { 2 } else { 1 });
        at_once(vec![(), ()], |()| both.wait().is_leader());
    }

    /// What one of them panics with reaches the caller.
    #[test]
    #[should_panic(expected = "three")]
    fn a_panic_is_passed_on() {
        at_once(vec![1, 2, 3], |item| assert!(item != 3, "three"));
    }
}
