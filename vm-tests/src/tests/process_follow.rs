//! Birth, change of program and end of a watched process's children are recorded with role and wait status.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, id};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use plegtrace::decode::{Event, Process, Step, decode};
use plegtrace::input::next_frame;
use plegtrace::kernel::{AttachMode, Kernel};
use plegtrace_common::key::Watched;
use plegtrace_common::role::Role;

use crate::machine;

/// Plays a containerd that starts a helper, which fails, and a runc, which is killed.
///
/// # Errors
/// When a step is missing, doubled or wrong.
pub fn run() -> Result<String> {
    let runc = copy_as_runc()?;
    let mut kernel = Kernel::load(&machine::load_options(AttachMode::PerfAddress)?)?;
    kernel.watch(id(), Watched { role: Role::Containerd as u32, parent_role: 0 })?;
    let mut helper = Command::new("/bin/sh").args(["-c", "exit 7"]).spawn().context("cannot start sh")?;
    helper.wait()?;
    let mut killed = Command::new(&runc).arg("600").spawn().context("cannot start runc")?;
    killed.kill()?;
    killed.wait()?;
    fs::remove_file(&runc)?;

    let seen = steps(&mut kernel)?;
    let born = (Step::Fork, Role::Helper, Role::Containerd);
    check(&seen, &helper, [born, (Step::Exec, Role::Helper, Role::Helper), exit(7 << 8, Role::Helper)])?;
    check(&seen, &killed, [born, (Step::Exec, Role::Runc, Role::Helper), exit(9, Role::Runc)])?;
    ensure!(seen.len() == 6, "{} steps, not 6: {seen:?}", seen.len());
    Ok("fork, exec and exit of a helper (exit 7) and of a runc (signal 9)".to_owned())
}

/// The kernel side knows runc by the name of its file. Not in `/run`, where some guests allow no programs.
fn copy_as_runc() -> Result<std::path::PathBuf> {
    let path = Path::new("/var/tmp").join("runc");
    fs::copy("/bin/sleep", &path).context("cannot copy sleep")?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(path)
}

fn steps(kernel: &mut Kernel) -> Result<Vec<Process>> {
    let mut events = Vec::new();
    kernel.drain(&mut |mut bytes: Bytes| {
        events.push(next_frame(&mut bytes).context("no record").and_then(|frame| Ok(decode(&frame)?)));
    });
    let events: Vec<Event> = events.into_iter().collect::<Result<_>>()?;
    Ok(events
        .into_iter()
        .filter_map(|event| if let Event::Process(process) = event { Some(process) } else { None })
        .collect())
}

fn exit(status: u32, role: Role) -> (Step, Role, Role) {
    (Step::Exit(status), role, role)
}

fn check(seen: &[Process], child: &Child, expected: [(Step, Role, Role); 3]) -> Result<()> {
    let mine: Vec<&Process> = seen.iter().filter(|step| step.meta.tgid == child.id()).collect();
    let got: Vec<(Step, Role, Role)> = mine.iter().map(|s| (s.step, s.role, s.old_role)).collect();
    ensure!(got == expected, "of process {} we saw {got:?}, not {expected:?}", child.id());
    ensure!(mine[0].parent == Some(id()), "its parent is {:?}, not {}", mine[0].parent, id());
    Ok(())
}
