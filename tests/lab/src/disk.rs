//! A disk of its own for what containerd keeps: a file system on a loop device, which the kernel can be asked to throttle.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::host;

/// Enough for the lab's image and the writable layers of its pods.
const BYTES: u64 = 512 << 20;
/// Where version 1 of cgroups takes limits for whole devices.
const WRITES: &str = "/sys/fs/cgroup/blkio/blkio.throttle.write_iops_device";

/// Makes the disk and mounts it where containerd keeps its data in the lab in `dir`; it goes with the mount.
///
/// # Errors
///
/// When the kernel has no loop devices, or ext4 cannot be made.
pub(crate) fn mount(dir: &Path) -> Result<()> {
    let (image, root) = (dir.join("disk"), dir.join("root"));
    let file = File::create(&image).context("cannot make a disk")?;
    file.set_len(BYTES).context("cannot make a disk")?;
    host::run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image)).context("cannot format a disk")?;
    fs::create_dir(&root).context("cannot make a mount point")?;
    host::run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&root))
        .context("cannot mount a disk")?;
    Ok(())
}

/// The device of the disk of the lab in `dir`, as `major:minor`.
///
/// # Errors
///
/// When it has none.
pub fn device(dir: &Path) -> Result<String> {
    let root = dir.join("root");
    let mounts = fs::read_to_string("/proc/self/mountinfo").context("cannot read the mounts")?;
    let mut fields = mounts.lines().map(|line| line.split(' ').skip(2));
    let found = fields.find_map(|mut fields| {
        let device = fields.next()?;
        (fields.nth(1) == root.to_str()).then(|| device.to_owned())
    });
    found.with_context(|| format!("{} is no disk of its own: set Knobs::disk", root.display()))
}

/// Can the kernel throttle a whole device?
#[must_use]
pub fn can_be_throttled() -> bool {
    Path::new(WRITES).exists()
}

/// Lets a device do so many writes a second; 0 is as many as it can.
///
/// # Errors
///
/// When the kernel does not want to.
pub fn throttle(device: &str, writes: u32) -> Result<()> {
    fs::write(WRITES, format!("{device} {writes}")).context("cannot throttle a disk")
}
