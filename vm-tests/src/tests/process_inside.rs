//! What lives in a container is nobody's helper, whichever runtime has made it: its first process is the workload, and what that
//! starts is not followed. Below a shim nothing is a CNI plugin, and no environment leaves the kernel, whatever it says.

use std::process::{Command, id};

use anyhow::{Context as _, Result, ensure};
use plegtrace::decode::{Process, Step};
use plegtrace::kernel::{AttachMode, Kernel, LoadOptions};
use plegtrace_common::key::Watched;
use plegtrace_common::role::Role;
use plegtrace_common::settings::KernelSettings;

use super::process_follow::Seen;
use super::process_names::namespace;
use crate::machine;

/// In the environment of the container.
const SECRET: &str = "f3a90c1d-of-a-container";

/// Plays a shim with a runtime that no name tells, `unshare`: a container in a pid namespace of its own, one that has only mounts of
/// its own, as with `hostPID`, and a command that stays where the node is.
///
/// # Errors
/// When something in a container is followed, or taken for a plugin.
pub fn run() -> Result<String> {
    let options = machine::load_options(AttachMode::PerfAddress)?;
    let settings = KernelSettings { node_pid_ns: namespace()?, ..options.settings };
    let mut kernel = Kernel::load(&LoadOptions { settings, ..options })?;
    kernel.watch(id(), Watched::found(Role::Shim))?;
    let script = |code: i32| format!("/bin/false; exit {code}");
    for (namespaces, code) in [(&["--pid", "--fork"][..], 21), (&["--mount"], 22)] {
        run_as_pod(Command::new("unshare").args(namespaces).args(["/bin/sh", "-c", &script(code)]), code)?;
    }
    let nested = format!("/bin/sh -c '{}'; exit 24", script(23));
    run_as_pod(Command::new("/bin/sh").args(["-c", &nested]), 24)?;
    let seen = Seen::take(&mut kernel)?;
    ensure!(!seen.contains(SECRET), "the environment of a container left the kernel");
    let role = |code: i32| ended(&seen, code).map(|process| process.role);
    ensure!(role(21)? == Role::Workload, "in a pid namespace of its own: {:?}", ended(&seen, 21)?);
    ensure!(role(22)? == Role::Workload, "with mounts of its own: {:?}", ended(&seen, 22)?);
    ensure!(role(23)? == Role::Helper, "where the node is: {:?}", ended(&seen, 23)?);
    let followed: Vec<&Process> =
        seen.steps.iter().filter(|step| step.step == Step::Exec && step.comm == "false").collect();
    let [only] = followed[..] else { anyhow::bail!("what containers start is followed: {followed:?}") };
    ensure!(only.parent == Some(ended(&seen, 23)?.meta.tgid), "of a container: {only:?}");
    Ok("two containers of a runtime without a name, and a helper with CNI_COMMAND below a shim".to_owned())
}

/// Runs a command as a runtime does for a pod that has set what a CNI plugin is told.
fn run_as_pod(command: &mut Command, code: i32) -> Result<()> {
    let command = command.env("CNI_COMMAND", "ADD").env("ZZ", SECRET);
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    ensure!(status.code() == Some(code), "{command:?} ended with {status}");
    Ok(())
}

/// The program that was what ended with this code: of a chain of them the first.
fn ended(seen: &Seen, code: i32) -> Result<&Process> {
    let ends = Step::Exit((code as u32) << 8);
    seen.steps.iter().find(|step| step.step == ends).with_context(|| format!("nothing ended with {code}"))
}
