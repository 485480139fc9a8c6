//! [`Writer`]: a thread for the disk. Whoever observes never waits for it.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::{
    Plan,
    dir::Dir,
    evidence::{self, Evidence},
    flight::Flown,
    history::{self, Bounds, Entry},
};

/// What waits for the disk: more than this, and something is left out.
const QUEUE: usize = 8;
/// The end waits this long for the disk.
const PATIENCE: Duration = Duration::from_secs(5);

/// Something to write.
#[derive(Debug)]
pub(super) enum Job {
    /// Files to replace.
    Files(Vec<(&'static str, Vec<u8>)>),
    /// A line of the history.
    Entry(Box<Entry>),
    /// A stall: its name, the last of the stream, and the report.
    Evidence(String, Flown, Vec<u8>),
}

/// Who writes.
#[derive(Debug)]
pub(super) struct Writer {
    jobs: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
    left_out: u64,
    failed: Arc<AtomicU64>,
}

impl Writer {
    pub(super) fn start(dir: Dir, plan: &Plan) -> io::Result<Self> {
        let (jobs, inbox) = sync_channel(QUEUE);
        let failed = Arc::new(AtomicU64::new(0));
        let (plan, failures) = (plan.clone(), Arc::clone(&failed));
        let work = move || write_all(&dir, &plan, &inbox, &failures);
        let thread = thread::Builder::new().name("writer".to_owned()).spawn(work)?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread), left_out: 0, failed })
    }

    /// Hands something over, unless the disk has not taken what came before.
    pub(super) fn write(&mut self, job: Job) {
        let Some(jobs) = &self.jobs else { return };
        if jobs.try_send(job).is_err() {
            self.left_out += 1;
            tracing::warn!("the disk does not keep up: {} writes left out so far", self.left_out);
        }
    }

    /// Writes that were left out or failed so far.
    pub(super) fn losses(&self) -> u64 {
        self.left_out + self.failed.load(Ordering::Relaxed)
    }
}

/// Waits for what was handed over, but not forever.
impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.jobs.take());
        let until = Instant::now() + PATIENCE;
        while self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            if Instant::now() >= until {
                tracing::warn!("the disk did not answer within {} s", PATIENCE.as_secs());
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

fn write_all(dir: &Dir, plan: &Plan, inbox: &Receiver<Job>, failed: &AtomicU64) {
    let age_ns = u64::try_from(plan.history_age.as_nanos()).unwrap_or(u64::MAX);
    for job in inbox {
        let written = match job {
            Job::Files(files) => files.iter().try_for_each(|(name, bytes)| dir.replace(name, bytes)),
            Job::Entry(entry) => history::append(dir, &entry, Bounds { bytes: plan.history_bytes, age_ns }),
            Job::Evidence(name, flown, report) => {
                let evidence = Evidence { name, recording: flown.into_recording(), report };
                evidence::keep(dir, &evidence, plan.evidence_bytes)
            }
        };
        if let Err(error) = written {
            failed.fetch_add(1, Ordering::Relaxed);
            tracing::warn!("cannot write to the directory of windows: {error}");
        }
    }
}
