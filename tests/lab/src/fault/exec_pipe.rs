//! ExecSync whose command has ended, but left a child that keeps its output open (R8): the runtime waits for the end of
//! the output, not of the command.

use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result, ensure};

use super::guard::{EFFECT_LIMIT, Facts, Fault, HANGING};
use crate::cri::{Call, Pod};
use crate::node::Node;
use crate::process::{self, Process};

/// Runs `sh -c 'sleep … & exit 0'` in `pod` and waits until the shell is gone and the sleeper holds the pipe. No option
/// of the runtime bounds the wait (`drain_exec_sync_io_timeout` of 1.7 is off by default).
///
/// # Errors
///
/// When the sleeper is not seen, or the call is answered all the same.
pub fn exec_pipe_held(node: &Node, pod: &Pod) -> Result<Fault> {
    // A number that nobody else sleeps for tells our sleeper from others.
    static SECONDS: AtomicU32 = AtomicU32::new(900_000);
    let seconds = SECONDS.fetch_add(1, Ordering::Relaxed).to_string();
    let (container, script) = (pod.container.clone(), format!("sleep {seconds} & exit 0"));
    let mut call = Call::start(node.containerd().client(), "ExecSync", move |client| {
        client.exec_sync(&container, &["sh", "-c", &script], HANGING).map(drop)
    })?;
    let sleeper = process::wait_for("a sleeper whose shell has ended", EFFECT_LIMIT, || {
        let inside = process::in_cgroup(&pod.container);
        let mut sleepers = inside.iter().filter(|&&pid| process::arguments(pid) == ["sleep", &seconds]);
        // The first process of the container inherits it. (The shim is the parent of the command itself.)
        let is_orphan = |pid: &&u32| process::parent(**pid).map(process::name).as_deref() == Some("pause");
        Ok(sleepers.find(is_orphan).copied())
    })?;
    ensure!(call.is_pending(), "ExecSync was answered: {:?}", call.wait(EFFECT_LIMIT));
    let sleeper = Process::running(sleeper).context("the sleeper has ended")?;
    let facts = Facts {
        culprits: vec![sleeper.pid()],
        pod: pod.name.clone(),
        ids: vec![pod.sandbox.clone(), pod.container.clone()],
        path: process::descriptor(sleeper.pid(), 1).map(Into::into),
        ..Facts::default()
    };
    Ok(Fault::new(facts).holding(call).healed_by_killing(vec![sleeper]))
}
