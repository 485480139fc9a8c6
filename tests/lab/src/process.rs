//! Turns /proc into what the lab asks about processes, and conditions into waits with a deadline.

use std::fs;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

/// How often a condition is looked at again.
const POLL: Duration = Duration::from_millis(20);

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

/// The arguments of a process; none when it is gone.
#[must_use]
pub fn arguments(pid: u32) -> Vec<String> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
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
