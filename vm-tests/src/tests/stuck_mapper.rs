//! A process that runs containerd's file is stuck in a page fault, as on a node with a dead disk. Attaching to that file,
//! or detaching from it, would wait for its memory lock and hold the lock that every fork of the node needs. So plegtrace
//! does neither, and says why.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use plegtrace::cli::{Attach, Settings};
use plegtrace::engine;
use plegtrace::kernel::{AttachMode, Kernel};

use crate::frozen::{Scratch, Toucher};
use crate::kernel::KernelVersion;
use crate::machine::{self, Containerd};
use crate::observation::{self, Observation, Seen};
use crate::undo::Undo;
use crate::wait::{self, BUDGET};

/// A fork that takes longer hangs.
const PROMPT: Duration = Duration::from_secs(10);
/// Forks that are made while plegtrace waits, one a second.
const FORKS: usize = 5;
/// From here on a page fault of a file holds the lock of its mapping alone (`CONFIG_PER_VMA_LOCK` for files).
const SPARED: KernelVersion = KernelVersion(6, 6);

/// Shows what happens without care on kernels where it does, and that it does not happen with it.
///
/// # Errors
/// When a fork hangs with us, or nothing is said.
pub fn run() -> Result<String> {
    let containerd = Containerd::running()?;
    let scratch = Scratch::mount()?;
    let hangs = unguarded(containerd, &scratch)?;
    ensure!(
        hangs || KernelVersion::running()? >= SPARED,
        "forks do not hang without care: the test shows nothing"
    );
    let refused = refuses_to_attach(containerd, &scratch)?;
    waits_to_detach(containerd, &scratch)?;
    ensure!(Containerd::running()? == containerd, "containerd was restarted");
    Ok(format!("forks hang without care: {hangs}; with it none does, and we say: {refused}"))
}

/// Attaches without looking; says whether forks hang.
fn unguarded(containerd: Containerd, scratch: &Scratch) -> Result<bool> {
    let inspected = containerd.inspect()?;
    let plan = machine::plan(&inspected);
    let binary = plan.binaries.first().context("no executable planned")?.clone();
    let mut kernel = Kernel::load(&machine::load_options(AttachMode::PerfAddress)?)?;
    let stuck = Stuck::begin(scratch)?;
    let attaching = thread::spawn(move || {
        let attached = kernel.attach(0, &binary).map(drop);
        drop(kernel);
        attached
    });
    let mut hung = None;
    let began = Instant::now();
    while hung.is_none() && !attaching.is_finished() && began.elapsed() < PROMPT {
        hung = fork()?;
    }
    drop(stuck);
    let hangs = hung.is_some();
    if let Some(mut child) = hung {
        wait::until("the fork to go on", BUDGET, || Ok(child.try_wait()?))?;
    }
    wait::until("the attach to end", BUDGET, || Ok(attaching.is_finished().then_some(())))?;
    attaching.join().map_err(|_| anyhow::anyhow!("the attach panicked"))??;
    Ok(hangs)
}

/// plegtrace starts while somebody is stuck; gives what it says. When that is over, it attaches.
fn refuses_to_attach(containerd: Containerd, scratch: &Scratch) -> Result<String> {
    let stuck = Stuck::begin(scratch)?;
    let observation = Observation::begin_with(settings(containerd))?;
    no_fork_hangs()?;
    let has_probes = |seen: &Seen| seen.armed.as_ref().is_some_and(|armed| armed.sites > 0);
    let observation = observation.until("a refusal", |seen| !seen.refused.is_empty())?;
    ensure!(!has_probes(observation.seen()), "attached all the same");
    no_fork_hangs()?;
    drop(stuck);
    let (_, seen) = observation.until("the probes after it", has_probes)?.end()?;
    no_fork_hangs()?;
    let why = seen.refused.iter().find(|why| why.contains("attaching would stop this node"));
    let why = why.with_context(|| format!("not refused, only: {:?}", seen.refused))?;
    for part in ["is stuck in a page fault", "--sources census"] {
        ensure!(why.contains(part), "no word of {part}: {why}");
    }
    Ok(why.clone())
}

/// Somebody gets stuck while probes are on: the report comes, they stay until it is over.
fn waits_to_detach(containerd: Containerd, scratch: &Scratch) -> Result<()> {
    let observation = Observation::begin_with(settings(containerd))?;
    let stuck = Stuck::begin(scratch)?;
    let (_, seen) = observation.end()?;
    ensure!(seen.armed.is_some_and(|armed| armed.sites > 0), "nothing was attached");
    let said = seen.refused.iter().any(|why| why.contains("still attached") && why.contains("page fault"));
    ensure!(said, "nothing is said of what is still attached: {:?}", seen.refused);
    let detaching = thread::spawn(|| engine::detach_rest(|_| ()));
    no_fork_hangs()?;
    ensure!(!detaching.is_finished(), "detached from a file of which a process is stuck");
    drop(stuck);
    wait::until("the probes to come off", BUDGET, || Ok(detaching.is_finished().then_some(())))
}

fn settings(containerd: Containerd) -> Settings {
    // Who is stuck runs the same program: which one is meant is said.
    Settings { runtime_pid: Some(containerd.pid), ..observation::settings(Attach::Auto) }
}

/// A process that runs containerd's file, in a page fault that does not end before this is dropped.
struct Stuck {
    /// Before the process, which cannot end as long as this lives.
    _frozen: Undo,
    _toucher: Toucher,
    _file: File,
}

impl Stuck {
    fn begin(scratch: &Scratch) -> Result<Self> {
        let file = scratch.file()?;
        let toucher = Toucher::start(Path::new("/usr/bin/containerd"), &file)?;
        let frozen = scratch.freeze()?;
        toucher.touch(&file)?;
        Ok(Self { _frozen: frozen, _toucher: toucher, _file: file })
    }
}

fn no_fork_hangs() -> Result<()> {
    for _ in 0..FORKS {
        let hung = fork()?;
        ensure!(hung.is_none(), "a fork hangs with us");
        thread::sleep(Duration::from_secs(1));
    }
    Ok(())
}

/// Forks once, not as this program does (`vfork`) but as shells do; gives who hangs.
fn fork() -> Result<Option<Child>> {
    let mut child = Command::new("sh").args(["-c", "(true); true"]).spawn()?;
    let began = Instant::now();
    while began.elapsed() < PROMPT {
        if child.try_wait()?.is_some() {
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(50));
    }
    Ok(Some(child))
}
