//! [`Generations`]: kubelet and containerd of a node, each replaced by a copy of itself again and again.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result};
use plegtrace::input::Component;
use plegtrace_lab::Node;
use plegtrace_lab::process::{self, Process};

use super::LIMIT;

/// A daemon that ran, or runs still.
#[derive(Clone, Debug)]
pub struct Generation {
    /// What it is.
    pub component: Component,
    /// Its process.
    pub pid: u32,
    /// Relists that it had counted itself when it ended; 0 for containerd.
    pub relists: f64,
    /// When it ended; the last ones when the observation did.
    pub ended: Instant,
}

/// The daemons of a node, and those that ran before.
#[derive(Debug)]
pub struct Generations<'a> {
    node: &'a Node,
    /// Where the copies are: a directory for each component, the file in it replaced each time.
    dir: tempfile::TempDir,
    ended: Vec<Generation>,
    /// What the last sweep saw of containers that were not started yet.
    half_made: Vec<Process>,
}

impl<'a> Generations<'a> {
    pub(super) fn begin(node: &'a Node) -> Result<Generations<'a>> {
        Ok(Generations { node, dir: tempfile::tempdir()?, ended: Vec::new(), half_made: Vec::new() })
    }

    /// Replaces the kubelet or containerd, whose turn it is, by a copy in a new file, and waits until it serves.
    pub(super) fn replace_next(&mut self) -> Result<()> {
        let (kubelet, containerd) = (self.node.kubelet(), self.node.containerd());
        if self.ended.len().is_multiple_of(2) {
            let copy = self.fresh_copy(containerd.program())?;
            let pid = containerd.pid();
            containerd.daemon().kill()?;
            self.ended.push(Generation {
                component: Component::Containerd,
                pid,
                relists: 0.0,
                ended: Instant::now(),
            });
            containerd.daemon().restart_from(&copy)?;
            let serves = || Ok(containerd.client().version(LIMIT).ok());
            process::wait_for("the new containerd's CRI", LIMIT, serves).map(drop)
        } else {
            let copy = self.fresh_copy(kubelet.program())?;
            let (pid, relists) = (kubelet.pid(), self.node.relists()?);
            kubelet.daemon().kill()?;
            self.ended.push(Generation {
                component: Component::Kubelet,
                pid,
                relists,
                ended: Instant::now(),
            });
            kubelet.daemon().restart_from(&copy)?;
            process::wait_for("the new kubelet", LIMIT, || Ok(kubelet.healthz(LIMIT).ok()))?;
            process::wait_for("its relists", LIMIT, || {
                Ok(self.node.relists().is_ok_and(|n| n >= 2.0).then_some(()))
            })
        }
    }

    /// Removes what is left of pods that have gone. A kubelet does so each minute, but not at its start: replaced twice a
    /// minute it never would, and each relist after a restart would ask for all that ever was on its node.
    pub(super) fn sweep(&mut self) -> Result<()> {
        self.end_half_made()?;
        let client = self.node.containerd().client();
        let sandboxes = client.list_pod_sandbox(LIMIT).context("no list of sandboxes")?;
        for gone in sandboxes.iter().filter(|sandbox| !sandbox.is_ready()) {
            let stopped = client.stop_pod_sandbox(&gone.id, LIMIT);
            // The kubelet may be about to remove it as well: what fails here is tried again after the next restart.
            let _ = stopped.and_then(|()| client.remove_pod_sandbox(&gone.id, LIMIT));
        }
        Ok(())
    }

    /// Ends each `runc init` that the last sweep has seen too. Its containerd was killed between create and start, and the
    /// next one never starts it: a true U2, and not what is measured here.
    fn end_half_made(&mut self) -> Result<()> {
        for init in self.half_made.drain(..) {
            if is_init(init.pid()) {
                init.kill(LIMIT)?;
            }
        }
        let containers =
            self.node.containerd().client().list_containers(LIMIT).context("no list of containers")?;
        let of_node = |pid: &u32| {
            let cgroups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
            is_init(*pid) && containers.iter().any(|container| cgroups.contains(&container.id))
        };
        self.half_made = process::all().into_iter().filter(of_node).filter_map(Process::running).collect();
        Ok(())
    }

    /// All of them, at the end.
    pub(super) fn end(self) -> Result<Vec<Generation>> {
        let mut all = self.ended;
        let (kubelet, containerd) = (self.node.kubelet().pid(), self.node.containerd().pid());
        let relists = self.node.relists()?;
        let ended = Instant::now();
        all.push(Generation { component: Component::Kubelet, pid: kubelet, relists, ended });
        all.push(Generation { component: Component::Containerd, pid: containerd, relists: 0.0, ended });
        Ok(all)
    }

    /// The program in a new file, which takes the place of the one before it: whoever runs that runs a file without a
    /// name, as after an upgrade.
    fn fresh_copy(&self, program: &Path) -> Result<PathBuf> {
        let name = program.file_name().context("a program without a name")?;
        let copy = self.dir.path().join(name);
        let new = self.dir.path().join("new");
        std::fs::copy(program, &new).context("cannot copy a program")?;
        std::fs::rename(&new, &copy).context("cannot replace a program")?;
        Ok(copy)
    }
}

/// Is this a container before its program?
fn is_init(pid: u32) -> bool {
    process::arguments(pid) == ["runc", "init"]
}
