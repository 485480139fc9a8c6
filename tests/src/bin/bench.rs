//! `cargo xtask bench`: measures what plegtrace costs real nodes of the lab. As root; Ctrl-C ends it, and the lab's
//! janitor takes its nodes down.

use std::io::Write as _;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::{Args, Parser, Subcommand, ValueEnum};
use plegtrace_lab::host;
use plegtrace_tests::bench::{Report, Rounds, cost, rpc, syscall};

/// What plegtrace costs a node, measured in interleaved rounds without and with it.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench")]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Form of the tables on stdout.
    #[arg(short, long, value_enum, default_value_t = Output::Text, global = true)]
    output: Output,
    /// What plegtrace observes, as in `plegtrace --sources`.
    #[arg(long, default_value = "uprobes,parks,processes,census", global = true, value_name = "LIST")]
    sources: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Output {
    /// For people.
    Text,
    /// One JSON document.
    Json,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Relists, kubelet, containerd and plegtrace itself on nodes of several sizes.
    Cost(Cost),
    /// containerd per CRI call under a steady load.
    Rpc(Rpc),
    /// System calls of a process that plegtrace does not watch.
    Syscall(Syscall),
}

#[derive(Debug, Args)]
struct Cost {
    /// Sizes of the nodes.
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_values_t = [10, 110, 250])]
    pods: Vec<usize>,
    /// Exec probes per second: each number is measured at each size.
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_values_t = [0, 10])]
    probes: Vec<usize>,
    /// Rounds of each.
    #[arg(long, default_value_t = 30)]
    rounds: usize,
    /// Seconds of each half of a round.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(5..=600))]
    seconds: u64,
    /// Minutes of one long observation after the rounds: what plegtrace costs once it has armed and settled. Six give
    /// bounds.
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(0..=60))]
    minutes: u32,
}

#[derive(Debug, Args)]
struct Rpc {
    /// Calls per second.
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..))]
    rate: u32,
    /// Connections, each with one call at a time.
    #[arg(long, default_value_t = 64)]
    clients: usize,
    /// Rounds.
    #[arg(long, default_value_t = 12)]
    rounds: usize,
    /// Seconds of each half of a round.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(5..=600))]
    seconds: u64,
}

#[derive(Debug, Args)]
struct Syscall {
    /// Rounds.
    #[arg(long, default_value_t = 12)]
    rounds: usize,
    /// Seconds of each half of a round.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(2..=600))]
    seconds: u64,
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    host::require_root()?;
    let report = match &cli.command {
        Command::Cost(options) => cost(options, &cli.sources)?,
        Command::Rpc(options) => rpc(options, &cli.sources)?,
        Command::Syscall(options) => syscall(options, &cli.sources)?,
    };
    let text = match cli.output {
        Output::Text => report.to_string(),
        Output::Json => serde_json::to_string_pretty(&report)? + "\n",
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

fn cost(options: &Cost, sources: &str) -> Result<Report> {
    let window = Duration::from_secs(options.seconds);
    let rounds =
        Rounds { count: options.rounds, window, minutes: options.minutes, sources: sources.to_owned() };
    ensure!(
        options.pods.iter().all(|pods| options.probes.iter().all(|probes| probes <= pods)),
        "a pod has at most one exec probe per second: --probes must not exceed --pods"
    );
    let mut report = Report::new(&rounds);
    for &pods in &options.pods {
        for &probes in &options.probes {
            report.scenarios.push(cost::measure(cost::Load { pods, probes }, &rounds)?);
        }
    }
    Ok(report)
}

fn rpc(options: &Rpc, sources: &str) -> Result<Report> {
    let window = Duration::from_secs(options.seconds);
    let rounds = Rounds { count: options.rounds, window, minutes: 0, sources: sources.to_owned() };
    let mut report = Report::new(&rounds);
    let load = rpc::Load { clients: options.clients, rate: options.rate };
    report.scenarios.push(rpc::measure(load, &rounds)?);
    Ok(report)
}

fn syscall(options: &Syscall, sources: &str) -> Result<Report> {
    let window = Duration::from_secs(options.seconds);
    let rounds = Rounds { count: options.rounds, window, minutes: 0, sources: sources.to_owned() };
    let mut report = Report::new(&rounds);
    report.scenarios.push(syscall::measure(&rounds)?);
    Ok(report)
}
