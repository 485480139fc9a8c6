//! From the command line to the exit code.

use std::process::ExitCode;

use clap::Parser;

use super::{arm::chain, error::SessionError, oneshot, report};
use crate::{
    cli::{Args, Settings},
    correlate::Outcome,
    exit::Exit,
    kernel::AttachMode,
};

/// Runs plegtrace: parses, runs, prints an error once.
#[must_use]
pub fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(exit) => exit.into(),
        Err(error) => {
            eprintln!("plegtrace: {}", chain(&error));
            if let Some(hint) = error.hint() {
                eprintln!("hint: {hint}");
            }
            error.exit().into()
        }
    }
}

fn run(args: &Args) -> Result<Exit, SessionError> {
    let settings = Settings::try_from(&args.common)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(SessionError::EventLoop)?;
    let snapshot = runtime.block_on(oneshot::observe(&settings, AttachMode::Multi))?;
    report::write(&snapshot, &settings).map_err(SessionError::Write)?;
    Ok(match snapshot.outcome {
        Outcome::Healthy { .. } => Exit::Healthy,
        Outcome::Stalled { .. } => Exit::Stall,
        Outcome::CannotTell { .. } => Exit::CannotTell,
    })
}
