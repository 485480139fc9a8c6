//! Turns /proc into what the lab asks about processes, and conditions into waits with a deadline.

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

/// How often a condition is looked at again.
pub(crate) const POLL: Duration = Duration::from_millis(20);

/// Looks at `condition` again and again until it gives something, or `limit` is over.
///
/// # Errors
///
/// An error of `condition` ends the wait; so does the limit, naming `what`.
pub fn wait_for<T>(
    what: &str,
    limit: Duration,
    mut condition: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let start = Instant::now();
    loop {
        if let Some(value) = condition()? {
            return Ok(value);
        }
        if start.elapsed() >= limit {
            bail!("{what} did not happen within {limit:?}");
        }
        std::thread::sleep(POLL);
    }
}

/// Waits for the end of a child for at most `limit`.
///
/// # Errors
///
/// When it did not end, or cannot be waited for.
pub fn wait(child: &mut Child, limit: Duration) -> Result<ExitStatus> {
    let what = format!("the end of process {}", child.id());
    wait_for(&what, limit, || child.try_wait().context("cannot wait for a child"))
}

/// Number and start time (clock ticks since boot) of a process: together unique until the next boot.
#[must_use]
pub fn identity(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(format!("{pid} {}", stat_field(&stat, 22)?))
}

/// The state letter of a process (`R`, `S`, `T` …), see proc(5).
#[must_use]
pub fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat_field(&stat, 3)?.chars().next()
}

/// Whether no thread of a process runs, or would run if it were let.
pub(crate) fn rests(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let stats = threads.filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok());
    stats.into_iter().all(|stat| stat_field(&stat, 3) != Some("R"))
}

/// Field `number` of a stat line as proc(5) counts; the second one may contain anything, so we count from its end.
fn stat_field(stat: &str, number: usize) -> Option<&str> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(number - 3)
}

/// The short name of a process; empty when it is gone.
#[must_use]
pub fn name(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim_end().to_owned()
}

/// Does the process handle this signal itself?
#[must_use]
pub fn catches(pid: u32, signal: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    caught.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// The arguments of a process; none when it is gone.
#[must_use]
pub fn arguments(pid: u32) -> Vec<String> {
    // At once: `fs::read` tries 32 bytes first, and a process that ends before the next read would have only those.
    let mut bytes = Vec::with_capacity(8 << 10);
    let read =
        fs::File::open(format!("/proc/{pid}/cmdline")).and_then(|mut file| file.read_to_end(&mut bytes));
    if read.is_err() {
        return Vec::new();
    }
    let words = bytes.split(|&byte| byte == 0).map(|word| String::from_utf8_lossy(word).into_owned());
    let mut words: Vec<String> = words.collect();
    words.pop(); // The last argument ends with a zero as well.
    words
}

/// All processes of the machine.
#[must_use]
pub fn all() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The processes that carry the mark of the lab in `dir`: daemons, shims and runcs, not what runs in containers.
#[must_use]
pub fn marked(dir: &Path) -> Vec<u32> {
    let mark = format!("PLEGTRACE_LAB={}", dir.display());
    let is_marked = |pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|&byte| byte == 0).any(|word| word == mark.as_bytes())
    };
    all().into_iter().filter(is_marked).collect()
}

/// The parent of a process; `None` when it is gone.
#[must_use]
pub fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat_field(&stat, 4)?.parse().ok()
}

/// The value of a variable in the environment a process was started with.
#[must_use]
pub fn variable(pid: u32, name: &str) -> Option<String> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mut words = environment.split(|&byte| byte == 0).map(String::from_utf8_lossy);
    words.find_map(|word| Some(word.strip_prefix(name)?.strip_prefix('=')?.to_owned()))
}

/// The processes with `part` in the path of one of their cgroups: a container's carries its id there.
#[must_use]
pub fn in_cgroup(part: &str) -> Vec<u32> {
    let is_member = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/cgroup")).is_ok_and(|cgroups| cgroups.contains(part))
    };
    all().into_iter().filter(is_member).collect()
}

/// Where one thread waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// Number of the system call, as in `asm/unistd.h` of this machine.
    pub syscall: i64,
    /// Its first argument, which is a descriptor for those that take one.
    pub argument: u64,
    /// The kernel function it sleeps in; `0` where the kernel does not tell.
    pub wchan: String,
}

/// The threads of a process that wait in a system call; those that run are left out.
#[must_use]
pub fn blocked_threads(pid: u32) -> Vec<Blocked> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let blocked = tasks.filter_map(|task| {
        let text = |name| fs::read_to_string(task.path().join(name)).ok();
        let wchan = text("wchan")?.trim().to_owned();
        let (syscall, argument) = parse_syscall(&text("syscall")?)?;
        Some(Blocked { syscall, argument, wchan })
    });
    blocked.collect()
}

/// Parses `/proc/PID/syscall` (see proc(5)): the number in decimal, then six arguments, stack pointer and counter.
fn parse_syscall(text: &str) -> Option<(i64, u64)> {
    let mut words = text.split_whitespace();
    let number = words.next()?.parse().ok().filter(|&number| number >= 0)?;
    Some((number, u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?))
}

/// What a descriptor of a process refers to (`pipe:[4711]`, a path …); `None` when it has no such descriptor.
#[must_use]
pub fn descriptor(pid: u32, number: u64) -> Option<String> {
    let target = fs::read_link(format!("/proc/{pid}/fd/{number}")).ok()?;
    Some(target.to_string_lossy().into_owned())
}

/// What all descriptors of a process refer to.
#[must_use]
pub fn descriptors(pid: u32) -> Vec<String> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| Some(fs::read_link(entry.path()).ok()?.to_string_lossy().into_owned()))
        .collect()
}

/// A process that is never mistaken for a later one of the same number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    pid: u32,
    identity: String,
}

impl Process {
    /// The process that has the number now; `None` when there is none.
    #[must_use]
    pub fn running(pid: u32) -> Option<Process> {
        Some(Process { pid, identity: identity(pid)? })
    }

    /// Its number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether it runs still: a zombie does not.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        identity(self.pid).as_ref() == Some(&self.identity) && state(self.pid) != Some('Z')
    }

    /// Ends it (SIGKILL) and waits until it has gone, for at most `limit`. One that has gone already is fine.
    ///
    /// # Errors
    ///
    /// When it cannot be signalled or does not end.
    pub fn kill(&self, limit: Duration) -> Result<()> {
        if !self.is_alive() {
            return Ok(());
        }
        if let Err(error) = signal(self.pid, libc::SIGKILL)
            && self.is_alive()
        {
            return Err(error);
        }
        wait_for(&format!("the end of process {}", self.pid), limit, || Ok((!self.is_alive()).then_some(())))
    }
}

/// Sends `signal` to a process.
///
/// # Errors
///
/// When it is gone or not ours.
pub fn signal(pid: u32, signal: i32) -> Result<()> {
    let pid = i32::try_from(pid).context("process number out of range")?;
    // SAFETY: kill takes two integers and touches no memory of ours; a positive number is one process.
    if unsafe { libc::kill(pid, signal) } == 0 {
        return Ok(());
    }
    Err(std::io::Error::last_os_error())
        .with_context(|| format!("cannot send signal {signal} to process {pid}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_fields_are_counted_after_a_hostile_name() {
        let stat = "7 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20";
        assert_eq!(stat_field(stat, 3), Some("S"));
        assert_eq!(stat_field(stat, 22), Some("4242"));
        assert_eq!(stat_field("7", 3), None);
    }

    #[test]
    fn a_waiting_thread_is_told_from_a_running_one() {
        let waiting = "1 0x9 0x7f00 0x8 0x0 0x0 0x0 0x7ffd0 0x472e03";
        assert_eq!(parse_syscall(waiting), Some((1, 9)));
        assert_eq!(parse_syscall("running\n"), None);
        assert_eq!(parse_syscall("-1 0x7ffd0 0x472e03"), None, "blocked, but in no system call");
    }

    /// Rust's runtime looks for overflowing stacks.
    #[test]
    fn handlers_are_seen() {
        assert!(catches(std::process::id(), libc::SIGSEGV));
        assert!(!catches(std::process::id(), libc::SIGUSR2));
    }

    #[test]
    fn a_killed_child_is_gone_before_it_is_reaped() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::running(child.id()).unwrap();
        assert!(process.is_alive() && parent(child.id()) == Some(std::process::id()));
        process.kill(Duration::from_secs(10)).unwrap();
        process.kill(Duration::from_secs(10)).unwrap();
        child.wait().unwrap();
        assert_eq!(Process::running(child.id()), None);
    }

    /// `sleep` rests once it sleeps; a loop never does, also when others have the processor.
    #[test]
    fn a_loop_does_not_rest() {
        let mut sleeper = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let mut looper =
            std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let asleep = || Ok(rests(sleeper.id()).then_some(()));
        wait_for("a process that sleeps", Duration::from_secs(30), asleep).unwrap();
        assert!((0..50).all(|_| !rests(looper.id())));
        for child in [&mut sleeper, &mut looper] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    #[test]
    fn our_own_process_is_seen() {
        let pid = std::process::id();
        assert!(identity(pid).unwrap().starts_with(&format!("{pid} ")));
        assert!(matches!(state(pid), Some('R' | 'S')));
        assert!(all().contains(&pid));
        assert!(!arguments(pid).is_empty());
    }

    #[test]
    fn a_wait_ends_at_its_limit() {
        let error = wait_for("it", Duration::from_millis(1), || Ok(None::<()>)).unwrap_err();
        assert!(error.to_string().starts_with("it did not happen"));
    }
}
