//! [`Recorder`]: writes what a tap sees, from a thread of its own. A disk that hangs holds up only that thread.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::PathBuf,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;

use super::{Destination, Encoder, RecordError};
use crate::input::Frame;

/// What has come is written this often, so that a crash takes no more than that.
const FLUSH: Duration = Duration::from_secs(1);
/// Sooner when so much has come, bytes.
const EARLY: usize = 256 << 10;
/// A disk that is slower than the node is left behind: so much may wait for it, bytes, or one record that is longer.
const BACKLOG: usize = 8 << 20;
/// Making the disk keep what it has may take one part in so many of the time.
const SYNC_SHARE: u32 = 10;
/// For the last block.
const PATIENCE: Duration = Duration::from_secs(10);
/// Room that is kept for the block that says how many records were left out, bytes.
const END: u64 = 128;

/// A finished recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Length of the file, bytes.
    pub bytes: u64,
    /// Records in it.
    pub records: u64,
    /// Records that did not fit, or came faster than the disk took them.
    pub left_out: u64,
    /// It has almost reached its greatest length, or its end.
    pub full: bool,
}

/// Writes a recording.
#[derive(Debug)]
pub struct Recorder {
    shared: Arc<Shared>,
    path: Option<PathBuf>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    change: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Records that wait to be written.
    waiting: Vec<Bytes>,
    /// Their bytes.
    backlog: usize,
    /// Records that came while there was no room for them.
    overflow: u64,
    bytes: u64,
    full: bool,
    failed: bool,
    /// No more will come; the stream is whole.
    finish: Option<bool>,
    result: Option<Result<Recorded, io::Error>>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Recorder {
    /// Begins to write; the file gets no longer than `max_bytes`.
    ///
    /// # Errors
    ///
    /// No thread can be started, or the file takes no beginning.
    pub fn start(target: Destination, max_bytes: u64) -> Result<Self, RecordError> {
        let shared = Arc::new(Shared::default());
        let (path, file) = match target {
            Destination::File { path, file } => (Some(path), file),
            Destination::Stdout(file) => (None, file),
        };
        let is_file = file.metadata().is_ok_and(|about| about.is_file());
        let mut writer = Writer {
            file,
            is_file,
            encoder: Encoder::new(),
            bytes: 0,
            max_bytes,
            next_sync: Instant::now(),
            shared: Arc::clone(&shared),
        };
        writer.put(&Encoder::header()).map_err(RecordError::Write)?;
        thread::Builder::new()
            .name("recorder".into())
            .spawn(move || writer.run())
            .map_err(RecordError::Write)?;
        Ok(Self { shared, path })
    }

    /// Takes a record. Never waits.
    pub fn push(&self, frame: &Frame) {
        let mut state = self.shared.lock();
        let crowded = state.backlog > 0 && state.backlog + frame.bytes.len() > BACKLOG;
        if state.failed || state.overflow > 0 || crowded {
            // In order: what comes behind a gap waits until the gap is counted.
            state.overflow += 1;
            return;
        }
        state.backlog += frame.bytes.len();
        state.waiting.push(frame.bytes.clone());
        if state.backlog >= EARLY {
            self.shared.change.notify_all();
        }
    }

    /// Bytes written so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.shared.lock().bytes
    }

    /// There is no use in going on: the recording is full, or cannot be written.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let state = self.shared.lock();
        state.full || state.failed
    }

    /// Writes the end, which says that nothing is missing.
    ///
    /// # Errors
    ///
    /// Something could not be written, or the disk does not answer.
    pub fn finish(&self) -> Result<Recorded, RecordError> {
        self.wait(true, PATIENCE)
    }

    /// Ends without a mark of a whole stream; a file without any record is taken away.
    pub fn abandon(&self) {
        if let (Ok(Recorded { records: 0, left_out: 0, .. }), Some(path)) =
            (self.wait(false, PATIENCE), &self.path)
        {
            // It is ours: nothing was there when it was made.
            let _ = fs::remove_file(path);
        }
    }

    /// Waits for the end of the thread.
    pub(super) fn wait(&self, whole: bool, patience: Duration) -> Result<Recorded, RecordError> {
        let mut state = self.shared.lock();
        state.finish = Some(whole);
        self.shared.change.notify_all();
        let ended = self.shared.change.wait_timeout_while(state, patience, |state| state.result.is_none());
        let (mut state, _) = ended.unwrap_or_else(PoisonError::into_inner);
        match state.result.take() {
            Some(result) => result.map_err(RecordError::Write),
            None => Err(RecordError::Hangs(patience.as_secs())),
        }
    }
}

impl Drop for Recorder {
    /// The thread must not outlive a session that failed.
    fn drop(&mut self) {
        self.shared.lock().finish.get_or_insert(false);
        self.shared.change.notify_all();
    }
}

/// The thread's side.
struct Writer {
    file: File,
    is_file: bool,
    encoder: Encoder,
    bytes: u64,
    max_bytes: u64,
    next_sync: Instant,
    shared: Arc<Shared>,
}

impl Writer {
    fn run(mut self) {
        let result = self.write_all();
        let mut state = self.shared.lock();
        state.failed |= result.is_err();
        (state.waiting, state.backlog) = (Vec::new(), 0);
        state.result = Some(result);
        drop(state);
        self.shared.change.notify_all();
    }

    fn write_all(&mut self) -> io::Result<Recorded> {
        loop {
            let (records, overflow, finish) = self.next();
            for record in records {
                let full = self.encoder.push(&record);
                self.block(full)?;
            }
            let block = self.encoder.block();
            self.block(block)?;
            self.encoder.leave_out(overflow);
            if let Some(whole) = finish {
                return self.end(whole);
            }
            self.sync()?;
        }
    }

    /// What has come since the last time.
    fn next(&self) -> (Vec<Bytes>, u64, Option<bool>) {
        let state = self.shared.lock();
        let idle = |state: &mut State| state.backlog < EARLY && state.finish.is_none();
        let woken = self.shared.change.wait_timeout_while(state, FLUSH, idle);
        let (mut state, _) = woken.unwrap_or_else(PoisonError::into_inner);
        state.backlog = 0;
        (std::mem::take(&mut state.waiting), std::mem::take(&mut state.overflow), state.finish)
    }

    fn block(&mut self, block: Option<Vec<u8>>) -> io::Result<()> {
        let Some(block) = block else { return Ok(()) };
        let after = self.bytes + block.len() as u64;
        if after + END > self.max_bytes {
            self.encoder.take_back();
            self.shared.lock().full = true;
            return Ok(());
        }
        self.put(&block)?;
        // What comes at the end of an observation needs room as well.
        let mut state = self.shared.lock();
        state.bytes = self.bytes;
        state.full |= after > self.max_bytes - self.max_bytes / 8;
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Err(error) = self.file.write_all(bytes) {
            // A piece of a block helps nobody.
            if self.is_file {
                let _ = self.file.set_len(self.bytes);
            }
            return Err(error);
        }
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Makes the disk keep it, but not all the time.
    fn sync(&mut self) -> io::Result<()> {
        let began = Instant::now();
        if !self.is_file || began < self.next_sync {
            return Ok(());
        }
        self.file.sync_data()?;
        self.next_sync = Instant::now() + began.elapsed() * SYNC_SHARE;
        Ok(())
    }

    fn end(&mut self, whole: bool) -> io::Result<Recorded> {
        if whole {
            let end = self.encoder.end();
            self.put(&end)?;
        }
        if self.is_file {
            self.file.sync_all()?;
        }
        let (records, left_out) = self.encoder.counts();
        Ok(Recorded { bytes: self.bytes, records, left_out, full: self.shared.lock().full })
    }
}
