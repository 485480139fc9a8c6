//! Plays the kubelet's relist loop (`pkg/kubelet/pleg/generic.go`) against a runtime, for runtimes that the lab's real
//! kubelet cannot drive: two unfiltered lists, then the status of every pod that changed, with a stopwatch.

use std::collections::HashMap;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::client::{Client, Error};

/// One turn of the loop.
#[derive(Clone, Debug)]
pub struct Relist {
    /// When it began.
    pub start: Instant,
    /// ListPodSandbox and ListContainers together.
    pub list: Duration,
    /// The status calls of changed pods.
    pub status: Duration,
    /// Calls made, failed ones too.
    pub calls: u32,
    /// Why it ended early.
    pub error: Option<Error>,
}

/// The loop in a thread of its own; stops when dropped, at the latest after the deadline of the call in flight.
#[derive(Debug)]
pub struct Loop {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    done: Arc<Mutex<Vec<Relist>>>,
}

/// What a pod looks like to the loop: the state of its sandbox and of each container.
type Seen = HashMap<String, Vec<(String, i32)>>;

impl Loop {
    /// Relists once per `period` (the kubelet: 1 s after the end of the last one), each call within `deadline` (the
    /// kubelet: 2 min).
    #[must_use]
    pub fn start(client: Client, period: Duration, deadline: Duration) -> Loop {
        let (stop, stopped) = mpsc::channel();
        let done = Arc::new(Mutex::new(Vec::new()));
        let results = Arc::clone(&done);
        let thread = std::thread::spawn(move || {
            let mut seen = Seen::new();
            loop {
                let relist = relist(&client, &mut seen, deadline);
                results.lock().expect("no holder of this lock panics").push(relist);
                match stopped.recv_timeout(period) {
                    Err(RecvTimeoutError::Timeout) => {}
                    Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        });
        Loop { stop: Some(stop), thread: Some(thread), done }
    }

    /// The turns that have ended so far.
    #[must_use]
    pub fn relists(&self) -> Vec<Relist> {
        self.done.lock().expect("no holder of this lock panics").clone()
    }

    /// Ends the loop and gives all its turns.
    #[must_use]
    pub fn stop(mut self) -> Vec<Relist> {
        self.end();
        self.relists()
    }

    fn end(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        self.end();
    }
}

fn relist(client: &Client, seen: &mut Seen, deadline: Duration) -> Relist {
    let start = Instant::now();
    let mut turn = Relist { start, list: Duration::ZERO, status: Duration::ZERO, calls: 0, error: None };
    let listed = list(client, &mut turn.calls, deadline);
    turn.list = start.elapsed();
    let result = listed.and_then(|now| {
        let begun = Instant::now();
        let result = ask_changed(client, seen, &now, &mut turn.calls, deadline);
        turn.status = begun.elapsed();
        *seen = now;
        result
    });
    turn.error = result.err();
    turn
}

fn list(client: &Client, calls: &mut u32, deadline: Duration) -> Result<Seen, Error> {
    *calls += 1;
    let mut pods = Seen::new();
    for sandbox in client.list_pod_sandbox(deadline)? {
        pods.entry(sandbox.id.clone()).or_default().push((sandbox.id, sandbox.state));
    }
    *calls += 1;
    for container in client.list_containers(deadline)? {
        pods.entry(container.pod_sandbox_id).or_default().push((container.id, container.state));
    }
    pods.values_mut().for_each(|states| states.sort());
    Ok(pods)
}

fn ask_changed(
    client: &Client,
    before: &Seen,
    now: &Seen,
    calls: &mut u32,
    deadline: Duration,
) -> Result<(), Error> {
    for (sandbox, states) in now.iter().filter(|(id, states)| before.get(*id) != Some(states)) {
        for (id, _) in states {
            *calls += 1;
            if id == sandbox {
                client.pod_sandbox_status(id, deadline)?;
            } else {
                client.container_status(id, deadline)?;
            }
        }
    }
    Ok(())
}
