//! A `runc init` that never becomes its container: the genuine rc93 blocked on its own pipe (U1), or one that waits at
//! exec.fifo for a `runc start` that never comes (U2).

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::bundle::Bundle;
use super::extra;
use super::guard::{EFFECT_LIMIT, Facts, Fault, HANGING};
use crate::cri::{Call, Pod};
use crate::node::Node;
use crate::process::{self, Process};
use crate::{host, rc93};

/// For the large filter to be computed: 4 s on an idle machine.
const COMPUTE_LIMIT: Duration = Duration::from_secs(120);

/// The `runc init` in the cgroup of a container.
fn init_of(container: &str) -> Option<u32> {
    process::in_cgroup(container).into_iter().find(|&pid| process::arguments(pid) == ["runc", "init"])
}

/// The pipe that a thread of `pid` writes to while the process holds both of its ends.
fn own_pipe(pid: u32) -> Option<String> {
    let all = process::descriptors(pid);
    process::blocked_threads(pid).into_iter().filter(|thread| thread.syscall == libc::SYS_write).find_map(
        |thread| {
            let pipe =
                process::descriptor(pid, thread.argument).filter(|target| target.starts_with("pipe:"))?;
            (all.iter().filter(|&target| *target == pipe).count() == 2).then_some(pipe)
        },
    )
}

fn wait_for_own_pipe(container: &str) -> Result<(Process, String)> {
    process::wait_for("a runc init that is blocked on its own pipe", COMPUTE_LIMIT, || {
        let Some(init) = init_of(container) else { return Ok(None) };
        Ok(own_pipe(init).zip(Process::running(init)).map(|(pipe, init)| (init, pipe)))
    })
}

/// A container in the sandbox of `pod` with a large seccomp profile, on a node whose runc is the genuine rc93
/// ([`crate::Knobs::rc93`]): its StartContainer hangs, with shim, `runc create` and `runc init` behind it. No signal
/// must be sent to that init: one lets it go on. So the healing ends it.
///
/// # Errors
///
/// When the node has another runc, or the init does not hang.
pub fn rc93_hang(node: &Node, pod: &Pod) -> Result<Fault> {
    let containerd = node.containerd();
    ensure!(containerd.knobs().rc93, "the node's runc is not rc93: set Knobs::rc93");
    let profile = containerd.scratch().path().join("large-seccomp.json");
    std::fs::write(&profile, rc93::profile().to_string()).context("cannot write a seccomp profile")?;
    let client = containerd.client();
    let container = extra::create(node, pod, "rc93", Some(profile))?;
    let guard = Fault::new(Facts::default()).cleaned_by(extra::removal(client, &container));
    let id = container.clone();
    let call = Call::start(client, "StartContainer", move |client| client.start_container(&id, HANGING))?;
    let guard = guard.holding(call);
    let (init, pipe) = wait_for_own_pipe(&container)?;
    let victims = [Some(init.pid()), process::parent(init.pid())].into_iter().flatten().collect();
    let ids = vec![pod.sandbox.clone(), container];
    let facts = Facts { victims, pod: pod.name.clone(), ids, path: Some(pipe.into()), ..Facts::default() };
    Ok(guard.with(facts).healed_by_killing(vec![init]))
}

/// The same without containerd: `runc create` of a bundle by rc93, whose parent has ended: it may be the node's. The node
/// may have any runc.
///
/// # Errors
///
/// When rc93 cannot be built, or the init does not hang.
pub fn rc93_standalone(node: &Node) -> Result<Fault> {
    let bundle = Bundle::new(node, rc93::program()?, "rc93", |spec| {
        // Without it the filter is loaded before runc create ends; with it after, just before the container's program.
        spec["process"]["noNewPrivileges"] = Value::Bool(false);
        spec["linux"]["seccomp"] = rc93::profile();
    })?;
    host::run(&mut bundle.orphan("create"))?;
    let id = bundle.id().to_owned();
    let of = id.clone();
    let guard = Fault::new(Facts::default()).cleaned_by(move || {
        let create = init_of(&of).and_then(process::parent).filter(|parent| process::name(*parent) == "runc");
        if let Some(create) = create.and_then(Process::running) {
            create.kill(EFFECT_LIMIT)?;
        }
        bundle.remove()
    });
    let (init, pipe) = wait_for_own_pipe(&id)?;
    let victims = [Some(init.pid()), process::parent(init.pid())].into_iter().flatten().collect();
    let facts = Facts { victims, ids: vec![id], path: Some(pipe.into()), ..Facts::default() };
    Ok(guard.with(facts).healed_by_killing(vec![init]))
}

/// A container that was made (`runc create`) and is never started: its init waits at exec.fifo, and runc has gone, so
/// that nobody can ever tell it to go on.
///
/// # Errors
///
/// When runc fails, or the init does not wait there.
pub fn orphaned_init(node: &Node) -> Result<Fault> {
    let bundle = Bundle::new(node, node.containerd().runc_program().to_owned(), "orphan", |_| {})?;
    let id = bundle.id().to_owned();
    let fifo = bundle.fifo();
    host::run_detached(&mut bundle.command("create"))?;
    let guard = Fault::new(Facts::default()).cleaned_by(move || bundle.remove());
    let init = process::wait_for("a runc init at exec.fifo", EFFECT_LIMIT, || {
        let Some(init) = init_of(&id) else { return Ok(None) };
        let is_orphan = process::parent(init).is_some_and(|parent| process::name(parent) != "runc");
        Ok((is_orphan && is_opening(init)).then(|| Process::running(init)).flatten())
    })?;
    let facts = Facts { victims: vec![init.pid()], ids: vec![id], path: Some(fifo), ..Facts::default() };
    Ok(guard.with(facts).healed_by_killing(vec![init]))
}

/// Whether a thread of `pid` waits inside openat(2), which of all it may open only a FIFO makes it do.
fn is_opening(pid: u32) -> bool {
    process::blocked_threads(pid).iter().any(|thread| thread.syscall == libc::SYS_openat)
}
