//! [`within`]: jobs that may take for ever.

use std::{
    sync::mpsc::sync_channel,
    thread,
    time::{Duration, Instant},
};

/// Runs each job in a thread of its own and waits for all of them, but no longer than `patience` together. The answer of a
/// job that is late, or that came to nothing, is `None`; its thread goes on, and nobody hears what it says.
pub(super) fn within<T: Send + 'static>(
    patience: Duration,
    jobs: impl Iterator<Item = impl FnOnce() -> T + Send + 'static>,
) -> Vec<Option<T>> {
    let until = Instant::now() + patience;
    let jobs: Vec<_> = jobs.collect();
    let mut answers: Vec<Option<T>> = jobs.iter().map(|_| None).collect();
    // Room for all: who is late does not wait for somebody to listen.
    let (say, heard) = sync_channel(jobs.len());
    for (place, job) in jobs.into_iter().enumerate() {
        let say = say.clone();
        let run = move || {
            let _ = say.send((place, job()));
        };
        if let Err(error) = thread::Builder::new().name("analyse".to_owned()).spawn(run) {
            tracing::warn!("cannot read a function table: {error}");
        }
    }
    drop(say);
    while let Ok((place, answer)) = heard.recv_timeout(until.saturating_duration_since(Instant::now())) {
        answers[place] = Some(answer);
    }
    answers
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{channel, sync_channel};

    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    type Job = Box<dyn FnOnce() -> u32 + Send>;

    /// Answers stand in the order of the questions, in whichever order they come; and nobody waits for nothing.
    #[test]
    fn answers_in_order() {
        let (done, after) = channel();
        let last: Job = Box::new(move || after.recv().map_or(0, |()| 1));
        let first: Job = Box::new(move || done.send(()).map_or(0, |()| 2));
        assert_eq!(within(LONG, [last, first].into_iter()), [Some(1), Some(2)]);
        assert!(within(LONG, std::iter::empty::<Job>()).is_empty());
        let broken: Job = Box::new(|| panic!("this job comes to nothing"));
        assert_eq!(within(LONG, [broken].into_iter()), [None]);
    }

    /// Who does not answer is left behind, with those that did heard.
    #[test]
    fn stuck_jobs_are_left_behind() {
        let (_never, stuck) = sync_channel::<()>(0);
        let stuck: Job = Box::new(move || stuck.recv().map_or(0, |()| 1));
        assert_eq!(within(Duration::from_millis(1), [stuck].into_iter()), [None]);
    }
}
