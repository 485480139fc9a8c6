//! A shim with the bug of containerd 1.2.0 ([`crate::rebuilt::deadlocked_shim`]): commands end while it starts another one, and its
//! reaper and its lock wait for each other (S1).

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::extra;
use super::guard::{BLOCKED_AFTER, EFFECT_LIMIT, Facts, Fault, HANGING};
use super::status::make_fifo;
use crate::cri::{Call, Client, Pod};
use crate::knobs::ShimBuild;
use crate::node::Node;
use crate::process::{self, Process};
use crate::rebuilt::deadlocked_shim::ROOM;

/// Commands that end: one exit in the hands of its reader, those that there is room for, and one too many.
const COMMANDS: usize = ROOM + 2;
/// What commands sleep for: a number that nobody else has tells them from others.
static SECONDS: AtomicU32 = AtomicU32::new(700_000);
/// A shim that can reaps a command so soon.
const REAPED_WITHIN: Duration = Duration::from_secs(2);

/// A container of its own in the sandbox of `pod` with a few commands, which end while the shim starts one more: its runc waits
/// until somebody reads its log, a FIFO. These ExecSync hang, and whatever is asked of this shim. The pod goes with its shim when
/// it is healed; the kubelet starts it anew.
///
/// # Errors
///
/// When the node has other shims, or the shim answers still.
pub fn deadlocked_shim(node: &Node, pod: &Pod) -> Result<Fault> {
    let (containerd, client) = (node.containerd(), node.containerd().client());
    let knobs = containerd.knobs();
    ensure!(knobs.shim == ShimBuild::Deadlocking, "the node's shims do not deadlock: set Knobs::shim");
    let shim = Process::running(containerd.shim_of(&pod.sandbox)?).context("the shim has ended")?;
    let (container, _, guard) = extra::started(node, pod, "commands")?;
    let ids = vec![pod.sandbox.clone(), container.clone()];
    let facts = Facts { culprits: vec![shim.pid()], pod: pod.name.clone(), ids, ..Facts::default() };
    let mut guard = guard.with(facts).healed_by_killing(vec![shim.clone()]);

    let seconds = SECONDS.fetch_add(1, Ordering::Relaxed).to_string();
    for _ in 0..COMMANDS {
        guard = guard.holding(execute(client, &container, &["sleep", &seconds])?);
    }
    let commands = process::wait_for("commands that have been started", EFFECT_LIMIT, || {
        let found = children(shim.pid(), |pid| process::arguments(pid) == ["sleep", &seconds]);
        Ok((found.len() == COMMANDS).then_some(found))
    })?;
    let log = Log::close(containerd.scratch().path(), &container)?;
    guard = guard.holding(execute(client, &container, &["true"])?);
    let runc = process::wait_for("a runc that waits for its log", EFFECT_LIMIT, || {
        Ok(children(shim.pid(), |pid| waits_for_log(pid, &container)).pop())
    })?;
    end(&commands)?;
    let reader = log.open()?;
    process::wait_for("the end of that runc", EFFECT_LIMIT, || Ok(has_ended(runc).then_some(())))?;
    drop(reader);
    let answer = client.container_stats(&pod.container, BLOCKED_AFTER);
    ensure!(answer.is_err_and(|error| error.is_deadline()), "the shim answers after {COMMANDS} exits");
    ensure!(has_ended(runc), "the shim reaps its runc after {COMMANDS} exits");
    Ok(guard)
}

/// Ends the commands one after the other. The last of them is reaped, too, before its exit finds no room; an earlier one when a probe
/// has ended as well.
fn end(commands: &[u32]) -> Result<()> {
    for command in commands {
        process::signal(*command, libc::SIGKILL)?;
        let reaped = process::wait_for("the end of a command", REAPED_WITHIN, || {
            Ok(process::state(*command).is_none().then_some(()))
        });
        if reaped.is_err() {
            break;
        }
    }
    Ok(())
}

/// Is it there, and waits to be reaped?
fn has_ended(pid: u32) -> bool {
    process::state(pid) == Some('Z')
}

fn execute(client: &Client, container: &str, command: &[&str]) -> Result<Call> {
    let id = container.to_owned();
    let command: Vec<String> = command.iter().map(|&word| word.to_owned()).collect();
    Call::start(client, "ExecSync", move |client| {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        client.exec_sync(&id, &words, HANGING).map(drop)
    })
}

/// The children of a process of which this is true.
fn children(parent: u32, is: impl Fn(u32) -> bool) -> Vec<u32> {
    let ours = |pid: &u32| process::parent(*pid) == Some(parent) && is(*pid);
    process::all().into_iter().filter(ours).collect()
}

/// Is it a runc that executes a command in this container, and has not opened its log yet?
fn waits_for_log(pid: u32, container: &str) -> bool {
    let arguments = process::arguments(pid);
    let executes = arguments.iter().any(|word| word == "exec");
    let opens = |thread: &process::Blocked| thread.syscall == libc::SYS_openat;
    executes
        && arguments.last().is_some_and(|last| last == container)
        && process::blocked_threads(pid).iter().any(opens)
}

/// The log of the runc of a container, as a FIFO. Dropped, it is none any more, and nobody waits at it.
struct Log(PathBuf);

impl Log {
    fn close(scratch: &Path, container: &str) -> Result<Self> {
        let bundle = scratch.join("state/io.containerd.runtime.v2.task/k8s.io").join(container);
        let log = bundle.join("log.json");
        fs::remove_file(&log).context("runc has written no log")?;
        make_fifo(&log)?;
        Ok(Self(log))
    }

    /// Lets those go on who wait, as long as the file is there.
    fn open(&self) -> Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_NONBLOCK).open(&self.0).context("cannot read the log of runc")
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // It may have gone with its container.
        let reader = self.open();
        let _ = fs::remove_file(&self.0);
        drop(reader);
    }
}
