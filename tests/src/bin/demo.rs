//! `cargo xtask demo`: a real node, a real stall, and what plegtrace says about it.
//!
//! The stall is the lock hostage: the shim of one container is stopped, then somebody updates that container's
//! resources. containerd holds the container's status lock while it waits for the shim, so every `ListContainers`
//! waits too, the kubelet's relist hangs, and its metrics freeze, because they are written when a call returns.

use std::{
    io::{BufRead, BufReader, Read},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use plegtrace_lab::{Knobs, Node, fault, process};

/// While the calls are open.
const FIRST: Duration = Duration::from_secs(20);
/// Past the kubelet's deadline of 120 s.
const SECOND: Duration = Duration::from_secs(140);
const SCRAPE: Duration = Duration::from_secs(5);
/// The metrics page itself asks for a list, so in a stall it answers only when that list has failed.
const PATIENT_SCRAPE: Duration = Duration::from_secs(135);

fn main() -> Result<()> {
    let short = std::env::args().any(|a| a == "--short");
    say(
        "starting a node: containerd, kubelet, three pods with exec probes (the first time this builds a kubelet)",
    );
    let node = Node::start(&Knobs { pods: 3, exec_probes: true, ..Knobs::default() })?;
    node.wait_for_relists(3, Duration::from_secs(60))?;
    say(
        "the node is healthy; arming plegtrace twice: one report after 20 s, one past the kubelet's deadline of 2 min",
    );
    let first = Armed::start(FIRST)?;
    let second = if short { None } else { Some(Armed::start(SECOND)?) };
    let before = relists(&node, SCRAPE)?;
    let pod = node.pod("p1")?;
    let hostage = fault::lock_hostage(node.containerd(), &pod)?;
    let began = Instant::now();
    say(&format!(
        "injected: shim {} of pod {} stopped, UpdateContainerResources called on its container {:.12}",
        hostage.shim(),
        hostage.pod().name,
        hostage.pod().container
    ));
    println!("{}", first.report()?);
    if let Some(second) = second {
        say(
            "now for the kubelet's deadline: its list fails after 120 s, the handlers stay behind in containerd",
        );
        std::thread::scope(|scope| -> Result<()> {
            let scrape = scope.spawn(|| relists(&node, PATIENT_SCRAPE));
            println!("{}", second.report()?);
            let scraped = scrape.join().map_err(|_| anyhow::anyhow!("the scrape panicked"))?;
            say_frozen(scraped, before, began);
            Ok(())
        })?;
    } else {
        say_frozen(relists(&node, SCRAPE), before, began);
    }
    say("continuing the shim");
    hostage.release()?;
    node.wait_for_relists(2, Duration::from_secs(150))?;
    say("healed: relists count again; taking the node down");
    drop(node);
    say("nothing is left behind");
    Ok(())
}

fn say(text: &str) {
    eprintln!("demo: {text}");
}

/// Relists that returned, by the kubelet's own count.
fn relists(node: &Node, deadline: Duration) -> Result<f64> {
    let page = node.kubelet().metrics(deadline)?;
    Ok(page.sum("kubelet_pleg_relist_duration_seconds_count", &[]))
}

/// Shows that the kubelet's own metric stands still, or that its page does not answer at all.
fn say_frozen(now: Result<f64>, before: f64, began: Instant) {
    let after = began.elapsed().as_secs();
    let text = match now {
        Ok(now) => {
            format!("kubelet_pleg_relist_duration_seconds_count is {now:.0}; it was {before:.0} before")
        }
        Err(error) => format!("the kubelet's metrics page does not answer: {error:#}"),
    };
    say(&format!("{after} s into the stall {text}"));
}

/// A plegtrace that is observing.
struct Armed {
    child: Child,
}

impl Armed {
    fn start(duration: Duration) -> Result<Self> {
        let binary =
            std::env::var_os("PLEGTRACE_BIN").map_or_else(|| PathBuf::from("plegtrace"), PathBuf::from);
        let mut command = Command::new(&binary);
        command.args(["--duration", &duration.as_secs().to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // SAFETY: prctl with constants is async-signal-safe. The main thread spawns, so its end is the demo's end.
        unsafe { command.pre_exec(die_with_parent) };
        let mut child = command.spawn().with_context(|| format!("start {}", binary.display()))?;
        let mut stderr = BufReader::new(child.stderr.take().context("stderr is piped")?);
        let mut line = String::new();
        while !line.contains("armed") {
            line.clear();
            if stderr.read_line(&mut line)? == 0 {
                let status = child.wait()?;
                bail!("plegtrace ended before it was armed: {status}");
            }
            eprint!("      {line}");
        }
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut stderr, &mut std::io::stderr());
        });
        Ok(Self { child })
    }

    /// Waits for its report.
    fn report(mut self) -> Result<String> {
        let mut text = String::new();
        self.child.stdout.take().context("stdout is piped")?.read_to_string(&mut text)?;
        let status = self.child.wait()?;
        if status.code() != Some(1) {
            bail!("plegtrace was to find a stall (exit code 1), but ended with {status}:\n{text}");
        }
        Ok(text)
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        let _ = process::signal(self.child.id(), libc::SIGINT);
        let _ = self.child.wait();
    }
}

fn die_with_parent() -> std::io::Result<()> {
    // SAFETY: no pointers.
    match unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGINT) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}
