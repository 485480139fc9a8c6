//! Units that take long to read: systemd reads all of them in a reload, and does nothing else meanwhile.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::wait::{self, BUDGET};

/// Where units are that are gone with the machine (systemd.unit(5)).
const UNITS: &str = "/run/systemd/system";
/// One that systemd has loaded, and that wants ours.
const WANTED_BY: &str = "multi-user.target.wants";
/// So many there are. Of more each later reload takes longer than the one before, and to forget them takes minutes.
const UNITS_MADE: u32 = 100;
/// So many lines of each tell how long one takes.
const FEW_LINES: u128 = 4_000;
/// The most lines that one gets.
const MANY_LINES: u128 = 30_000;

/// Units that nobody starts; they go when it is dropped.
#[derive(Debug)]
pub struct Units(());

impl Units {
    /// So long ones that a reload takes this long, about.
    ///
    /// # Errors
    /// When units cannot be made, or systemd does not reload.
    pub fn for_a_reload_of(wanted: Duration) -> Result<Self> {
        let units = Self(());
        make(1)?;
        // The first one loads them, as each later one does.
        let short = timed()?;
        make(FEW_LINES)?;
        let few = timed()?.saturating_sub(short).as_nanos();
        ensure!(few > 0, "{FEW_LINES} lines cost nothing");
        let lines = FEW_LINES * wanted.saturating_sub(short).as_nanos() / few;
        make(lines.clamp(FEW_LINES, MANY_LINES))?;
        Ok(units)
    }

    /// Has systemd reload; returns once it has begun.
    ///
    /// # Errors
    /// When it does not begin.
    pub fn reload(&self) -> Result<Child> {
        let child = Command::new("systemctl")
            .arg("daemon-reload")
            .stdin(Stdio::null())
            .spawn()
            .context("cannot ask systemd to reload")?;
        wait::until("systemd to reload", BUDGET, || Ok(is_reloading()?.then_some(())))?;
        Ok(child)
    }
}

impl Drop for Units {
    fn drop(&mut self) {
        for number in 0..UNITS_MADE {
            drop(fs::remove_file(path(number)));
            drop(fs::remove_file(Path::new(UNITS).join(WANTED_BY).join(name(number))));
        }
        drop(timed());
    }
}

/// Makes all of them, or makes them as long as that.
fn make(lines: u128) -> Result<()> {
    let wants = Path::new(UNITS).join(WANTED_BY);
    fs::create_dir_all(&wants)?;
    let description = "Description=plegtrace test\n".repeat(usize::try_from(lines)?);
    for number in 0..UNITS_MADE {
        let text = format!("[Unit]\n{description}[Service]\nType=oneshot\nExecStart=/bin/true\n");
        fs::write(path(number), text).context("cannot make a unit")?;
        let wanted = wants.join(name(number));
        if wanted.symlink_metadata().is_err() {
            symlink(path(number), wanted).context("cannot have a unit wanted")?;
        }
    }
    Ok(())
}

/// It keeps its state in a file without a name meanwhile.
fn is_reloading() -> io::Result<bool> {
    let links = fs::read_dir("/proc/1/fd")?.flatten().filter_map(|fd| fs::read_link(fd.path()).ok());
    Ok(links.into_iter().any(|link| link.to_string_lossy().contains("systemd-state")))
}

/// How long a reload takes.
fn timed() -> Result<Duration> {
    let began = Instant::now();
    wait::output(Command::new("systemctl").arg("daemon-reload"), BUDGET)?;
    Ok(began.elapsed())
}

fn name(number: u32) -> String {
    format!("plegtrace-test-{number}.service")
}

fn path(number: u32) -> PathBuf {
    Path::new(UNITS).join(name(number))
}
