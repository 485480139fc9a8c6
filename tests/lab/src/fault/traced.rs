//! A process that traces the first process of a container (ptrace) and never asks how it ended: the kernel tells the shim
//! nothing (S11).

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result};

use super::extra;
use super::guard::{EFFECT_LIMIT, Facts, Fault, HANGING};
use crate::cri::{Call, Pod};
use crate::node::Node;
use crate::process::{self, Process};

/// A container of its own in the sandbox of `pod` whose first process is traced by one that sleeps, and is then killed: it
/// stays a zombie, and its StopContainer hangs. The shim is as it was.
///
/// # Errors
///
/// When the container cannot be made or traced, or its process does not stay a zombie.
pub fn traced_exit(node: &Node, pod: &Pod) -> Result<Fault> {
    let client = node.containerd().client();
    let (container, init, guard) = extra::started(node, pod, "traced")?;
    let tracer = Tracer::of(node, init)?;
    let culprit = tracer.pid()?;
    let guard = guard.healed_by(move || tracer.end());
    process::signal(init, libc::SIGKILL)?;
    process::wait_for("a zombie", EFFECT_LIMIT, || Ok((process::state(init) == Some('Z')).then_some(())))?;
    let id = container.clone();
    let call =
        Call::start(client, "StopContainer", move |client| client.stop_container(&id, HANGING, HANGING))?;
    let ids = vec![pod.sandbox.clone(), container];
    let facts = Facts {
        victims: vec![init],
        culprits: vec![culprit],
        pod: pod.name.clone(),
        ids,
        ..Facts::default()
    };
    Ok(guard.with(facts).holding(call))
}

/// `sleep`, which traces a process because it did so before it became `sleep`.
#[derive(Debug)]
struct Tracer(Child);

impl Tracer {
    fn of(node: &Node, pid: u32) -> Result<Tracer> {
        let traced = libc::pid_t::try_from(pid).context("a process number is too large")?;
        let mut command = Command::new("sleep");
        command.arg("100000").env("PLEGTRACE_LAB", node.containerd().scratch().path()).current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // SAFETY: ptrace is a system call, and with PTRACE_SEIZE it takes nothing from our memory.
        unsafe {
            command.pre_exec(move || match libc::ptrace(libc::PTRACE_SEIZE, traced, 0, 0) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            });
        }
        Ok(Tracer(command.spawn().with_context(|| format!("cannot trace process {pid}"))?))
    }

    fn pid(&self) -> Result<u32> {
        Ok(Process::running(self.0.id()).context("the tracer has ended")?.pid())
    }

    /// The kernel lets go of what it traced, and tells its parent.
    fn end(mut self) -> Result<()> {
        self.0.kill().context("cannot end the tracer")?;
        process::wait(&mut self.0, EFFECT_LIMIT).map(drop)
    }
}
