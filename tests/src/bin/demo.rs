//! `cargo xtask demo`: a real node, a real stall, and what plegtrace says about it.
//!
//! The stall is the lock hostage: the shim of one container is stopped, then somebody updates that container's
//! resources. containerd holds the container's status lock while it waits for the shim, so every `ListContainers`
//! waits too, the kubelet's relist hangs, and its metrics freeze, because they are written when a call returns.

use std::{
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, ChildStderr, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use plegtrace_lab::{Knobs, Node, fault, process};
use plegtrace_tests::program;

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
    say("the node is healthy; plegtrace waits for a stall: -d 60 --until-found");
    let mut first = Plegtrace::start(&["-d", "60", "--until-found"])?;
    first.wait_until_armed()?;
    let before = relists(&node, SCRAPE)?;
    let pod = node.pod("p1")?;
    let hostage = fault::lock_hostage(node.containerd(), &pod)?;
    let began = Instant::now();
    let told = Told::new(&hostage);
    say(&format!(
        "injected: shim {} of pod {} stopped, UpdateContainerResources called on its container {}",
        told.shim, told.pod, told.container
    ));
    println!("{}", first.report(&told)?);
    say(&format!("named {:.1} s after it began", began.elapsed().as_secs_f64()));
    if short {
        say_frozen(relists(&node, SCRAPE), before, began);
    } else {
        say(
            "now past the kubelet's deadline of 2 min: its list fails, the handlers stay behind in containerd",
        );
        let scraped = relists(&node, PATIENT_SCRAPE);
        say_frozen(scraped, before, began);
        say("a plegtrace that comes only now, as an operator would: the stall is older than its probes");
        println!("{}", Plegtrace::start(&[])?.report(&told)?);
    }
    say("continuing the shim");
    hostage.release()?;
    node.wait_for_relists(2, Duration::from_secs(150))?;
    say("healed: relists count again; taking the node down");
    drop(node);
    say("nothing is left behind");
    say(&format!("verdict R1: shim {}, pod {}, container {}", told.shim, told.pod, told.container));
    Ok(())
}

/// What a report has to name.
struct Told {
    shim: u32,
    pod: String,
    container: String,
}

impl Told {
    fn new(hostage: &fault::Hostage) -> Self {
        let pod = hostage.pod();
        let container = pod.container.chars().take(12).collect();
        Self { shim: hostage.shim(), pod: pod.name.clone(), container }
    }

    /// What of it a report does not name.
    fn missing_in(&self, report: &str) -> Option<String> {
        let wanted =
            ["STALL R1".to_owned(), format!("shim {}", self.shim), self.pod.clone(), self.container.clone()];
        wanted.into_iter().find(|word| !report.contains(word))
    }
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
struct Plegtrace {
    child: Child,
    said: BufReader<ChildStderr>,
}

impl Plegtrace {
    fn start(arguments: &[&str]) -> Result<Self> {
        let binary =
            std::env::var_os("PLEGTRACE_BIN").map_or_else(|| PathBuf::from("plegtrace"), PathBuf::from);
        let mut command = Command::new(&binary);
        command.args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // The main thread spawns, so its end is the demo's end.
        program::end_with_parent(&mut command);
        let mut child = command.spawn().with_context(|| format!("start {}", binary.display()))?;
        let said = BufReader::new(child.stderr.take().context("stderr is piped")?);
        Ok(Self { child, said })
    }

    fn wait_until_armed(&mut self) -> Result<()> {
        let mut line = String::new();
        while !line.contains("armed") {
            line.clear();
            if self.said.read_line(&mut line)? == 0 {
                let status = self.child.wait()?;
                bail!("plegtrace ended before it was armed: {status}");
            }
            eprint!("      {line}");
        }
        Ok(())
    }

    /// Waits for its report, which must name everything.
    fn report(mut self, told: &Told) -> Result<String> {
        let (said, out) = (&mut self.said, self.child.stdout.take().context("stdout is piped")?);
        let text = std::thread::scope(|scope| {
            scope.spawn(|| std::io::copy(said, &mut std::io::stderr()));
            std::io::read_to_string(out)
        })?;
        let status = self.child.wait()?;
        if status.code() != Some(1) {
            bail!("plegtrace was to find a stall (exit code 1), but ended with {status}:\n{text}");
        }
        if let Some(missing) = told.missing_in(&text) {
            bail!("the report does not name {missing:?}:\n{text}");
        }
        Ok(text)
    }
}

impl Drop for Plegtrace {
    fn drop(&mut self) {
        let _ = process::signal(self.child.id(), libc::SIGINT);
        let _ = self.child.wait();
    }
}
