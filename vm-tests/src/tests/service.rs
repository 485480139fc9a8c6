//! The packaged unit under a real systemd: it is active once plegtrace says so, its capabilities are enough to attach probes,
//! the watchdog is fed, a reload leaves it alone, and it ends without a complaint. This binary plays `/usr/bin/plegtrace`.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::wait::{self, BUDGET};

const UNIT: &str = include_str!("../../../tracer/packaging/plegtrace.service");
/// A window of the service takes a minute, and it is quiet.
const SHORT: &str = "[Service]\nExecStart=\nExecStart=/usr/bin/plegtrace watch --window 1s\n";
const FILE: &str = "/run/systemd/system/plegtrace.service";
const SHORTENED: &str = "/run/systemd/system/plegtrace.service.d/short.conf";
const PROGRAM: &str = "/usr/bin/plegtrace";
const STATE: &str = "/var/lib/plegtrace";

/// Installs the unit, runs it from its start to its end, and removes it.
///
/// # Errors
/// When systemd or the service does not do as expected; the message has what the service said last.
pub fn run() -> Result<String> {
    install()?;
    let lived = lived().with_context(|| {
        let said = systemd("journalctl", &["-u", "plegtrace", "-o", "cat", "-n", "20", "--no-pager"]);
        said.unwrap_or_default()
    });
    systemd("systemctl", &["stop", "plegtrace"])?;
    for file in [FILE, SHORTENED, PROGRAM] {
        fs::remove_file(file)?;
    }
    systemd("systemctl", &["daemon-reload"])?;
    lived
}

fn install() -> Result<()> {
    fs::create_dir_all(Path::new(SHORTENED).parent().context("a file has a folder")?)?;
    fs::write(FILE, UNIT)?;
    fs::write(SHORTENED, SHORT)?;
    symlink(std::env::current_exe()?, PROGRAM)?;
    let said = systemd("sh", &["-c", "systemd-analyze verify \"$0\" 2>&1", FILE])?;
    // It may have something to say about other units.
    ensure!(!said.lines().any(|line| line.contains("plegtrace")), "systemd-analyze: {said}");
    systemd("systemctl", &["daemon-reload"]).map(drop)
}

fn lived() -> Result<String> {
    // Returns once it says that it is ready.
    systemd("systemctl", &["start", "plegtrace"])?;
    is("ActiveState", "active")?;
    wait::until("probes", BUDGET, || {
        let said = systemd("journalctl", &["-u", "plegtrace", "-o", "cat", "--no-pager"])?;
        Ok(said.contains("plegtrace: armed: ").then_some(()))
    })?;
    let windows = windows_after(0)?;
    let mode = fs::metadata(STATE)?.permissions().mode() & 0o777;
    ensure!(mode == 0o700, "{STATE} has the mode {mode:o}");
    let process = property("MainPID")?;
    pinged()?;
    systemd("systemctl", &["reload", "plegtrace"])?;
    windows_after(windows)?;
    pinged()?;
    is("MainPID", &process)?;
    systemd("systemctl", &["stop", "plegtrace"])?;
    for (name, value) in
        [("ActiveState", "inactive"), ("Result", "success"), ("ExecMainStatus", "0"), ("NRestarts", "0")]
    {
        is(name, value)?;
    }
    Ok(format!("process {process}, stopped with success"))
}

/// Waits for a window after this many; how many there are then.
fn windows_after(seen: usize) -> Result<usize> {
    wait::until("a window", BUDGET, || {
        let history = fs::read_to_string(Path::new(STATE).join("history.jsonl"))?;
        Ok(Some(history.lines().count()).filter(|count| *count > seen))
    })
}

/// Waits for another ping of the watchdog.
fn pinged() -> Result<()> {
    let last = || property("WatchdogTimestampMonotonic");
    let before = last()?;
    wait::until("a ping", BUDGET, || Ok((last()? != before).then_some(())))
}

fn is(name: &str, expected: &str) -> Result<()> {
    let value = property(name)?;
    ensure!(value == expected, "{name} is {value}, not {expected}");
    Ok(())
}

fn property(name: &str) -> Result<String> {
    let value = systemd("systemctl", &["show", "-p", name, "--value", "plegtrace"])?;
    Ok(value.trim().to_owned())
}

fn systemd(program: &str, arguments: &[&str]) -> Result<String> {
    wait::output(Command::new(program).args(arguments), BUDGET)
}
