//! [`Analyses`]: executables that are being read. Any of them may take forever.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::{Duration, Instant},
};

use super::{Wanted, inspect::Inspected};
use crate::target::RefuseReason;

/// What came of one; `None` when its thread came to nothing.
pub(super) type Answer = (Wanted, Option<Result<Inspected, RefuseReason>>);

/// Each is read in a thread of its own, which waits for nobody to listen.
#[derive(Debug)]
pub(super) struct Analyses {
    /// Not answered yet.
    open: Vec<Wanted>,
    say: Sender<Answer>,
    heard: Receiver<Answer>,
}

impl Default for Analyses {
    fn default() -> Self {
        let (say, heard) = channel();
        Self { open: Vec::new(), say, heard }
    }
}

impl Analyses {
    /// Is this one being read?
    pub(super) fn is_open(&self, wanted: &Wanted) -> bool {
        self.open.contains(wanted)
    }

    /// Begins to read.
    pub(super) fn begin(
        &mut self,
        wanted: Wanted,
        analyse: impl FnOnce(&Wanted) -> Result<Inspected, RefuseReason> + Send + 'static,
    ) {
        let (say, of) = (self.say.clone(), wanted.clone());
        let run = move || {
            let answer = catch_unwind(AssertUnwindSafe(|| analyse(&of))).ok();
            let _ = say.send((of, answer));
        };
        if let Err(error) = thread::Builder::new().name("analyse".to_owned()).spawn(run) {
            tracing::warn!("cannot read a function table: {error}");
            let _ = self.say.send((wanted.clone(), None));
        }
        self.open.push(wanted);
    }

    /// Waits for the answers of these, and takes those of others that come meanwhile, but no longer than `patience`.
    pub(super) fn wait(&mut self, of: &[Wanted], patience: Duration) -> Vec<Answer> {
        let until = Instant::now() + patience;
        let mut answers = Vec::new();
        while of.iter().any(|wanted| self.is_open(wanted))
            && let Ok(answer) = self.heard.recv_timeout(until.saturating_duration_since(Instant::now()))
        {
            answers.extend(self.close(answer));
        }
        answers
    }

    /// Takes the answers that have come.
    pub(super) fn take(&mut self) -> Vec<Answer> {
        let mut answers = Vec::new();
        while let Ok(answer) = self.heard.try_recv() {
            answers.extend(self.close(answer));
        }
        answers
    }

    /// Forgets what nobody wants any more: its answer, should one come, is not taken.
    pub(super) fn keep(&mut self, wanted: impl Fn(&Wanted) -> bool) {
        self.open.retain(wanted);
    }

    fn close(&mut self, answer: Answer) -> Option<Answer> {
        let place = self.open.iter().position(|wanted| *wanted == answer.0)?;
        self.open.swap_remove(place);
        Some(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::Component;

    const LONG: Duration = Duration::from_secs(600);

    fn wanted(pid: u32) -> Wanted {
        Wanted { component: Component::Kubelet, pid, exe: "/usr/bin/kubelet".to_owned() }
    }

    /// A file that cannot be read: an answer as good as any.
    fn refused(_: &Wanted) -> Result<Inspected, RefuseReason> {
        Inspected::of_process(Component::Kubelet, u32::MAX, "/usr/bin/kubelet")
    }

    fn pids(answers: &[Answer]) -> Vec<(u32, bool)> {
        answers.iter().map(|(wanted, answer)| (wanted.pid, answer.is_some())).collect()
    }

    /// Nobody waits for nothing, or longer than for the answers; a thread that comes to nothing is an answer, too.
    #[test]
    fn answers_are_waited_for() {
        let mut analyses = Analyses::default();
        assert!(analyses.wait(&[], LONG).is_empty());
        let both = [wanted(1), wanted(2)];
        analyses.begin(wanted(1), refused);
        analyses.begin(wanted(2), |_| panic!("this job comes to nothing"));
        let mut answers = pids(&analyses.wait(&both, LONG));
        answers.sort_unstable();
        assert_eq!(answers, [(1, true), (2, false)]);
        assert!(!both.iter().any(|wanted| analyses.is_open(wanted)));
    }

    /// Who does not answer is left behind, and nobody waits for it again; what it says at last is taken.
    #[test]
    fn late_answers_are_taken() {
        let (open, gate) = channel::<()>();
        let late = move |wanted: &Wanted| {
            let _ = gate.recv();
            refused(wanted)
        };
        let mut analyses = Analyses::default();
        analyses.begin(wanted(1), late);
        assert!(analyses.wait(&[wanted(1)], Duration::from_millis(1)).is_empty());
        analyses.begin(wanted(2), refused);
        assert_eq!(pids(&analyses.wait(&[wanted(2)], LONG)), [(2, true)]);
        assert!(analyses.take().is_empty() && analyses.is_open(&wanted(1)));
        open.send(()).unwrap();
        assert_eq!(pids(&analyses.wait(&[wanted(1)], LONG)), [(1, true)]);
    }

    /// The answer for who has ended meanwhile is of no use.
    #[test]
    fn the_ended_are_forgotten() {
        let mut analyses = Analyses::default();
        analyses.begin(wanted(1), refused);
        analyses.keep(|_| false);
        let answer = analyses.heard.recv_timeout(LONG).unwrap();
        assert!(analyses.close(answer).is_none());
    }
}
