//! From the command line to the exit code.

use std::{
    io::{self, IsTerminal},
    process::ExitCode,
};

use clap::{CommandFactory, FromArgMatches};

use super::version;
#[cfg(feature = "top")]
use crate::commands::top;
use crate::{
    census,
    chain::chain,
    cli::{Args, Command, Settings, SettingsError},
    commands::{
        CommandError, check, completions, doctor, explain, goroutines, history, man, observe, record, replay,
        watch,
    },
    engine::{confine, detach_rest, let_interrupt_end_us},
    exit::Exit,
};

/// Runs plegtrace: parses, runs, prints an error once. `commit`: what this program was built of, when that is known.
#[must_use]
pub fn main(commit: Option<&str>) -> ExitCode {
    let typed = Args::command().long_version(version::long(commit)).get_matches();
    let args = Args::from_arg_matches(&typed).unwrap_or_else(|error| error.exit());
    if matches!(args.command, Some(Command::CensusChild)) {
        // Whoever listens notices the end; nobody reads an error.
        return census::serve().map_or_else(|_| Exit::CannotRun.into(), |()| Exit::Healthy.into());
    }
    log_to_stderr(args.common.verbose);
    confine(matches!(args.command, Some(Command::Record(_))));
    let done = run(&args);
    let_interrupt_end_us();
    detach_rest(|why| eprintln!("plegtrace: {why}"));
    census::end_idle();
    match done {
        Ok(exit) => exit.into(),
        // The reader of a pipe has seen enough.
        Err(CommandError::Write(e)) if e.kind() == io::ErrorKind::BrokenPipe => Exit::Healthy.into(),
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

fn run(args: &Args) -> Result<Exit, CommandError> {
    let mut settings = Settings::try_from(&args.common)?;
    settings.census_program = Some(census::this_program());
    if let Some(name) = args.command.as_ref().and_then(draws_nothing).filter(|_| settings.output.is_drawing())
    {
        return Err(SettingsError::NothingToDraw(name).into());
    }
    if let Some(name) = args.command.as_ref().and_then(observes_nothing).filter(|_| settings.otlp.is_some()) {
        return Err(SettingsError::NothingToSend(name).into());
    }
    if settings.dry_run && settings.otlp.is_some() {
        return Err(SettingsError::NothingToSend("--dry-run").into());
    }
    if let Some(Command::Goroutines { pid }) = args.command {
        return goroutines::run(pid, &settings);
    }
    if let Some(Command::Explain { id, list }) = &args.command {
        return explain::run(id.as_deref().filter(|_| !list), &settings);
    }
    if let Some(Command::Completions { shell }) = args.command {
        return completions::run(shell);
    }
    if let Some(Command::Man { dir }) = &args.command {
        return man::run(dir.as_deref());
    }
    if let Some(Command::Report { file }) = &args.command {
        return replay::run(file, &settings).map(told);
    }
    if let Some(Command::Check(options)) = &args.command {
        return check::run(&options.dir);
    }
    if let Some(Command::History { dir, since }) = &args.command {
        return history::run(&dir.dir, *since, &settings);
    }
    if settings.dry_run && settings.output.is_drawing() {
        return Err(SettingsError::NothingToDraw("--dry-run").into());
    }
    if settings.dry_run || matches!(args.command, Some(Command::Doctor)) {
        return doctor::run(&settings);
    }
    if let Some(Command::Record(options)) = &args.command {
        return record::run(options, &settings).map(told);
    }
    let is_endless = args.command.as_ref().is_some_and(goes_on);
    if is_endless && (args.common.duration.is_some() || args.common.until_found) {
        return Err(SettingsError::NoEnd.into());
    }
    #[cfg(feature = "top")]
    if matches!(args.command, Some(Command::Top)) {
        return top::run(&settings);
    }
    if let Some(Command::Watch(options)) = &args.command {
        return watch::run(options, &settings);
    }
    observe::run(&settings).map(told)
}

/// Does it end only when a person or a signal ends it?
fn goes_on(command: &Command) -> bool {
    #[cfg(feature = "top")]
    if matches!(command, Command::Top) {
        return true;
    }
    matches!(command, Command::Watch(_))
}

/// The name of a command that has no flame graph.
fn draws_nothing(command: &Command) -> Option<&'static str> {
    match command {
        Command::Watch(_) => Some("watch"),
        #[cfg(feature = "top")]
        Command::Top => Some("top"),
        _ => observes_nothing(command),
    }
}

/// The name of a command that has no spans to send.
fn observes_nothing(command: &Command) -> Option<&'static str> {
    match command {
        Command::Doctor => Some("doctor"),
        Command::Goroutines { .. } => Some("goroutines"),
        Command::Explain { .. } => Some("explain"),
        Command::Check(_) => Some("check"),
        Command::History { .. } => Some("history"),
        Command::Completions { .. } => Some("completions"),
        Command::Man { .. } => Some("man"),
        #[cfg(feature = "top")]
        Command::Top => Some("top"),
        Command::Watch(_) | Command::Record(_) | Command::Report { .. } | Command::CensusChild => None,
    }
}

/// Prints what there is to say beside the report.
fn told((exit, remarks): (Exit, Vec<String>)) -> Exit {
    for remark in remarks {
        eprintln!("plegtrace: {remark}");
    }
    exit
}
