//! What every fault is for its user: facts to check a report against, calls in flight, and the healing.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::cri::Call;
use crate::process::Process;

/// For a signal, a call or a cgroup to take effect.
pub(super) const EFFECT_LIMIT: Duration = Duration::from_secs(30);
/// Deadline of a call that is to hang: longer than any test or demo, so that it ends by the healing.
pub(super) const HANGING: Duration = Duration::from_secs(3600);
/// For a call on a healthy but busy machine.
pub(super) const CALL_LIMIT: Duration = Duration::from_secs(30);
/// A call that takes this long is taken for blocked; healthy ones take milliseconds.
pub(super) const BLOCKED_AFTER: Duration = Duration::from_secs(1);

/// Who is who in a fault. What a fault does not have is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The processes that wait, the innermost first.
    pub victims: Vec<u32>,
    /// The processes that others wait for: stopped, sleeping, holding.
    pub culprits: Vec<u32>,
    /// Name of the pod.
    pub pod: String,
    /// Ids of the sandbox, then of the container, as far as they exist.
    pub ids: Vec<String>,
    /// The lock, pipe, FIFO or cgroup file.
    pub path: Option<PathBuf>,
}

/// One step of the healing.
pub(super) type Step = Box<dyn FnOnce() -> Result<()> + Send>;

/// A fault that is there; heals when dropped.
#[must_use = "a dropped fault is healed"]
pub struct Fault {
    facts: Facts,
    calls: Vec<Call>,
    heal: Vec<Step>,
    clean: Vec<Step>,
}

impl Fault {
    pub(super) fn new(facts: Facts) -> Fault {
        Fault { facts, calls: Vec::new(), heal: Vec::new(), clean: Vec::new() }
    }

    /// The same with the facts that are known only now.
    pub(super) fn with(mut self, facts: Facts) -> Fault {
        self.facts = facts;
        self
    }

    /// Both as one; `other`'s facts are dropped.
    pub(super) fn joined(mut self, mut other: Fault) -> Fault {
        self.calls.append(&mut other.calls);
        self.heal.append(&mut other.heal);
        self.clean.append(&mut other.clean);
        self
    }

    /// A call that the fault holds up.
    pub(super) fn holding(mut self, call: Call) -> Fault {
        self.calls.push(call);
        self
    }

    /// A step that takes the cause away; in the order in which they are added.
    pub(super) fn healed_by(mut self, step: impl FnOnce() -> Result<()> + Send + 'static) -> Fault {
        self.heal.push(Box::new(step));
        self
    }

    /// The cause goes with these processes.
    pub(super) fn healed_by_killing(self, processes: Vec<Process>) -> Fault {
        self.healed_by(move || processes.iter().try_for_each(|process| process.kill(EFFECT_LIMIT)))
    }

    /// A step after the calls have returned: removes what was made for the fault.
    pub(super) fn cleaned_by(mut self, step: impl FnOnce() -> Result<()> + Send + 'static) -> Fault {
        self.clean.push(Box::new(step));
        self
    }

    /// Who is who.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The CRI methods that have not been answered: those of our own calls, not of the kubelet's.
    pub fn hanging(&mut self) -> Vec<&'static str> {
        self.calls.iter_mut().filter_map(|call| call.is_pending().then(|| call.method())).collect()
    }

    /// Takes the cause away, waits for all calls to return (with an answer or an error), and removes what was made for
    /// the fault.
    ///
    /// # Errors
    ///
    /// The first thing that failed; all the rest is done in any case.
    pub fn heal(mut self) -> Result<()> {
        self.run()
    }

    fn run(&mut self) -> Result<()> {
        let mut result = Ok(());
        let mut note = |step: Result<()>| {
            if result.is_ok() {
                result = step;
            }
        };
        self.heal.drain(..).for_each(|step| note(step().context("cannot heal")));
        for mut call in self.calls.drain(..) {
            note(call.wait(EFFECT_LIMIT).map(drop).context("not healed"));
        }
        self.clean.drain(..).for_each(|step| note(step().context("cannot clean up after the fault")));
        result
    }
}

impl Drop for Fault {
    fn drop(&mut self) {
        // A failure here is seen by the lab's own search for what is left.
        let _ = self.run();
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fault")
            .field("facts", &self.facts)
            .field("calls", &self.calls)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[test]
    fn healing_goes_on_after_a_failure_and_happens_once() {
        let log = Arc::new(Mutex::new(Vec::new()));
        let fault = |fails: bool| {
            let logged = |word: &'static str, fails: bool| {
                let log = Arc::clone(&log);
                move || {
                    log.lock().unwrap().push(word);
                    if fails { anyhow::bail!("no") } else { Ok(()) }
                }
            };
            let fault = Fault::new(Facts::default()).cleaned_by(logged("clean", false));
            fault.healed_by(logged("first", fails)).healed_by(logged("second", false))
        };
        fault(true).heal().unwrap_err();
        assert_eq!(log.lock().unwrap().split_off(0), ["first", "second", "clean"]);
        drop(fault(false));
        assert_eq!(log.lock().unwrap().split_off(0), ["first", "second", "clean"]);
    }
}
