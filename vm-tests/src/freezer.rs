//! The freezer of version 1 of cgroups, which can freeze a single thread.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::wait::{self, BUDGET};

/// Version 2 is where cgroups belong, so it is mounted beside them.
const MOUNT: &str = "/var/tmp/plegtrace-freezer";
const STATE: &str = "freezer.state";

/// Where it is mounted. Unmounted when dropped.
#[derive(Debug)]
pub struct Hierarchy(());

impl Hierarchy {
    /// Mounts it.
    ///
    /// # Errors
    /// When the kernel does not have it.
    pub fn mount() -> Result<Self> {
        fs::create_dir_all(MOUNT)?;
        let mut mount = Command::new("mount");
        wait::output(mount.args(["-t", "cgroup", "-o", "freezer", "freezer", MOUNT]), BUDGET)?;
        Ok(Self(()))
    }

    /// A new cgroup.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn group(&self, name: &str) -> Result<Group> {
        let group = Group(Path::new(MOUNT).join(name));
        fs::create_dir(&group.0).with_context(|| format!("cannot make {}", group.0.display()))?;
        Ok(group)
    }
}

impl Drop for Hierarchy {
    fn drop(&mut self) {
        drop(wait::output(Command::new("umount").arg(MOUNT), BUDGET));
    }
}

/// A cgroup of it.
#[derive(Clone, Debug)]
pub struct Group(PathBuf);

impl Group {
    /// Takes a whole process in.
    ///
    /// # Errors
    /// When the kernel does not want to.
    pub fn admit_process(&self, pid: u32) -> Result<()> {
        self.write("cgroup.procs", &pid.to_string())
    }

    /// Takes one thread in.
    ///
    /// # Errors
    /// When the kernel does not want to.
    pub fn admit_thread(&self, tid: u32) -> Result<()> {
        self.write("tasks", &tid.to_string())
    }

    /// Freezes what is in it, and does not wait until it is frozen.
    ///
    /// # Errors
    /// When the kernel does not want to.
    pub fn begin_freezing(&self) -> Result<()> {
        self.write(STATE, "FROZEN")
    }

    /// Waits until it is in this state.
    ///
    /// # Errors
    /// When it does not come to it.
    pub fn is(&self, state: &str) -> Result<()> {
        wait::until(state, BUDGET, || {
            let now = fs::read_to_string(self.0.join(STATE))?;
            Ok((now.trim() == state).then_some(()))
        })
    }

    /// Ends that.
    ///
    /// # Errors
    /// When the kernel does not want to.
    pub fn thaw(&self) -> Result<()> {
        self.write(STATE, "THAWED")
    }

    /// Removes it once nothing is in it.
    ///
    /// # Errors
    /// When something stays.
    pub fn remove(&self) -> Result<()> {
        wait::until("an empty cgroup", BUDGET, || Ok(Some(fs::remove_dir(&self.0)?)))
    }

    fn write(&self, file: &str, text: &str) -> Result<()> {
        let file = self.0.join(file);
        fs::write(&file, text).with_context(|| format!("cannot write {text} to {}", file.display()))
    }
}
