//! A shim with the bug of containerd 1.7.7 ([`crate::rebuilt::self_locking_shim`]): the first process of a container dies while the
//! shim creates it, and the shim waits for itself (S7).

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use super::extra;
use super::gated::{LONG, gates, hook_in};
use super::guard::{BLOCKED_AFTER, EFFECT_LIMIT, Facts, Fault, HANGING};
use super::stopped::stop_process;
use crate::cri::{Call, Pod};
use crate::gate::{self, Order, Place};
use crate::knobs::ShimBuild;
use crate::node::Node;
use crate::process::{self, Process};

/// So long after both ends the shim must be silent, and so often it is tried.
const SILENT_WITHIN: Duration = Duration::from_secs(8);
const TRIES: u32 = 4;

/// A container of its own in the sandbox of `pod`, whose first process is killed between the end of `runc create` and the moment at
/// which the shim takes note of it: the shim is stopped meanwhile. Its StartContainer hangs, and whatever is asked of this shim. The
/// pod goes with its shim when it is healed; the kubelet starts it anew.
///
/// # Errors
///
/// When the node has other shims or no gates, or the shim answers still.
pub fn self_locked_shim(node: &Node, pod: &Pod) -> Result<Fault> {
    for _ in 0..TRIES {
        if let Some(fault) = attempt(node, pod)? {
            return Ok(fault);
        }
    }
    bail!("{TRIES} times the shim went on after an early exit")
}

/// `None`: the shim answers still. It has two goroutines for the two ends, and on a busy machine that of the create may come first.
fn attempt(node: &Node, pod: &Pod) -> Result<Option<Fault>> {
    let (dir, containerd) = (gates(node)?, node.containerd());
    let knobs = containerd.knobs();
    ensure!(knobs.shim == ShimBuild::SelfLocking, "the node's shims lock nobody out: set Knobs::shim");
    let client = containerd.client();
    let shim = Process::running(containerd.shim_of(&pod.sandbox)?).context("the shim has ended")?;
    let container = extra::create(node, pod, "early", None)?;
    let guard = Fault::new(Facts::default()).cleaned_by(extra::removal(client, &container));
    let file =
        gate::close(dir, Place::CreateRuntime, &container, &Order::Take(Duration::from_secs(LONG.into())))?;
    let open = file.clone();
    let guard = guard.healed_by(move || {
        // It may be open already.
        let _ = fs::remove_file(open);
        Ok(())
    });
    let id = container.clone();
    let call = Call::start(client, "StartContainer", move |client| client.start_container(&id, HANGING))?;
    let guard = guard.holding(call);
    let (hook, runc) = process::wait_for("a sleeping hook below runc", EFFECT_LIMIT, || {
        Ok(hook_in(dir, &container, libc::SYS_clock_nanosleep))
    })?;
    let init = process::all()
        .into_iter()
        .find(|pid| process::parent(*pid) == Some(runc) && *pid != hook.pid())
        .context("runc has no init")?;
    let (victims, culprits) = (vec![init], vec![shim.pid()]);
    let ids = vec![pod.sandbox.clone(), container];
    let facts = Facts { victims, culprits, pod: pod.name.clone(), ids, ..Facts::default() };
    let guard = guard.with(facts);

    let stopped = stop_process(shim.pid())?;
    fs::remove_file(file).context("cannot open the gate again")?;
    wait_for_state("the end of runc create", runc, Some('Z'))?;
    process::signal(init, libc::SIGKILL)?;
    wait_for_state("the end of the container's process", init, Some('Z'))?;
    drop(stopped);
    wait_for_state("a shim that has seen that end", init, None)?;
    let pods = pod.container.clone();
    let silent = process::wait_for("a shim that does not answer", SILENT_WITHIN, || {
        Ok(client.container_stats(&pods, BLOCKED_AFTER).is_err_and(|error| error.is_deadline()).then_some(()))
    });
    Ok(silent.is_ok().then(|| guard.healed_by_killing(vec![shim])))
}

/// Waits until a process is in a state; `None`: gone.
fn wait_for_state(what: &str, pid: u32, state: Option<char>) -> Result<()> {
    process::wait_for(what, EFFECT_LIMIT, || Ok((process::state(pid) == state).then_some(())))
}
