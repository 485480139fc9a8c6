//! `cargo xtask <command>`: everything a developer or the CI does with this repository. Only dispatch lives here;
//! each command is a module with its `Options` and its `run`.

mod apt;
mod bench;
mod bless;
mod build;
mod check;
mod cmd;
mod commit;
mod demo;
mod dist;
mod ebpf;
mod fuzz;
mod lanes;
mod paths;
mod progress;
mod room;
mod run;
mod setup;
mod skips;
mod test;
mod verifier_stats;
mod vm;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

const EXAMPLES: &str = "Examples:
  cargo xtask demo                     a real stall on a real kubelet, diagnosed
  cargo xtask run -- doctor            build, then `sudo plegtrace doctor` on this machine
  cargo xtask dist                     what people install, in target/dist
  cargo xtask check                    formatting, lints, documentation, import rules
  cargo xtask test                     everything that proves the product on this machine
  cargo xtask test --fast              only what needs neither root nor a VM
  cargo xtask bench cost --pods 110    what plegtrace costs a node of that size
  cargo xtask vm --kernel bookworm     one guest only
  cargo xtask vm --kernel 5.10 --shell look around in a guest";

/// Development commands of plegtrace
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Get the eBPF toolchain and the programs of the VM lab
    Setup(setup::Options),
    /// Build the eBPF object and the plegtrace binary
    Build(build::Options),
    /// Build, then package what people install: archive, packages, image, sums, in target/dist
    Dist(dist::Options),
    /// Build, then run `sudo plegtrace ARGS` on this machine
    Run(run::Options),
    /// Build, start the lab, inject a real stall and show the report
    Demo(demo::Options),
    /// Build, then measure what plegtrace costs a real node
    Bench(bench::Options),
    /// Formatting, lints, documentation and the rules about the code
    Check(check::Options),
    /// Everything that proves the product on this machine
    Test(test::Options),
    /// The long lab tests
    Soak(test::SoakOptions),
    /// Run a fuzz target for a time
    Fuzz(fuzz::Options),
    /// Rewrite the golden files
    Bless(bless::Options),
    /// Run the tests of `vm-tests` on the kernels of four Debian releases, under QEMU
    Vm(vm::Options),
    /// Instructions the verifier walked through, per program and kernel
    VerifierStats(verifier_stats::Options),
}

fn main() -> ExitCode {
    progress::start();
    let result = match Cli::parse().command {
        Command::Setup(options) => setup::run(&options),
        Command::Build(options) => build::run(&options),
        Command::Dist(options) => dist::run(&options),
        Command::Run(options) => run::run(&options),
        Command::Demo(options) => demo::run(&options),
        Command::Bench(options) => bench::run(&options),
        Command::Check(options) => check::run(&options),
        Command::Test(options) => test::run(&options),
        Command::Soak(options) => test::soak(&options),
        Command::Fuzz(options) => fuzz::run(&options),
        Command::Bless(options) => bless::run(&options),
        Command::Vm(options) => vm::run(&options),
        Command::VerifierStats(options) => verifier_stats::run(&options),
    };
    let Err(error) = result else { return ExitCode::SUCCESS };
    if let Some(cmd::Exit(code)) = error.downcast_ref() {
        return ExitCode::from(*code);
    }
    eprintln!("xtask: {error:#}");
    ExitCode::FAILURE
}
