//! `plegtrace-lab`: a real node in a temporary directory, healthy or with a fault, for looking around by hand and for
//! warming the cache.

use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Args, Parser, Subcommand};
use plegtrace_lab::fault::{Facts, Kind};
use plegtrace_lab::kubelet::KubeletBuild;
use plegtrace_lab::{Containerd, Generation, Knobs, Network, Node, fetch, host, process, scratch};
use tokio::signal::unix::{SignalKind, signal};

/// A real node on one machine: containerd, kubelet and pods from Debian packages.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Keep a node until Ctrl-C.
    Up(Up),
    /// Keep a node with a fault in it until Ctrl-C, then heal it.
    Fault(Fault),
    /// Remove what killed labs left on this machine.
    #[command(alias = "down")]
    Sweep,
    /// Download and build what `cargo xtask test` needs into the cache.
    Fetch {
        /// What any test needs: every kubelet, Docker, all toolchains, what is rebuilt with a bug, a client in Go.
        #[arg(long)]
        all: bool,
    },
}

#[derive(Debug, Args)]
struct Up {
    /// Number of static pods.
    #[arg(long, default_value_t = 3)]
    pods: usize,
    /// Generation of containerd: 1.4, 1.6, 1.7 or 2.1, whose kubelet asks by v1 of the CRI.
    #[arg(long, default_value_t = Generation::default())]
    generation: Generation,
    /// Docker 20.10 between kubelet and containerd (1.4 or 1.6), asked through the dockershim.
    #[arg(long)]
    docker: bool,
    /// One exec probe per second and pod.
    #[arg(long)]
    exec_probes: bool,
    /// A network namespace per pod, by CNI on a private bridge.
    #[arg(long)]
    bridge: bool,
    /// The kubelet built with Go 1.15 (stack ABI).
    #[arg(long)]
    go115: bool,
    /// Seconds between the coming and going of one more pod.
    #[arg(long, value_name = "SECONDS")]
    churn: Option<u64>,
}

#[derive(Debug, Args)]
struct Fault {
    /// Which fault.
    name: Kind,
    /// Number of static pods; the fault hits the first one.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    pods: u16,
    /// Generation of containerd: 1.4, 1.6, 1.7 or 2.1; without it, what the fault needs.
    #[arg(long)]
    generation: Option<Generation>,
    /// One exec probe per second and pod.
    #[arg(long)]
    exec_probes: bool,
}

fn main() -> Result<()> {
    match Cli::parse().command {
        Command::Up(up) => run(&up),
        Command::Fault(fault) => keep_fault(&fault),
        Command::Sweep => {
            let swept = scratch::sweep()?;
            host::progress(&format!("{swept} labs removed"));
            Ok(())
        }
        Command::Fetch { all } => fetch::run(all),
    }
}

fn run(up: &Up) -> Result<()> {
    let knobs = Knobs {
        generation: up.generation,
        docker: up.docker,
        kubelet: if up.go115 { KubeletBuild::Go115 } else { KubeletBuild::Go119 },
        pods: up.pods,
        exec_probes: up.exec_probes,
        network: if up.bridge { Network::Bridge } else { Network::Host },
        ..Knobs::default()
    };
    let node = Node::start(&knobs)?;
    let _churn = up.churn.map(|seconds| node.kubelet().churn(Duration::from_secs(seconds)));
    show(node.containerd())?;
    if let Ok(docker) = node.docker() {
        print(&format!("dockerd     pid {}  {}", docker.pid(), docker.api().socket().display()))?;
    }
    let kubelet = node.kubelet();
    print(&format!("kubelet     pid {}  http://{}/metrics", kubelet.pid(), kubelet.read_only_address()))?;
    for pod in kubelet.running_pods()? {
        // Docker has a shim for each container, others one for each sandbox.
        let served = if up.docker { &pod.container } else { &pod.sandbox };
        let shim = node.containerd().shim_of(served)?;
        print(&format!("pod         {}  shim {shim}  container {}", pod.name, pod.container))?;
    }
    wait_for_the_end()?;
    host::progress("tearing down");
    Ok(())
}

fn keep_fault(options: &Fault) -> Result<()> {
    let needed = options.name.knobs();
    let knobs = Knobs {
        generation: options.generation.unwrap_or(needed.generation),
        pods: needed.pods.max(options.pods.into()),
        exec_probes: options.exec_probes,
        ..needed
    };
    let node = Node::start(&knobs)?;
    show(node.containerd())?;
    print(&format!("kubelet     pid {}", node.kubelet().pid()))?;
    let mut fault = options.name.inject(&node, "p1")?;
    print(&format!("cause       {}", options.name.root_cause().unwrap_or("none: a decoy")))?;
    let Facts { victims, culprits, pod, ids, path } = fault.facts().clone();
    for (role, pids) in [("victim", victims), ("culprit", culprits)] {
        for pid in pids {
            print(&format!("{role:<12}pid {pid}  {}", process::arguments(pid).join(" ")))?;
        }
    }
    let path = path.map(|path| path.display().to_string());
    for (what, values) in [("pod", vec![pod]), ("id", ids), ("path", path.into_iter().collect())] {
        for value in values.iter().filter(|value| !value.is_empty()) {
            print(&format!("{what:<12}{value}"))?;
        }
    }
    print(&format!("hanging     {}", counted(&fault.hanging())))?;
    wait_for_the_end()?;
    host::progress("healing");
    fault.heal()?;
    host::progress("healed; tearing down");
    Ok(())
}

/// `StartContainer`, or `ContainerStats (706)`: each method once.
fn counted(methods: &[&str]) -> String {
    let mut all: Vec<(&str, usize)> = Vec::new();
    for method in methods {
        match all.iter_mut().find(|(known, _)| known == method) {
            Some((_, count)) => *count += 1,
            None => all.push((method, 1)),
        }
    }
    let one = |(method, count): &(&str, usize)| match count {
        1 => (*method).to_owned(),
        count => format!("{method} ({count})"),
    };
    all.iter().map(one).collect::<Vec<_>>().join(" ")
}

fn show(containerd: &Containerd) -> Result<()> {
    print(&format!("lab         {}", containerd.scratch().path().display()))?;
    print(&format!("containerd  pid {}  {}", containerd.pid(), containerd.socket().display()))
}

/// Scripts read this through a pipe, so each line leaves at once.
fn print(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).context("cannot write to stdout")
}

/// Waits for Ctrl-C or SIGTERM.
fn wait_for_the_end() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot wait for signals")?.block_on(async {
        // Both are taken over before "ready" is said: a script may send one at once.
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        print("ready       Ctrl-C ends it")?;
        tokio::select! {
            _ = interrupt.recv() => Ok(()),
            _ = terminate.recv() => anyhow::Ok(()),
        }
    })
}
