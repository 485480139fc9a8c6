//! A container that has written much ends, and its upper directory is on a slow disk: the real shim waits in umount2, in which the
//! kernel writes the whole file system first, and plegtrace says so.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use plegtrace::cli::Settings;
use plegtrace::diagnose::{Confidence, diagnose};

use crate::container::{PROGRAM, Rootfs, ctr};
use crate::images::Images;
use crate::observation::Observation;
use crate::stall::{self, WATCHDOG};
use crate::undo::Undo;
use crate::wait::{self, BUDGET};

/// The third disk of the guest, which QEMU holds back: two writes and a mebibyte a second.
const SLOW: &str = "/dev/vdc";
const LAYERS: &str = "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots";
const WRITTEN: usize = 48 << 20;
const ID: &str = "writer";
/// Looks follow each other within three seconds, and the unmount counts from the fifth.
const OBSERVED: Duration = Duration::from_secs(12);

/// Ends the container, and observes when its shim unmounts its root.
///
/// # Errors
/// When the shim is not named, or something else is.
pub fn run() -> Result<String> {
    let on_slow_disk = layers_on_slow_disk()?;
    let rootfs = Rootfs::make()?;
    let image = Images::with_files(rootfs.path())?;
    let run = ["run", "--detach", "--snapshotter", "overlayfs", &image.names()[0], ID, PROGRAM, "1000"];
    wait::output(ctr().args(run), BUDGET)?;
    let (shim, deletes) = unmounting()?;
    let settings = Settings { wire: false, duration: OBSERVED, to_the_end: true, ..stall::settings() };
    let snapshot = Observation::begin_with(settings)?.ended()?;
    ensure!(unmounts(shim), "the unmount was over too soon");
    deleted(deletes)?;
    drop((image, on_slow_disk));

    let diagnosis = diagnose(&snapshot);
    let named = stall::named(&diagnosis);
    ensure!(named == [("R3", Some(shim), Confidence::High)], "named {named:?}; {:?}", snapshot.census);
    let finding = &diagnosis.findings[0];
    let container = finding.culprit.as_ref().and_then(|culprit| culprit.container.as_ref());
    ensure!(container.is_some_and(|container| container.id == ID), "whose root it is: {finding:?}");
    let kernel = finding.evidence.iter().map(|seen| &seen.text).find(|text| text.contains("ovl_sync_fs"));
    kernel.cloned().context("no kernel stack is told")
}

/// Has containerd make its layers on the slow disk until what is returned is dropped. Nothing but them is to be written.
fn layers_on_slow_disk() -> Result<Undo> {
    fs::create_dir_all(LAYERS)?;
    let options = "noatime,noinit_itable";
    wait::output(Command::new("mount").args(["-o", options, SLOW, LAYERS]), BUDGET)?;
    Ok(Undo::within(3 * WATCHDOG, "layers were on a slow disk", || {
        drop(wait::output(Command::new("umount").args(["-l", LAYERS]), BUDGET));
    }))
}

/// The shim that unmounts the root of the container, which has just written a large file, and who has asked for it.
fn unmounting() -> Result<(u32, Child)> {
    let list = wait::output(ctr().args(["task", "list"]), BUDGET)?;
    let line = list.lines().find_map(|line| line.strip_prefix(ID)).context("the container does not run")?;
    let init = line.split_whitespace().next().context("no process")?;
    let status = fs::read_to_string(format!("/proc/{init}/status"))?;
    let shim = status.lines().find_map(|line| line.strip_prefix("PPid:")).context("it has no parent")?;
    let shim: u32 = shim.trim().parse()?;
    fs::write(format!("/proc/{init}/root/written"), vec![1; WRITTEN]).context("cannot write for it")?;
    wait::output(ctr().args(["task", "kill", "--signal", "SIGKILL", ID]), BUDGET)?;
    let ended = || Ok((!Path::new("/proc").join(init).exists()).then_some(()));
    wait::until("the container to end", BUDGET, ended)?;
    let deletes = ctr().args(["task", "delete", ID]).stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
    wait::until("the shim to unmount", BUDGET, || Ok(unmounts(shim).then_some(())))?;
    Ok((shim, deletes))
}

/// Is a thread of this process in umount2?
fn unmounts(pid: u32) -> bool {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let number = format!("{} ", libc::SYS_umount2);
    let call = |task: fs::DirEntry| fs::read_to_string(task.path().join("syscall")).unwrap_or_default();
    tasks.map(call).any(|call| call.starts_with(&number))
}

/// Waits for the end of the unmount, and removes what is left.
fn deleted(mut deletes: Child) -> Result<()> {
    wait::until("the unmount to end", 2 * BUDGET, || Ok(deletes.try_wait()?))?;
    wait::output(ctr().args(["container", "delete", ID]), BUDGET).map(drop)
}
