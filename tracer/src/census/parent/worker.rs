//! One child process of the census, seen from its parent: started, given orders, listened to.

use std::{
    fs,
    io::{self, Read as _, Write as _},
    os::{fd::AsRawFd as _, unix::process::CommandExt as _, unix::process::ExitStatusExt as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use super::{keeper, pool::DYING};
use crate::{
    census::protocol::{Answer, MAX_LINE, MAX_STREAM, Order},
    target::parse_stat,
};

/// The hidden sub-command that makes plegtrace the child.
pub const CHILD_COMMAND: &str = "census-child";
/// Children started so far.
static STARTED: AtomicU64 = AtomicU64::new(0);

/// This very program, also when a package manager has replaced its file since it was started.
#[must_use]
pub fn this_program() -> PathBuf {
    PathBuf::from("/proc/self/exe")
}

/// A child that takes orders.
#[derive(Debug)]
pub(super) struct Worker {
    child: Child,
    number: u64,
    orders: ChildStdin,
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
    /// Starts a child.
    ///
    /// # Errors
    ///
    /// It cannot be started until then.
    pub(super) fn start(program: &Path, until: Instant) -> io::Result<Self> {
        let mut command = Command::new(program);
        command.arg(CHILD_COMMAND).env_clear();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        // Ctrl-C is for the parent, which then still reports.
        command.process_group(0);
        let mut child = keeper::start(command, until)?;
        let (Some(orders), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        Ok(Self { child, number, orders, answers, buffer: Vec::new(), taken: 0 })
    }

    /// Gives it an order.
    ///
    /// # Errors
    ///
    /// It has ended.
    pub(super) fn order(&mut self, order: &Order) -> io::Result<()> {
        let mut line = serde_json::to_vec(order).map_err(io::Error::other)?;
        line.push(b'\n');
        self.taken = 0;
        self.orders.write_all(&line)
    }

    /// Has it said everything, and does it live?
    pub(super) fn waits_for_an_order(&mut self) -> bool {
        self.buffer.is_empty() && matches!(self.child.try_wait(), Ok(None))
    }

    /// How many were started before it.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// The process alone; nobody listens to it any more.
    pub(super) fn into_child(self) -> Child {
        self.child
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

    /// Does it want to run, or a program that it waits for, and only gets no processor?
    pub(super) fn wants_to_run(&self) -> bool {
        wants_to_run(self.pid())
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
}

/// A program that was asked for its version is a child of the reader. Without CONFIG_PROC_CHILDREN it is not found, and not waited for.
fn wants_to_run(pid: u32) -> bool {
    let main = format!("/proc/{pid}/task/{pid}");
    let children = fs::read_to_string(format!("{main}/children")).unwrap_or_default();
    let threads =
        children.split_whitespace().filter_map(|child| fs::read_dir(format!("/proc/{child}/task")).ok());
    let of_children = threads.flatten().flatten().map(|thread| thread.path());
    std::iter::once(PathBuf::from(main)).chain(of_children).any(|thread| runs(&thread))
}

/// Does this thread run, or wait for a processor?
fn runs(thread: &Path) -> bool {
    let stat = fs::read_to_string(thread.join("stat"));
    stat.ok().and_then(|text| parse_stat(&text)).is_some_and(|stat| stat.state == 'R')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who waits for a child that runs is given more time, and not who waits for one that sleeps.
    #[test]
    fn whose_child_runs_wants_to_run() {
        let asked = |script: &str, is_there: &dyn Fn(u32) -> bool| {
            let mut shell = Command::new("sh").args(["-c", script]).spawn().unwrap();
            let until = Instant::now() + Duration::from_secs(30);
            let mut seen = false;
            while !seen && Instant::now() < until {
                seen = is_there(shell.id());
                thread::yield_now();
            }
            shell.kill().unwrap();
            shell.wait().unwrap();
            seen
        };
        // The shell waits, and is not seen in between while it runs itself; its child runs until its parent has ended.
        let waits = |pid| !runs(Path::new(&format!("/proc/{pid}")));
        let runs_below = |pid| (0..20).all(|_| waits(pid) && wants_to_run(pid));
        let script = "p=$$; (while kill -0 $p 2>/dev/null; do :; done) & wait";
        assert!(asked(script, &runs_below), "the child runs");
        let sleeps_below = |pid| {
            let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
            let is_asleep = |child: &str| {
                let name = fs::read_to_string(format!("/proc/{child}/comm")).unwrap_or_default();
                name == "sleep\n" && !runs(Path::new(&format!("/proc/{child}")))
            };
            children.is_ok_and(|all| all.split_whitespace().any(is_asleep)) && !wants_to_run(pid)
        };
        assert!(asked("sleep 5 & wait", &sleeps_below), "nobody runs");
    }
}
