//! `cargo xtask <command>`: everything a developer or the CI does with this repository. Only dispatch lives here;
//! each command is a module with its `Options` and its `run`.

mod apt;
mod build;
mod cmd;
mod ebpf;
mod paths;
mod progress;
mod setup;
mod vm;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

const EXAMPLES: &str = "Examples:
  cargo xtask demo                     a real stall on a real kubelet, diagnosed
  cargo xtask run -- doctor            build, then `sudo plegtrace doctor` on this machine
  cargo xtask test                     everything that proves the product on this machine
  cargo xtask vm --kernel bookworm     one guest only";

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
    /// Run the tests of `vm-tests` on the kernels of four Debian releases, under QEMU
    Vm(vm::Options),
}

fn main() -> ExitCode {
    progress::start();
    let result = match Cli::parse().command {
        Command::Setup(options) => setup::run(&options),
        Command::Build(options) => build::run(&options),
        Command::Vm(options) => vm::run(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
