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

#[cfg(test)]
mod tests {
    use std::{
        fs,
        path::Path,
        process::{Child, Command, Stdio},
    };

    use super::*;
    use crate::watch::{history, state};

    /// Where the child writes.
    const DIR: &str = "PLEGTRACE_TEST_WRITES_TO";
    /// Files of a window, each as long as a real one at least.
    const FILES: [&str; 4] = [state::FILE, "flame.svg", "report.txt", "report.json"];
    const KILLS: u64 = 40;

    fn plan(dir: &Path) -> Plan {
        Plan {
            dir: dir.to_owned(),
            window: Duration::from_secs(1),
            history_bytes: 1 << 20,
            history_age: Duration::from_secs(3600),
            evidence_bytes: 1 << 20,
            flight_bytes: 1 << 20,
        }
    }

    /// Text that shows whether it is whole.
    fn text(number: i64) -> Vec<u8> {
        format!("{number}\n{}{number}\n", "x".repeat(60_000)).into_bytes()
    }

    /// Writes windows as fast as it can; run by the test below, which kills it. Alone it does nothing.
    #[test]
    fn write_until_killed() {
        let Some(path) = std::env::var_os(DIR) else { return };
        let plan = plan(Path::new(&path));
        let dir = Dir::take(&plan.dir).unwrap();
        let last = history::read(&plan.dir).unwrap_or_default().last().map_or(0, |entry| entry.at_unix_ns);
        let (jobs, inbox) = sync_channel(QUEUE);
        let feed = move || {
            for number in last + 1.. {
                let files = FILES.map(|name| (name, text(number))).to_vec();
                let entry = Entry { at_unix_ns: number, verdict: "healthy".into(), ..Entry::default() };
                let flown = crate::watch::flight::Flight::new(1 << 10).copy();
                let all = [
                    Job::Files(files),
                    Job::Entry(Box::new(entry)),
                    Job::Evidence(format!("{number:09}"), flown, text(number)),
                ];
                for job in all {
                    jobs.send(job).unwrap();
                }
            }
        };
        thread::spawn(feed);
        write_all(&dir, &plan, &inbox, &AtomicU64::new(0));
    }

    fn writing(dir: &Path) -> Child {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "watch::writer::tests::write_until_killed"]);
        command.env(DIR, dir).stdout(Stdio::null()).spawn().unwrap()
    }

    fn is_whole(path: &Path) {
        let text = fs::read_to_string(path).unwrap();
        let number = text.lines().next().unwrap_or_default();
        let last = text.lines().last().unwrap_or_default();
        assert!(text.len() > 60_000 && last.trim_start_matches('x') == number, "{}", path.display());
    }

    /// Whenever it is killed, what it leaves is whole, nothing of the history is gone but a line that was being written, and
    /// the next one goes on.
    #[test]
    fn killed_at_any_moment() {
        let temp = tempfile::tempdir().unwrap();
        let (mut seen, mut seed) = (0, 7_u64);
        for kill in 0..KILLS {
            let mut child = writing(temp.path());
            let began = Instant::now();
            let newest =
                || history::read(temp.path()).unwrap_or_default().last().map_or(0, |it| it.at_unix_ns);
            while newest() <= seen {
                assert!(
                    began.elapsed() < Duration::from_secs(60),
                    "kill {kill}: the next one does not go on"
                );
                thread::yield_now();
            }
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let until = Instant::now() + Duration::from_micros(seed >> 50);
            while Instant::now() < until {}
            child.kill().unwrap();
            child.wait().unwrap();
            let times: Vec<i64> =
                history::read(temp.path()).unwrap().iter().map(|it| it.at_unix_ns).collect();
            assert!(times.windows(2).all(|pair| pair[1] - pair[0] == 1), "kill {kill}: {times:?}");
            assert!(times.last().is_some_and(|last| *last > seen), "kill {kill}: {times:?}");
            seen = *times.last().unwrap();
            FILES.iter().for_each(|name| is_whole(&temp.path().join(name)));
            let evidence = fs::read_dir(temp.path().join("evidence")).unwrap().map(|it| it.unwrap().path());
            evidence
                .filter(|path| path.extension().is_some_and(|it| it == "txt"))
                .for_each(|path| is_whole(&path));
        }
    }
}
