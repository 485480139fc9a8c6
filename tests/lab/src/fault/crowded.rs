//! A process in a cgroup that somebody else fills with processes, up to its limit (O4).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use super::guard::{EFFECT_LIMIT, Facts, Fault};
use super::quota::own_group;
use crate::process;

/// The controller in version 1.
const V1: &str = "/sys/fs/cgroup/pids";
/// The root of version 2.
const V2: &str = "/sys/fs/cgroup";
/// Room that is left to be filled.
const ROOM: u64 = 8;
/// Starts processes in the cgroup that it is given until it cannot start another one.
const LEAK: &str = "echo $$ > \"$1/cgroup.procs\"; while :; do sleep 1000 & done";

/// Fills a cgroup that is made for the process.
///
/// # Errors
///
/// The cgroup cannot be made or filled, or the process cannot be moved.
pub fn crowded(pid: u32) -> Result<Fault> {
    let is_v1 = Path::new(V1).join("cgroup.procs").exists();
    let root = PathBuf::from(if is_v1 { V1 } else { V2 });
    let home = root.join(own_group(pid, if is_v1 { "pids" } else { "" })?);
    if !is_v1 {
        fs::write(root.join("cgroup.subtree_control"), "+pids").context("there is no controller of tasks")?;
    }
    let group = root.join(format!("plegtrace-lab-crowded-{pid}"));
    fs::create_dir_all(&group).context("cannot make a cgroup")?;
    let facts = Facts { culprits: vec![pid], path: Some(group.clone()), ..Facts::default() };
    let (full, identity) = (group.clone(), process::identity(pid));
    let fault = Fault::new(facts).healed_by(move || {
        if process::identity(pid) == identity {
            fs::write(home.join("cgroup.procs"), pid.to_string()).context("cannot move a process back")?;
        }
        process::wait_for("the end of the cgroup", EFFECT_LIMIT, || {
            kill_all(&full);
            Ok((fs::remove_dir(&full).is_ok() || !full.exists()).then_some(()))
        })
    });
    fs::write(group.join("cgroup.procs"), pid.to_string()).context("cannot move a process")?;
    let tasks: u64 = number(&group, "pids.current")?;
    fs::write(group.join("pids.max"), (tasks + ROOM).to_string()).context("cannot set a limit")?;
    let mut leak = Command::new("/bin/sh");
    leak.args(["-c", LEAK, "leak"]).arg(&group).stdin(Stdio::null());
    leak.stdout(Stdio::null()).stderr(Stdio::null()).spawn().context("no shell")?.wait()?;
    // The shell that could not go on has left a place.
    fs::write(group.join("pids.max"), number(&group, "pids.current")?.to_string())?;
    Ok(fault)
}

fn number(group: &Path, file: &str) -> Result<u64> {
    let text = fs::read_to_string(group.join(file)).with_context(|| format!("no {file}"))?;
    text.trim().parse().with_context(|| format!("no number in {file}: {text:?}"))
}

/// Those that were started here; the process that was moved is back where it was.
fn kill_all(group: &Path) {
    let processes = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    for pid in processes.lines().filter_map(|line| line.parse().ok()) {
        // SAFETY: no memory is involved.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
}
