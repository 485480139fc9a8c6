//! A program that has taken all instances of inotify that root may have: plegtrace says who has them and that none is left, be it
//! there before or be it that it takes them meanwhile, and says nothing once it is gone.

use std::fs;
use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use plegtrace::cli::Settings;
use plegtrace::correlate::Snapshot;
use plegtrace::diagnose::{Confidence, Severity, diagnose};

use crate::observation::Observation;
use crate::stall;
use crate::undo::Undo;
use crate::wait::BUDGET;

const LIMIT: &str = "/proc/sys/fs/inotify/max_user_instances";
/// Lower than usual: an instance takes memory of the kernel.
const FEWER: u64 = 64;
/// How many of those that are taken have two holders.
const SHARED: usize = 8;
/// Some programs of a system that has just started take one for a moment.
const SETTLED: Duration = Duration::from_secs(5);
/// A look of the census.
const ONE_LOOK: Duration = Duration::from_secs(3);
/// Two looks at what is rarely looked at while there is enough of it.
const TWO_LOOKS: Duration = Duration::from_secs(36);

/// Takes them before plegtrace comes, and while it is there.
///
/// # Errors
/// When that is not noticed, or something else is.
pub fn run() -> Result<String> {
    let usual = fs::read_to_string(LIMIT)?;
    fs::write(LIMIT, FEWER.to_string())?;
    let over = Undo::within(stall::WATCHDOG + BUDGET, "instances of inotify were few", move || {
        drop(fs::write(LIMIT, usual));
    });
    let look = |duration| {
        let settings = Settings { wire: false, to_the_end: true, duration, ..stall::settings() };
        Observation::begin_with(settings)
    };
    // What one observation has seen, the next one does not rely on.
    nothing(&look(ONE_LOOK)?.ended()?)?;
    let (taker, shared) = take_all()?;
    let before = only(&look(ONE_LOOK)?.ended()?, taker.id()).context("taken before")?;
    end(taker)?;
    drop(shared);
    nothing(&look(ONE_LOOK)?.ended()?)?;
    let observation = look(TWO_LOOKS)?;
    let (taker, shared) = take_all()?;
    only(&observation.ended()?, taker.id()).context("taken meanwhile")?;
    end(taker)?;
    drop((shared, over));
    Ok(before)
}

/// As long as there is room, nothing is found.
fn nothing(snapshot: &Snapshot) -> Result<()> {
    let diagnosis = diagnose(snapshot);
    ensure!(diagnosis.findings.is_empty(), "{:?} where there is room", stall::named(&diagnosis));
    Ok(())
}

/// The headline of the only finding.
fn only(snapshot: &Snapshot, taker: u32) -> Result<String> {
    let diagnosis = diagnose(snapshot);
    let named = stall::named(&diagnosis);
    let round = snapshot.census.round.as_ref();
    let seen = round.and_then(|round| round.scarce.as_ref());
    let unanswered = round.map(|round| &round.unanswered);
    ensure!(named == [("O5", Some(taker), Confidence::High)], "named {named:?}; {seen:?}, {unanswered:?}");
    let finding = &diagnosis.findings[0];
    // Those with two holders count once. A daemon may have taken one before it became somebody else.
    let used = seen.and_then(|scarce| Some(scarce.inotify.as_ref()?.used)).unwrap_or_default();
    ensure!((FEWER - 2..=FEWER).contains(&used), "{used} of {FEWER} in use");
    ensure!(finding.severity == Severity::Notice, "{finding:?}");
    Ok(format!("{}; {used} were seen", finding.headline))
}

/// Takes instances until the kernel has refused another one for a while, and gives them to a process of their own. Some are ours
/// as well.
fn take_all() -> Result<(Child, Vec<OwnedFd>)> {
    let (mut taken, mut since) = (Vec::new(), Instant::now());
    while since.elapsed() < SETTLED {
        match instance()? {
            Some(fd) => {
                taken.push(fd);
                since = Instant::now();
            }
            None => thread::sleep(Duration::from_millis(50)),
        }
    }
    ensure!(taken.len() > SHARED, "root had {} left", taken.len());
    let mut sleep = Command::new("sleep");
    sleep.arg("1000").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let taker = sleep.spawn().context("no sleep")?;
    taken.truncate(SHARED);
    Ok((taker, taken))
}

/// One that programs inherit; `None` when it is refused.
fn instance() -> Result<Option<OwnedFd>> {
    // SAFETY: no memory is involved.
    let fd = unsafe { libc::inotify_init1(0) };
    if fd >= 0 {
        // SAFETY: it is ours, and nobody else has it.
        return Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) }));
    }
    let error = io::Error::last_os_error();
    ensure!(error.raw_os_error() == Some(libc::EMFILE), "inotify_init1: {error}");
    Ok(None)
}

fn end(mut taker: Child) -> Result<()> {
    taker.kill()?;
    taker.wait()?;
    Ok(())
}
