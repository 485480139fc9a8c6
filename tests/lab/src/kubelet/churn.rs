//! Adds and removes a static pod, again and again, so that relists find changed pods.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Result;

use super::manifest;
use crate::knobs::Knobs;

/// The churning thread. Drop ends it and takes its pod's manifest away.
#[derive(Debug)]
pub struct Churn {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<Result<u32>>>,
}

impl Churn {
    pub(super) fn start(manifests: PathBuf, knobs: Knobs, period: Duration) -> Churn {
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            churn(&manifests, &knobs, || {
                matches!(stopped.recv_timeout(period), Err(RecvTimeoutError::Timeout))
            })
        });
        Churn { stop: Some(stop), thread: Some(thread) }
    }

    /// Ends the churning; gives the number of pods that came and went.
    ///
    /// # Errors
    ///
    /// When a manifest could not be written or removed.
    pub fn stop(mut self) -> Result<u32> {
        self.end()
    }

    fn end(&mut self) -> Result<u32> {
        drop(self.stop.take());
        let Some(thread) = self.thread.take() else { return Ok(0) };
        thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("the churning thread panicked")))
    }
}

impl Drop for Churn {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// One pod at a time, each with a new name: half of the time it is wanted, half of the time it is not.
fn churn(manifests: &Path, knobs: &Knobs, mut go_on: impl FnMut() -> bool) -> Result<u32> {
    let mut pods = 0;
    loop {
        let name = format!("churn{pods}");
        manifest::publish(manifests, &name, &manifest::pod(&name, knobs))?;
        let wanted = go_on();
        manifest::remove(manifests, &name)?;
        pods += 1;
        if !wanted || !go_on() {
            return Ok(pods);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_pod_is_taken_away() {
        let dir = tempfile::tempdir().unwrap();
        let churn = Churn::start(dir.path().to_owned(), Knobs::default(), Duration::from_millis(5));
        crate::process::wait_for("a manifest", Duration::from_secs(5), || {
            Ok(std::fs::read_dir(dir.path())?.next().map(drop))
        })
        .unwrap();
        assert!(churn.stop().unwrap() >= 1);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
