//! [`Symbols`]: names for the places where goroutines park, looked up when the first stacks come.
//!
//! Where each function lies is known since the executable was analysed; only its name is read. The disk may not answer,
//! so that is done in a thread, for many addresses at once, and less and less often. New places become rare soon.

use std::{
    collections::BTreeMap,
    sync::mpsc::{Receiver, RecvTimeoutError, sync_channel},
    time::{Duration, Instant},
};

use crate::{
    input::{SymbolFact, SymbolsFact},
    probes::Probes,
    target::AnalysedFile,
};

/// From one reading to the next at first, and at most.
const PAUSE: Duration = Duration::from_secs(1);
const LONG_PAUSE: Duration = Duration::from_secs(60);

/// How long the report waits for the last names: a file can be on a disk that does not answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// Who names addresses.
#[derive(Debug)]
pub(crate) struct Symbols {
    running: Option<Receiver<Vec<SymbolsFact>>>,
    next: Instant,
    pause: Duration,
}

impl Default for Symbols {
    fn default() -> Self {
        Self { running: None, next: Instant::now(), pause: PAUSE }
    }
}

impl Symbols {
    /// Begins to look for these names, by the hook that tells the executable, unless it is too early for that.
    pub(crate) fn ask(
        &mut self,
        unnamed: impl Iterator<Item = (u32, Vec<u64>)>,
        probes: &Probes,
        last: bool,
    ) {
        let now = Instant::now();
        if self.running.is_some() || (!last && now < self.next) {
            return;
        }
        let file = |(hook, offsets)| Some((hook, (probes.file_of(hook)?, offsets)));
        let questions: BTreeMap<u32, (AnalysedFile, Vec<u64>)> = unnamed.filter_map(file).collect();
        if questions.is_empty() {
            return;
        }
        self.next = now + self.pause;
        self.pause = LONG_PAUSE.min(2 * self.pause);
        let (answers, running) = sync_channel(1);
        let answer = move || {
            let found = questions.into_iter().map(|(hook, (file, at))| names(hook, &file, at)).collect();
            // Nobody waits any more: then nobody needs them.
            let _ = answers.send(found);
        };
        match std::thread::Builder::new().name("symbols".to_owned()).spawn(answer) {
            Ok(_) => self.running = Some(running),
            Err(error) => tracing::warn!("cannot name stacks: {error}"),
        }
    }

    /// The names that were found; waits for them if asked to, but not forever.
    pub(crate) fn take(&mut self, wait: bool) -> Vec<SymbolsFact> {
        let Some(running) = &self.running else { return Vec::new() };
        let patience = if wait { PATIENCE } else { Duration::ZERO };
        let found = running.recv_timeout(patience);
        if matches!(found, Err(RecvTimeoutError::Timeout)) && !wait {
            return Vec::new();
        }
        self.running = None;
        found.unwrap_or_default()
    }
}

/// Names of return addresses, which are those behind the calls. An executable that cannot be read any more names none,
/// and neither does what was written over it when its last process had ended.
fn names(hook: u32, file: &AnalysedFile, offsets: Vec<u64>) -> SymbolsFact {
    let functions = file.functions();
    if functions.is_none() {
        tracing::warn!("cannot name stacks: the file cannot be read any more, or has changed");
    }
    let name = |offset: u64| {
        let functions = functions?;
        let call = offset.checked_sub(1)?.checked_add(functions.start_code_offset())?;
        functions.name(functions.index_at(call)?)
    };
    let symbol = |offset| SymbolFact { offset, name: name(offset).unwrap_or_default() };
    SymbolsFact { hook, names: offsets.into_iter().map(symbol).collect() }
}
