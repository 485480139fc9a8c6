//! Containers of the guest's own containerd whose runc leaves their cgroups to systemd, as on most nodes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::wait::{self, BUDGET};

/// What runs in them.
pub(crate) const PROGRAM: &str = "/bin/sleep";
/// The kubelet's namespace of containerd.
const NAMESPACE: &str = "k8s.io";

/// A root file system with one program in it. Removed when dropped.
#[derive(Debug)]
pub struct Rootfs(PathBuf);

impl Rootfs {
    /// Makes it.
    ///
    /// # Errors
    /// When the program or one of its libraries cannot be copied.
    pub fn make() -> Result<Self> {
        Self::make_in(Path::new("/var/tmp"))
    }

    /// The same in this folder.
    ///
    /// # Errors
    /// As [`Self::make`].
    pub fn make_in(folder: &Path) -> Result<Self> {
        let root = folder.join("plegtrace-rootfs");
        let libraries = wait::output(Command::new("ldd").arg(PROGRAM), BUDGET)?;
        let libraries = libraries.split_whitespace().filter(|word| word.starts_with('/'));
        for file in libraries.chain([PROGRAM]) {
            let to = root.join(&file[1..]);
            fs::create_dir_all(to.parent().context("a file has a folder")?)?;
            fs::copy(file, &to).with_context(|| format!("cannot copy {file}"))?;
        }
        for folder in ["proc", "sys", "dev", "run", "etc", "tmp"] {
            fs::create_dir_all(root.join(folder))?;
        }
        Ok(Self(root))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Rootfs {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// A container. Removed when dropped, if it was not before.
#[derive(Debug)]
pub struct Container {
    id: String,
    /// What asks containerd to start it, until that has happened.
    starting: Option<Child>,
    is_removed: bool,
}

impl Container {
    /// Asks for one, and does not wait until it runs.
    ///
    /// # Errors
    /// When nobody can be asked.
    pub fn ask(rootfs: &Rootfs, id: &str) -> Result<Self> {
        Self::ask_with(rootfs, id, &[])
    }

    /// The same with more options of `ctr run`.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub fn ask_with(rootfs: &Rootfs, id: &str, options: &[&str]) -> Result<Self> {
        let mut command = ctr();
        command.args(["run", "--detach", "--rootfs", "--runc-systemd-cgroup"]);
        command.args(["--cgroup", &format!("system.slice:plegtrace:{id}")]);
        command.args(options).arg(&rootfs.0).args([id, PROGRAM, "1000"]);
        let starting = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().context("no ctr")?;
        Ok(Self { id: id.to_owned(), starting: Some(starting), is_removed: false })
    }

    /// Waits until it runs.
    ///
    /// # Errors
    /// When it does not.
    pub fn started(&mut self) -> Result<()> {
        let Some(mut child) = self.starting.take() else { return Ok(()) };
        let status = wait::until("the container to run", BUDGET, || Ok(child.try_wait()?))?;
        ensure!(status.success(), "ctr ended with {status}");
        let scope = format!("/sys/fs/cgroup/system.slice/plegtrace-{}.scope", self.id);
        ensure!(Path::new(&scope).is_dir(), "systemd has made no {scope}");
        Ok(())
    }

    /// Kills and removes it.
    ///
    /// # Errors
    /// When containerd does not.
    pub fn remove(mut self) -> Result<()> {
        wait::output(ctr().args(["task", "kill", "--signal", "SIGKILL", &self.id]), BUDGET)?;
        wait::until("the container to end", BUDGET, || {
            let deleted = ctr().args(["task", "delete", &self.id]).stderr(Stdio::null()).status()?;
            Ok(deleted.success().then_some(()))
        })?;
        wait::output(ctr().args(["container", "delete", &self.id]), BUDGET)?;
        self.is_removed = true;
        Ok(())
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        if self.is_removed {
            return;
        }
        // Still here after a failed test: it must not be in the way of the next one, be there a task of it or not.
        if let Some(mut child) = self.starting.take() {
            drop(child.kill());
            drop(child.wait());
        }
        let words: [&[&str]; 2] = [&["task", "delete", "--force"], &["container", "delete"]];
        for words in words {
            drop(wait::output(ctr().args(words).arg(&self.id), BUDGET));
        }
    }
}

/// Its own client, in the namespace of the kubelet.
pub(crate) fn ctr() -> Command {
    let mut command = Command::new("ctr");
    command.args(["--namespace", NAMESPACE]);
    command
}
