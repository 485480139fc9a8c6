//! From the command line to the exit code.

use std::{
    io::{self, IsTerminal},
    process::ExitCode,
};

use clap::Parser;

use super::{
    arm::chain, checks, doctor, error::SessionError, explain, goroutines, oneshot, pipeline::Tap, report,
};
use crate::{
    census,
    cli::{Args, Command, Settings},
    correlate::Snapshot,
    diagnose::{Verdict, diagnose},
    exit::Exit,
    kernel::AttachMode,
};

/// Runs plegtrace: parses, runs, prints an error once.
#[must_use]
pub fn main() -> ExitCode {
    let args = Args::parse();
    if matches!(args.command, Some(Command::CensusChild)) {
        // Whoever listens notices the end; nobody reads an error.
        return census::serve().map_or_else(|_| Exit::CannotRun.into(), |()| Exit::Healthy.into());
    }
    log_to_stderr(args.common.verbose);
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

/// Warnings always; what plegtrace does with `-v`, in detail with `-vv`.
fn log_to_stderr(verbose: u8) {
    let level = match verbose {
        0 => tracing::Level::WARN,
        1 => tracing::Level::INFO,
        _ => tracing::Level::DEBUG,
    };
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .with_target(false)
        .finish();
    // Only the first caller sets it; a second one is a test.
    let _ = tracing::subscriber::set_global_default(subscriber);
}

fn run(args: &Args) -> Result<Exit, SessionError> {
    let mut settings = Settings::try_from(&args.common)?;
    settings.census_program = Some(census::this_program());
    if let Some(Command::Goroutines { pid }) = args.command {
        return goroutines::run(pid, &settings);
    }
    if let Some(Command::Explain { id, list }) = &args.command {
        return explain::run(id.as_deref().filter(|_| !list), &settings);
    }
    if settings.dry_run || matches!(args.command, Some(Command::Doctor)) {
        return doctor::run(&settings);
    }
    let snapshot = observe(&settings, None)?;
    let diagnosis = diagnose(&snapshot);
    report::write(&snapshot, &diagnosis, &settings).map_err(SessionError::Write)?;
    Ok(match diagnosis.verdict {
        Verdict::Healthy => Exit::Healthy,
        Verdict::Stall => Exit::Stall,
        Verdict::CannotTell => Exit::CannotTell,
    })
}

/// Observes this machine as the one-shot does; `tap` sees every record of the input stream.
///
/// # Errors
///
/// plegtrace cannot run here, or there is nothing to trace.
pub fn observe(settings: &Settings, tap: Option<Tap>) -> Result<Snapshot, SessionError> {
    // The census works where nothing can be loaded; no mode is used then.
    let mode = if settings.needs_kernel() { checks::ready(settings)? } else { AttachMode::Multi };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(SessionError::EventLoop)?;
    runtime.block_on(oneshot::observe(settings, mode, tap))
}
