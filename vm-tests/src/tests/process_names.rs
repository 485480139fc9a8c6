//! A program named like a component is followed when it starts where the node's components are, and not when it starts in
//! a container, where another node may be, or anything with any name.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, id};

use anyhow::{Context as _, Result, ensure};
use plegtrace::decode::Step;
use plegtrace::kernel::{AttachMode, Kernel, LoadOptions};
use plegtrace_common::role::Role;
use plegtrace_common::settings::{KernelSettings, NAMES_OF_ALL, NAMES_OF_ROOT};

use super::process_follow::{Seen, copy_as_runc};
use crate::machine;

/// A user who is not root.
const NOBODY: u32 = 65_534;

/// Starts a runc that nobody watched is the parent of, once beside us and once in a pid namespace of its own, where the
/// node is said to be here, there, or nowhere in particular.
///
/// # Errors
/// When one is followed that should not be, or the other way round.
pub fn run() -> Result<String> {
    let here = namespace()?;
    let (both, outer) = (vec![true, true], vec![true, false]);
    let cases = [
        (0, both, "nowhere in particular"),
        (here, outer, "here"),
        (here - 1, vec![false, false], "elsewhere"),
    ];
    let runc = copy_as_runc()?;
    for (node_pid_ns, want, place) in cases {
        let followed = |by| followed(&runc, node_pid_ns, NAMES_OF_ROOT, by);
        let followed = [followed(By::Root)?, followed(By::Container)?];
        ensure!(
            followed == want[..],
            "the node is {place}: beside us and in a container, followed: {followed:?}"
        );
    }
    for (names, want) in [(NAMES_OF_ROOT, false), (NAMES_OF_ALL, true), (0, false)] {
        let followed = followed(&runc, 0, names, By::Nobody)?;
        ensure!(followed == want, "names {names}: another user's is followed: {followed}");
    }
    fs::remove_file(&runc)?;
    Ok("a runc by its name, beside us, in another pid namespace, and of another user".to_owned())
}

/// Who starts a runc.
#[derive(Clone, Copy)]
enum By {
    Root,
    /// Root, in a pid namespace of its own.
    Container,
    Nobody,
}

/// Is a runc followed that is started so?
fn followed(runc: &Path, node_pid_ns: u32, watch_by_name: u32, by: By) -> Result<bool> {
    let options = machine::load_options(AttachMode::PerfAddress)?;
    let settings = KernelSettings { watch_by_name, node_pid_ns, ..options.settings };
    let mut kernel = Kernel::load(&LoadOptions { settings, ..options })?;
    let mut command = Command::new(if matches!(by, By::Container) { Path::new("unshare") } else { runc });
    match by {
        By::Root => {}
        By::Container => drop(command.args(["--pid", "--fork"]).arg(runc)),
        By::Nobody => drop(command.uid(NOBODY).gid(NOBODY)),
    }
    let status = command.args(["-c", "exit 3"]).status().context("cannot start a runc")?;
    ensure!(status.code() == Some(3), "runc ended with {status}");
    let seen = Seen::take(&mut kernel)?;
    // Others of this guest may start a runc as well: ours has no arguments of one.
    let ours = seen.steps.iter().filter(|step| step.role == Role::Runc && step.step == Step::Exit(3 << 8));
    Ok(ours.count() > 0)
}

/// The pid namespace of this process.
pub(crate) fn namespace() -> Result<u32> {
    let link = fs::read_link(format!("/proc/{}/ns/pid", id())).context("no pid namespace")?;
    let text = link.to_string_lossy();
    let number = text.trim_start_matches("pid:[").trim_end_matches(']');
    number.parse().with_context(|| format!("no number in {text}"))
}
