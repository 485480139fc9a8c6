//! A run that is ended in the middle says what it knows: on SIGTERM and SIGINT, and under CI five minutes before CI would end it
//! without a word.

use std::io::{self, PipeReader, Read as _};
use std::os::fd::IntoRawFd as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};

use super::outcome::tally;

/// When `.ci/run` began, seconds since 1970.
const BEGAN: &str = "PLEGTRACE_CI_BEGAN";
/// CI ends a run after ninety minutes.
const LIMIT: Duration = Duration::from_secs(85 * 60);

/// What is being done; for whoever asks why it did not end.
static NOW: Mutex<String> = Mutex::new(String::new());

/// Notes what is being done.
pub(super) fn now(what: &str) {
    if let Ok(mut now) = NOW.lock() {
        what.clone_into(&mut now);
    }
}

/// From here on this process ends with a summary, whoever ends it. Programs that were started end with it: each asked the kernel for that.
///
/// # Errors
/// When signals cannot be caught, or `.ci/run` gave no time.
pub(super) fn watch() -> Result<()> {
    let mut signals = caught(&[libc::SIGTERM, libc::SIGINT])?;
    thread::spawn(move || {
        let mut signal = [0];
        if signals.read_exact(&mut signal).is_ok() {
            end(&format!("ended by signal {}", signal[0]));
        }
    });
    if let Some(left) = left(std::env::var(BEGAN).ok().as_deref(), SystemTime::now())? {
        thread::spawn(move || {
            thread::sleep(left);
            end(&format!("not finished {} minutes after the start of CI", LIMIT.as_secs() / 60));
        });
    }
    Ok(())
}

/// How long a run may still take that began then; `None` outside of CI.
fn left(began: Option<&str>, now: SystemTime) -> Result<Option<Duration>> {
    let Some(text) = began else { return Ok(None) };
    let seconds =
        text.parse().with_context(|| format!("{BEGAN} should be seconds since 1970, not {text:?}"))?;
    let began = UNIX_EPOCH + Duration::from_secs(seconds);
    Ok(Some(LIMIT.saturating_sub(now.duration_since(began).unwrap_or_default())))
}

/// The writing end of the pipe that tells of signals.
static TELL: AtomicI32 = AtomicI32::new(-1);

/// Has the signals told through a pipe, a byte for each. A handler, and not a mask: programs that are started would inherit a mask, and
/// could not be ended.
fn caught(signals: &[libc::c_int]) -> Result<PipeReader> {
    let (reader, writer) = io::pipe().context("no pipe")?;
    TELL.store(writer.into_raw_fd(), Ordering::Relaxed);
    for signal in signals {
        let handler: extern "C" fn(libc::c_int) = tell;
        // SAFETY: the handler does nothing but write(2), which is async-signal-safe.
        let old = unsafe { libc::signal(*signal, handler as *const () as libc::sighandler_t) };
        ensure!(old != libc::SIG_ERR, "no handler for signal {signal}");
    }
    Ok(reader)
}

extern "C" fn tell(signal: libc::c_int) {
    let byte = u8::try_from(signal).unwrap_or_default();
    // SAFETY: the byte lives for the call; of a pipe that is full nobody needs another one.
    unsafe { libc::write(TELL.load(Ordering::Relaxed), (&raw const byte).cast(), 1) };
}

/// The last words.
fn end(why: &str) -> ! {
    let doing = NOW.lock().map(|now| now.clone()).unwrap_or_default();
    let mut tally = tally();
    tally.fail(&format!("the run, at {doing},"), why);
    print!("{}", tally.summary());
    std::process::exit(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A signal is told, and a program that is started can be ended.
    #[test]
    fn signals_are_caught_and_not_inherited() {
        let mut told = caught(&[libc::SIGUSR1]).unwrap();
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        // SAFETY: kill and raise take numbers only; the child is not reaped yet.
        unsafe {
            libc::kill(pid, libc::SIGUSR1);
            libc::raise(libc::SIGUSR1);
        }
        let mut byte = [0];
        told.read_exact(&mut byte).unwrap();
        assert_eq!(i32::from(byte[0]), libc::SIGUSR1);
        assert!(!child.wait().unwrap().success());
    }

    /// The time before the tests counts, and what is over has nothing left.
    #[test]
    fn the_deadline_is_that_of_ci() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        assert_eq!(left(Some("1000"), at(1_600)).unwrap(), Some(LIMIT - Duration::from_secs(600)));
        assert_eq!(left(Some("1000"), at(100_000)).unwrap(), Some(Duration::ZERO));
        assert_eq!(left(None, at(1)).unwrap(), None);
        assert!(left(Some("x"), at(1)).is_err());
    }
}
