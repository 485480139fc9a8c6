//! From the command line to the exit code.

use std::{
    io::{self, IsTerminal},
    process::ExitCode,
    sync::Arc,
};

use clap::Parser;

use super::{
    checks, doctor,
    error::{SessionError, chain},
    explain, goroutines, oneshot,
    pipeline::Tap,
    record, replay, report,
};
use crate::{
    census,
    cli::{Args, Command, Settings},
    correlate::Snapshot,
    diagnose::{Diagnosis, Verdict, diagnose},
    exit::Exit,
    kernel::AttachMode,
    recording::Recorder,
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
    let done = run(&args);
    census::end_idle();
    match done {
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
    if let Some(Command::Report { file }) = &args.command {
        return replay::run(file, &settings).map(told);
    }
    if settings.dry_run || matches!(args.command, Some(Command::Doctor)) {
        return doctor::run(&settings);
    }
    if let Some(Command::Record(options)) = &args.command {
        return record::run(options, &settings).map(told);
    }
    let snapshot = observe(&settings, None)?;
    let diagnosis = diagnose(&snapshot);
    report::write(&snapshot, &diagnosis, &settings).map_err(SessionError::Write)?;
    Ok(exit_of(&diagnosis))
}

/// The exit code that goes with a report.
pub(super) fn exit_of(diagnosis: &Diagnosis) -> Exit {
    match diagnosis.verdict {
        Verdict::Healthy => Exit::Healthy,
        Verdict::Stall => Exit::Stall,
        Verdict::CannotTell => Exit::CannotTell,
    }
}

/// Prints what there is to say beside the report.
fn told((exit, remarks): (Exit, Vec<String>)) -> Exit {
    for remark in remarks {
        eprintln!("plegtrace: {remark}");
    }
    exit
}

/// Observes this machine as the one-shot does; `tap` sees every record of the input stream.
///
/// # Errors
///
/// plegtrace cannot run here, or there is nothing to trace.
pub fn observe(settings: &Settings, tap: Option<Tap>) -> Result<Snapshot, SessionError> {
    observe_in(settings, ready(settings)?, tap, None)
}

/// How probes will be attached here.
///
/// # Errors
///
/// plegtrace cannot run here.
pub(super) fn ready(settings: &Settings) -> Result<AttachMode, SessionError> {
    // The census works where nothing can be loaded; no mode is used then.
    if settings.needs_kernel() { checks::ready(settings) } else { Ok(AttachMode::Multi) }
}

/// Observes; ends early when the recorder has no use for more.
///
/// # Errors
///
/// Something that is needed cannot be done.
pub(super) fn observe_in(
    settings: &Settings,
    mode: AttachMode,
    tap: Option<Tap>,
    recorder: Option<Arc<Recorder>>,
) -> Result<Snapshot, SessionError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(SessionError::EventLoop)?;
    runtime.block_on(oneshot::observe(settings, mode, tap, recorder))
}
