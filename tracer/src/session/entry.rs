//! From the command line to the exit code.

use std::{io, process::ExitCode};

use clap::Parser;

use super::{arm::chain, checks, doctor, error::SessionError, oneshot, pipeline::Tap, report};
use crate::{
    cli::{Args, Command, Settings},
    correlate::{Outcome, Snapshot},
    exit::Exit,
};

/// Runs plegtrace: parses, runs, prints an error once.
#[must_use]
pub fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(exit) => exit.into(),
        // The reader of a pipe has seen enough.
        Err(SessionError::Write(e)) if e.kind() == io::ErrorKind::BrokenPipe => Exit::Healthy.into(),
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
    if settings.dry_run || matches!(args.command, Some(Command::Doctor)) {
        return doctor::run(&settings);
    }
    let snapshot = observe(&settings, None)?;
    report::write(&snapshot, &settings).map_err(SessionError::Write)?;
    Ok(match snapshot.outcome {
        Outcome::Healthy { .. } => Exit::Healthy,
        Outcome::Stalled { .. } => Exit::Stall,
        Outcome::CannotTell { .. } => Exit::CannotTell,
    })
}

/// Observes this machine as the one-shot does; `tap` sees every record of the input stream.
///
/// # Errors
///
/// plegtrace cannot run here, or there is nothing to trace.
pub fn observe(settings: &Settings, tap: Option<Tap>) -> Result<Snapshot, SessionError> {
    let mode = checks::ready(settings)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(SessionError::EventLoop)?;
    runtime.block_on(oneshot::observe(settings, mode, tap))
}
