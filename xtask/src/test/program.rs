//! Runs one test program with its output in a log, with a budget. A test that fails is named on standard output when it does.

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::counts::{self, FailedTest};
use super::margins::Margin;
use super::tail::Tail;
use crate::cmd;
use crate::skips::{self, complaint};
use crate::vm::Counts;

/// Between being asked to end and being made to: daemons of the lab are torn down in this time.
const GRACE: Duration = Duration::from_secs(30);

/// How often the log is looked at.
const TICK: Duration = Duration::from_millis(100);

/// What came of a program.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) counts: Counts,
    pub(crate) skips: Vec<String>,
    pub(crate) margins: Vec<Margin>,
    /// Why it is a failure as a whole.
    pub(crate) failure: Option<String>,
    /// The tests that failed, each with load and pressure when it did.
    pub(crate) failed: Vec<(FailedTest, String)>,
    /// Where daemons' logs were kept.
    pub(crate) kept: Vec<String>,
}

/// Runs `command`, called `name`, with both streams in `log`.
///
/// # Errors
/// When it cannot be started or its log cannot be written.
pub(crate) fn run(command: &mut Command, name: &str, log: &Path, budget: Duration) -> Result<Ran> {
    if let Some(dir) = log.parent() {
        fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    }
    let file = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    let twin = file.try_clone().with_context(|| format!("cannot write {}", log.display()))?;
    command.stdin(Stdio::null()).stdout(file).stderr(twin).process_group(0);
    // SAFETY: prctl is async-signal-safe and touches nothing but the new process.
    unsafe {
        command.pre_exec(|| {
            // In its own process group it does not hear Ctrl-C; it ends because we do.
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
            Ok(())
        });
    }
    let mut child = command.spawn().with_context(|| format!("cannot start `{}`", cmd::shown(command)))?;
    let mut tail = Tail::new(name, log);
    let ended = wait(&mut child, budget, &mut tail)?;
    tail.look();
    let bytes = fs::read(log).with_context(|| format!("cannot read {}", log.display()))?;
    let mut ran = judge(&String::from_utf8_lossy(&bytes), ended, budget);
    for (test, moment) in &mut ran.failed {
        *moment = tail.moment(&test.name);
    }
    Ok(ran)
}

fn judge(text: &str, ended: Option<ExitStatus>, budget: Duration) -> Ran {
    let mut counts = counts::read(text);
    let skips = counts::skips(text);
    let refused: Vec<String> = skips.iter().filter(|skip| !is_allowed(skip)).cloned().collect();
    counts.skipped -= refused.len();
    counts.failed += refused.len();
    let reason = match ended {
        None => Some(format!("no end within {} s", budget.as_secs())),
        Some(status) if !status.success() => Some(format!("{status}")),
        Some(_) if !refused.is_empty() => Some(complaint(&refused.join("; "))),
        Some(_) => None,
    };
    // A program that ended badly without a failed test has failed as a whole.
    if reason.is_some() && counts.failed == 0 {
        counts.failed = 1;
    }
    let failed = counts::failed_tests(text).into_iter().map(|test| (test, String::new())).collect();
    let failure = reason.map(|why| format!("{why}\n{}", counts::failure(text, 12)));
    Ran { counts, skips, margins: counts::margins(text), failure, failed, kept: counts::kept_logs(text) }
}

/// A skip is declared as `name: reason`.
fn is_allowed(skip: &str) -> bool {
    skips::may(skip.split_once(": ").map_or(skip, |(name, _)| name))
}

/// Waits for the end; after the budget the program's process group is asked, then made to end.
fn wait(child: &mut Child, budget: Duration, tail: &mut Tail) -> Result<Option<ExitStatus>> {
    if let Some(status) = until(child, budget, tail)? {
        return Ok(Some(status));
    }
    let group = i32::try_from(child.id()).context("a process id fits")?;
    for signal in [libc::SIGTERM, libc::SIGKILL] {
        // SAFETY: kill takes numbers only; the group is the child's own, which is not reaped yet.
        unsafe { libc::kill(-group, signal) };
        if until(child, GRACE, tail)?.is_some() {
            break;
        }
    }
    Ok(None)
}

fn until(child: &mut Child, budget: Duration, tail: &mut Tail) -> Result<Option<ExitStatus>> {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait().context("cannot wait for a test program")? {
            return Ok(Some(status));
        }
        if begin.elapsed() >= budget {
            return Ok(None);
        }
        tail.look();
        thread::sleep(TICK.min(budget));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, budget: Duration) -> Ran {
        let log =
            std::env::temp_dir().join(format!("plegtrace-program-{}-{}", std::process::id(), script.len()));
        let ran = run(Command::new("sh").args(["-c", script]), "a shell", &log, budget).unwrap();
        fs::remove_file(log).unwrap();
        ran
    }

    /// A program that crashes has failed even though no test did.
    #[test]
    fn a_crash_is_a_failure() {
        let ran =
            shell("echo 'test result: ok. 2 passed; 0 failed; 0 ignored'; exit 3", Duration::from_secs(60));
        assert_eq!(ran.counts, Counts { passed: 2, failed: 1, skipped: 0 });
        assert!(ran.failure.unwrap().contains("exit status: 3"));
    }

    /// Only what is listed may be skipped.
    #[test]
    fn a_skip_that_is_not_listed_is_a_failure() {
        let result = "test result: ok. 2 passed; 0 failed; 0 ignored";
        let ran =
            |name| shell(&format!("echo 'SKIP {name}: gone'; echo '{result}'"), Duration::from_secs(60));
        assert_eq!(ran("golden sid").counts, Counts { passed: 1, failed: 0, skipped: 1 });
        let refused = ran("containerd 1.6");
        assert_eq!(refused.counts, Counts { passed: 1, failed: 1, skipped: 0 });
        assert!(refused.failure.unwrap().contains("does not allow: containerd 1.6: gone"));
    }

    /// A program that does not end is ended, with what it started.
    #[test]
    fn a_hanging_program_is_ended() {
        let ran = shell("sleep 1000 & wait", Duration::from_millis(50));
        assert!(ran.failure.unwrap().starts_with("no end within 0 s"));
        assert_eq!(ran.counts.failed, 1);
    }

    /// A good program is a pass and nothing else.
    #[test]
    fn a_good_program() {
        let ran = shell("echo 'test result: ok. 2 passed; 0 failed; 0 ignored'", Duration::from_secs(60));
        assert!(ran.failure.is_none());
        assert_eq!(ran.counts.passed, 2);
    }
}
