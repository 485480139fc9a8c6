//! A container that runc is asked for directly, without containerd: a bundle with the busybox of the lab's image.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::node::Node;
use crate::{host, packages};

/// A bundle in the directory of a lab. Its cgroup lies in the lab's, where the janitor finds what runs in it.
#[derive(Debug)]
pub(super) struct Bundle {
    runc: PathBuf,
    dir: PathBuf,
    root: PathBuf,
    mark: PathBuf,
    id: String,
}

impl Bundle {
    /// Makes the bundle of a container that sleeps, after `change` has changed runc's own default specification.
    pub(super) fn new(
        node: &Node,
        runc: PathBuf,
        name: &str,
        change: impl FnOnce(&mut Value),
    ) -> Result<Bundle> {
        let id = format!("{name}-{}", node.containerd().scratch().id());
        Self::with_id(node, runc, id, change)
    }

    /// The same with an id as runtimes give them, 64 hexadecimal digits: only so its cgroup tells whose it is.
    pub(super) fn of_runtime(node: &Node, runc: PathBuf) -> Result<Bundle> {
        let id = format!("{:0<64}", node.containerd().scratch().id());
        Self::with_id(node, runc, id, |_| {})
    }

    fn with_id(node: &Node, runc: PathBuf, id: String, change: impl FnOnce(&mut Value)) -> Result<Bundle> {
        let scratch = node.containerd().scratch();
        let dir = scratch.path().join("bundles").join(&id);
        for sub in ["bin", "dev", "proc", "sys"] {
            fs::create_dir_all(dir.join("rootfs").join(sub)).context("cannot make a bundle")?;
        }
        let bin = dir.join("rootfs/bin");
        fs::copy(packages::busybox()?, bin.join("busybox")).context("cannot fill a bundle")?;
        symlink("busybox", bin.join("sleep")).context("cannot fill a bundle")?;
        host::run(Command::new(&runc).arg("spec").arg("--bundle").arg(&dir))?;
        let config = dir.join("config.json");
        let text = fs::read_to_string(&config).context("runc wrote no specification")?;
        let mut spec: Value = serde_json::from_str(&text).context("runc wrote a bad specification")?;
        spec["process"]["terminal"] = Value::Bool(false);
        spec["process"]["args"] = json!(["sleep", "100000"]);
        spec["linux"]["cgroupsPath"] = json!(format!("/{}/{id}", scratch.network()));
        change(&mut spec);
        fs::write(&config, spec.to_string()).context("cannot write a specification")?;
        let (root, mark) = (scratch.path().join("runc-alone"), scratch.path().to_owned());
        Ok(Bundle { runc, dir, root, mark, id })
    }

    /// The container's id, also the name of its cgroup.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Where its init waits for the start.
    pub(super) fn fifo(&self) -> PathBuf {
        self.root.join(&self.id).join("exec.fifo")
    }

    /// `runc create` or another command about the container; it carries the lab's mark.
    pub(super) fn command(&self, verb: &str) -> Command {
        let mut command = Command::new(&self.runc);
        // As containerd's shims call it; runc hands its name on to its init.
        command.arg0("runc").arg("--root").arg(&self.root).arg(verb);
        if verb == "create" {
            command.arg("--bundle").arg(&self.dir);
        }
        command.arg(&self.id).env("PLEGTRACE_LAB", &self.mark).current_dir("/");
        command
    }

    /// The same, left behind by whoever started it: the command ends at once and runc goes on.
    pub(super) fn orphan(&self, verb: &str) -> Command {
        let runc = self.command(verb);
        let mut command = Command::new("bash");
        command.arg("-c").arg("exec -a runc \"$0\" \"$@\" </dev/null >/dev/null 2>&1 &");
        command.arg(&self.runc).args(runc.get_args()).env("PLEGTRACE_LAB", &self.mark).current_dir("/");
        command
    }

    /// Removes the container, whatever state it is in, and the bundle.
    pub(super) fn remove(&self) -> Result<()> {
        if self.root.join(&self.id).exists() {
            let mut delete = Command::new(&self.runc);
            delete.arg("--root").arg(&self.root).args(["delete", "--force", &self.id]);
            host::run(&mut delete)?;
        }
        fs::remove_dir_all(&self.dir).context("cannot remove a bundle")
    }
}
