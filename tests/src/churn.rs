//! Makes containerd run many processes: concurrent execs, and pods that come and go. Keeps what it has asked for.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use plegtrace_lab::Containerd;
use plegtrace_lab::cri::{Client, Pod};

/// For one CRI call on a busy machine.
const CALL: Duration = Duration::from_secs(60);

/// What was asked for and done.
#[derive(Debug, Default)]
pub struct Asked {
    /// Execs that ended well, by container.
    pub execs: HashMap<String, u64>,
    /// Pods that came and went.
    pub pods: Vec<Pod>,
}

/// Execs in each of `pods` from a thread of its own, and one more pod at a time, until `duration` is over.
///
/// # Errors
///
/// The first call that failed.
pub fn run(containerd: &Containerd, pods: &[Pod], duration: Duration) -> Result<Asked> {
    let end = Instant::now() + duration;
    std::thread::scope(|scope| {
        let execs: Vec<_> = pods.iter().map(|pod| scope.spawn(move || exec(containerd, pod, end))).collect();
        let guests = scope.spawn(move || come_and_go(containerd, end));
        let mut asked = Asked::default();
        for (pod, thread) in pods.iter().zip(execs) {
            let Ok(count) = thread.join() else { bail!("an exec thread panicked") };
            asked.execs.insert(pod.container.clone(), count?);
        }
        let Ok(pods) = guests.join() else { bail!("the thread of the pods panicked") };
        asked.pods = pods?;
        Ok(asked)
    })
}

fn exec(containerd: &Containerd, pod: &Pod, end: Instant) -> Result<u64> {
    let mut count = 0;
    while Instant::now() < end {
        exec_once(containerd.client(), &pod.container)?;
        count += 1;
    }
    Ok(count)
}

fn exec_once(client: &Client, container: &str) -> Result<()> {
    let answer = client.exec_sync(container, &["sh", "-c", "exit 3"], CALL)?;
    if answer.exit_code != 3 {
        bail!("an exec ended with {}, not with 3", answer.exit_code);
    }
    Ok(())
}

/// Execs in pods, from a thread for each, until they are stopped or dropped.
#[derive(Debug)]
pub struct Execs {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    threads: Vec<JoinHandle<Result<()>>>,
}

impl Execs {
    /// Begins.
    #[must_use]
    pub fn start(containerd: &Containerd, pods: &[Pod]) -> Execs {
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let thread = |pod: &Pod| {
            let (client, container) = (containerd.client().clone(), pod.container.clone());
            let (stop, done) = (Arc::clone(&stop), Arc::clone(&done));
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    exec_once(&client, &container)?;
                    done.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            })
        };
        let threads = pods.iter().map(thread).collect();
        Execs { stop, done, threads }
    }

    /// How many have ended well so far.
    #[must_use]
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Ends; gives how many have ended well.
    ///
    /// # Errors
    ///
    /// The first exec that failed.
    pub fn stop(mut self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let Ok(result) = thread.join() else { bail!("an exec thread panicked") };
            result.context("an exec failed")?;
        }
        Ok(self.done())
    }
}

impl Drop for Execs {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn come_and_go(containerd: &Containerd, end: Instant) -> Result<Vec<Pod>> {
    let mut pods = Vec::new();
    while Instant::now() < end {
        let pod = containerd.run_pod(&format!("guest{}", pods.len())).context("a pod did not come")?;
        containerd.client().remove_pod(&pod, CALL).context("a pod did not go")?;
        pods.push(pod);
    }
    Ok(pods)
}
