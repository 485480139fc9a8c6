//! Makes containerd run many processes: concurrent execs, and pods that come and go. Keeps what it has asked for.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use plegtrace_lab::Containerd;
use plegtrace_lab::cri::Pod;

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
        let answer = containerd.client().exec_sync(&pod.container, &["sh", "-c", "exit 3"], CALL)?;
        if answer.exit_code != 3 {
            bail!("an exec ended with {}, not with 3", answer.exit_code);
        }
        count += 1;
    }
    Ok(count)
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
