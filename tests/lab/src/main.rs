//! `plegtrace-lab`: a real node in a temporary directory, for looking around by hand and for warming the cache.

use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Args, Parser, Subcommand};
use plegtrace_lab::kubelet::{self, KubeletBuild};
use plegtrace_lab::{Containerd, Generation, Knobs, Network, Node, host, image, packages, scratch};
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
    /// Remove what killed labs left on this machine.
    #[command(alias = "down")]
    Sweep,
    /// Download and build everything into the cache.
    Fetch {
        /// Also the kubelet of Go 1.15.
        #[arg(long)]
        all: bool,
    },
}

#[derive(Debug, Args)]
struct Up {
    /// Number of static pods.
    #[arg(long, default_value_t = 3)]
    pods: usize,
    /// Generation of containerd: 1.4, 1.6, 1.7 or 2.1 (without a kubelet).
    #[arg(long, default_value_t = Generation::default())]
    generation: Generation,
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

fn main() -> Result<()> {
    match Cli::parse().command {
        Command::Up(up) => run(&up),
        Command::Sweep => {
            let swept = scratch::sweep()?;
            host::progress(&format!("{swept} labs removed"));
            Ok(())
        }
        Command::Fetch { all } => fetch(all),
    }
}

fn run(up: &Up) -> Result<()> {
    let knobs = Knobs {
        generation: up.generation,
        kubelet: if up.go115 { KubeletBuild::Go115 } else { KubeletBuild::Go119 },
        pods: up.pods,
        exec_probes: up.exec_probes,
        network: if up.bridge { Network::Bridge } else { Network::Host },
        ..Knobs::default()
    };
    if knobs.generation.serves_v1alpha2() {
        let node = Node::start(&knobs)?;
        let _churn = up.churn.map(|seconds| node.kubelet().churn(Duration::from_secs(seconds)));
        show(node.containerd())?;
        let kubelet = node.kubelet();
        print(&format!("kubelet     pid {}  http://{}/metrics", kubelet.pid(), kubelet.read_only_address()))?;
        for pod in kubelet.running_pods()? {
            let shim = node.containerd().shim_of(&pod.sandbox)?;
            print(&format!("pod         {}  shim {shim}  container {}", pod.name, pod.container))?;
        }
        return wait_for_the_end();
    }
    host::progress("no kubelet: kubelet 1.20 does not speak CRI v1; pods are run by our own client");
    let containerd = Containerd::start(&knobs)?;
    for number in 1..=knobs.pods {
        containerd.run_pod(&format!("p{number}"))?;
    }
    show(&containerd)?;
    wait_for_the_end()
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
    })?;
    host::progress("tearing down");
    Ok(())
}

/// A generation that left the archive is reported and does not stop the others.
fn fetch(all: bool) -> Result<()> {
    for generation in Generation::ALL {
        match packages::containerd(generation.suite()) {
            Ok(tree) => host::progress(&format!("containerd {generation}: {}", tree.versions()?.join(" "))),
            Err(error) if packages::Error::is_gone(&error) => host::progress(&format!("skipped: {error:#}")),
            Err(error) => return Err(error),
        }
    }
    packages::runc(packages::Suite::Bookworm)?;
    packages::cni_plugins()?;
    image::archive()?;
    let mut builds = vec![KubeletBuild::Go119];
    builds.extend(all.then_some(KubeletBuild::Go115));
    for build in builds {
        host::progress(&format!("kubelet: {}", kubelet::program(build)?.display()));
    }
    Ok(())
}
