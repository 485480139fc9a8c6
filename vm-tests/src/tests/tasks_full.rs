//! The unit of containerd may have so many tasks (`TasksMax`), and somebody else in it has used them up: plegtrace says which
//! cgroup is full, and who cannot start anything.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use plegtrace::cli::Settings;
use plegtrace::diagnose::{Confidence, Severity, diagnose};

use crate::observation::Observation;
use crate::stall;
use crate::undo::Undo;
use crate::wait::{self, BUDGET};

const UNIT: &str = "containerd.service";
const GROUP: &str = "/sys/fs/cgroup/system.slice/containerd.service";
/// Room that is left to be filled.
const ROOM: u64 = 8;
/// Starts processes in the cgroup that it is given until it cannot start another one.
const LEAK: &str = "echo $$ > \"$1/cgroup.procs\"; while :; do sleep 1000 & done";
/// Two looks of the census.
const OBSERVED: Duration = Duration::from_secs(6);

/// Fills the unit.
///
/// # Errors
/// When that is not noticed, or something else is.
pub fn run() -> Result<String> {
    let group = Path::new(GROUP);
    let pid =
        wait::output(Command::new("systemctl").args(["show", "-p", "MainPID", "--value", UNIT]), BUDGET)?;
    let pid: u32 = pid.trim().parse().context("containerd has no process")?;
    allow(&(number(group, "pids.current")? + ROOM).to_string())?;
    let over = Undo::within(stall::WATCHDOG, "a unit was full", || {
        end_leak(Path::new(GROUP));
        drop(allow("infinity"));
    });
    let mut leak = Command::new("/bin/sh");
    leak.args(["-c", LEAK, "leak", GROUP]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    leak.spawn().context("no shell")?.wait()?;
    // The shell that could not go on has left a place.
    allow(&number(group, "pids.current")?.to_string())?;
    let settings = Settings { wire: false, to_the_end: true, duration: OBSERVED, ..stall::settings() };
    let snapshot = Observation::begin_with(settings)?.ended()?;
    drop(over);
    let diagnosis = diagnose(&snapshot);
    let named = stall::named(&diagnosis);
    ensure!(named == [("O4", Some(pid), Confidence::High)], "named {named:?}; {:?}", snapshot.census);
    let finding = &diagnosis.findings[0];
    ensure!(finding.severity == Severity::Notice && finding.headline.contains(UNIT), "{finding:?}");
    Ok(finding.headline.clone())
}

fn allow(tasks: &str) -> Result<()> {
    let mut systemctl = Command::new("systemctl");
    systemctl.args(["set-property", "--runtime", UNIT, &format!("TasksMax={tasks}")]);
    wait::output(&mut systemctl, BUDGET).map(drop)
}

fn number(group: &Path, file: &str) -> Result<u64> {
    let text = fs::read_to_string(group.join(file)).with_context(|| format!("no {file}"))?;
    text.trim().parse().with_context(|| format!("no number in {file}: {text:?}"))
}

/// Kills those that were started here.
fn end_leak(group: &Path) {
    let processes = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    for pid in processes.lines() {
        let comm = PathBuf::from("/proc").join(pid).join("comm");
        if fs::read_to_string(comm).is_ok_and(|comm| comm == "sleep\n")
            && let Ok(pid) = pid.parse()
        {
            // SAFETY: no memory is involved.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
    }
}
