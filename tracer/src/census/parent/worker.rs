//! One child process of the census, seen from its parent: started, listened to, killed when late.

use std::{
    io::{self, Read as _, Write as _},
    os::{fd::AsRawFd as _, unix::process::CommandExt as _, unix::process::ExitStatusExt as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use super::protocol::{Answer, MAX_LINE, MAX_STREAM, Order, Step};
use crate::target::parse_stat;

/// The hidden sub-command that makes plegtrace the child.
pub const CHILD_COMMAND: &str = "census-child";
/// A killed process that is not gone after this hangs in the kernel.
const DYING: Duration = Duration::from_millis(150);
/// Children that cannot be killed before no more are started.
const MAX_LEFT_BEHIND: usize = 4;

/// This very program, also when a package manager has replaced its file since it was started.
#[must_use]
pub fn this_program() -> PathBuf {
    PathBuf::from("/proc/self/exe")
}

/// A killed child that has not ended, and what it was asking, if that is known.
#[derive(Debug)]
struct LeftBehind {
    child: Child,
    question: Option<(u32, Step)>,
}

/// Killed children that have not ended. They belong to the process, not to a round: whoever starts or ends another
/// child looks whether they have ended since.
static LEFT_BEHIND: Mutex<Vec<LeftBehind>> = Mutex::new(Vec::new());

/// Pids of children that could not be killed, without those that have ended since.
pub(super) fn left_behind() -> Vec<u32> {
    reap().iter().map(|left| left.child.id()).collect()
}

/// What they were asking: it would hang another reader as well.
pub(super) fn questions_left_behind() -> Vec<(u32, Step)> {
    reap().iter().filter_map(|left| left.question).collect()
}

fn reap() -> MutexGuard<'static, Vec<LeftBehind>> {
    let mut children = LEFT_BEHIND.lock().unwrap_or_else(PoisonError::into_inner);
    children.retain_mut(|left| matches!(left.child.try_wait(), Ok(None)));
    children
}

/// A child at work.
#[derive(Debug)]
pub(super) struct Worker {
    child: Child,
    answers: ChildStdout,
    buffer: Vec<u8>,
    taken: usize,
}

/// What came of listening.
#[derive(Debug)]
pub(super) enum Heard {
    /// It said something.
    Answer(Box<Answer>),
    /// It said nothing until the deadline.
    Nothing,
    /// It will not say anything any more; how it ended.
    End(String),
}

impl Worker {
    /// Starts a child with an order.
    ///
    /// The child dies with the thread that calls this (`PR_SET_PDEATHSIG`), so that thread must see the round through.
    ///
    /// # Errors
    ///
    /// It cannot be started, or too many before it cannot be killed.
    pub(super) fn start(program: &Path, order: &Order) -> io::Result<Self> {
        if reap().len() >= MAX_LEFT_BEHIND {
            return Err(io::Error::other(format!("{MAX_LEFT_BEHIND} readers hang in the kernel already")));
        }
        let mut child = Command::new(program)
            .arg(CHILD_COMMAND)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // Ctrl-C is for the parent, which then still reports.
            .process_group(0)
            .spawn()?;
        let (Some(mut orders), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let worker = Self { child, answers, buffer: Vec::new(), taken: 0 };
        let line = serde_json::to_vec(order).map_err(io::Error::other)?;
        match orders.write_all(&line) {
            Ok(()) => Ok(worker),
            Err(error) => {
                worker.end(None);
                Err(error)
            }
        }
    }

    /// Its process id.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for what it says next, until `deadline`.
    pub(super) fn listen(&mut self, deadline: Instant) -> Heard {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let answer = serde_json::from_slice(&self.buffer[..end]);
                self.buffer.drain(..=end);
                return match answer {
                    Ok(answer) => Heard::Answer(Box::new(answer)),
                    Err(_) => Heard::End("it does not speak our language".to_owned()),
                };
            }
            if self.buffer.len() > MAX_LINE || self.taken > MAX_STREAM {
                return Heard::End("it said too much".to_owned());
            }
            match self.readable(deadline) {
                Ok(true) => {}
                Ok(false) => return Heard::Nothing,
                Err(error) => return Heard::End(error.to_string()),
            }
            let mut piece = [0; 1 << 16];
            match self.answers.read(&mut piece) {
                Ok(0) => return Heard::End(self.how_it_ended()),
                Ok(length) => {
                    self.taken += length;
                    self.buffer.extend_from_slice(&piece[..length]);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Heard::End(error.to_string()),
            }
        }
    }

    fn readable(&self, deadline: Instant) -> io::Result<bool> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let milliseconds = left.as_micros().div_ceil(1000);
            let mut poll = libc::pollfd { fd: self.answers.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one valid entry that outlives the call.
            let ready =
                unsafe { libc::poll(&raw mut poll, 1, i32::try_from(milliseconds).unwrap_or(i32::MAX)) };
            match ready {
                0 => return Ok(false),
                1.. => return Ok(true),
                _ => {
                    let error = io::Error::last_os_error();
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Does it want to run, and only gets no processor?
    pub(super) fn wants_to_run(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid()));
        stat.ok().and_then(|text| parse_stat(&text)).is_some_and(|stat| stat.state == 'R')
    }

    fn how_it_ended(&mut self) -> String {
        let until = Instant::now() + DYING;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => {
                    return match (status.signal(), status.code()) {
                        (Some(signal), _) => format!("the reader was killed by signal {signal}"),
                        (None, code) => format!("the reader ended with code {}", code.unwrap_or(0)),
                    };
                }
                Ok(None) if Instant::now() < until => thread::sleep(Duration::from_millis(1)),
                _ => return "the reader went silent".to_owned(),
            }
        }
    }

    /// Kills it. `false` when it hangs in the kernel, over this question: it is left behind then, and ends when the
    /// kernel lets it.
    pub(super) fn end(mut self, question: Option<(u32, Step)>) -> bool {
        let _ = self.child.kill();
        let until = Instant::now() + DYING;
        loop {
            match self.child.try_wait() {
                Ok(None) if Instant::now() < until => thread::sleep(Duration::from_millis(1)),
                Ok(None) => {
                    reap().push(LeftBehind { child: self.child, question });
                    return false;
                }
                _ => return true,
            }
        }
    }
}
