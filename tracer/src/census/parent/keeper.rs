//! A thread that starts children. A child is killed when the thread that started it ends (`PR_SET_PDEATHSIG`), so one that
//! outlives a question is started by a thread that outlives it too.

use std::{
    collections::VecDeque,
    io,
    process::{Child, Command},
    sync::{
        Mutex, PoisonError,
        mpsc::{Sender, SyncSender, channel, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

struct Start {
    command: Command,
    started: SyncSender<io::Result<Child>>,
}

/// Children that are remembered by number: of more than one is seldom asked.
const REMEMBERED: usize = 64;

static CHILDREN: Mutex<VecDeque<u32>> = Mutex::new(VecDeque::new());
static KEEPER: Mutex<Option<Sender<Start>>> = Mutex::new(None);

/// Starts a program that lives no longer than this process.
///
/// # Errors
///
/// It cannot be started, or not before `until`: its file may be on a disk that does not answer.
pub(super) fn start(command: Command, until: Instant) -> io::Result<Child> {
    let (started, child) = sync_channel(1);
    let keeper = keeper()?;
    keeper.send(Start { command, started }).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
    let patience = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    child.recv_timeout(patience).map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

/// Is, or was, this process a child of ours?
#[must_use]
pub fn is_our_child(pid: u32) -> bool {
    CHILDREN.lock().unwrap_or_else(PoisonError::into_inner).contains(&pid)
}

fn remember(pid: u32) {
    let mut children = CHILDREN.lock().unwrap_or_else(PoisonError::into_inner);
    if children.len() == REMEMBERED {
        children.pop_front();
    }
    children.push_back(pid);
}

fn keeper() -> io::Result<Sender<Start>> {
    let mut keeper = KEEPER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = keeper.as_ref() {
        return Ok(known.clone());
    }
    let (orders, asked) = channel::<Start>();
    let work = move || {
        for Start { mut command, started } in asked {
            let spawned = command.spawn().inspect(|child| remember(child.id()));
            // Nobody waits any more: then nobody speaks to it either.
            if let Err(unwanted) = started.send(spawned)
                && let Ok(mut child) = unwanted.0
            {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    };
    thread::Builder::new().name("census-keeper".to_owned()).spawn(work)?;
    Ok(keeper.insert(orders).clone())
}
