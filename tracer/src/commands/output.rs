//! Writes the report to stdout in the form and colours asked for.

use std::io::{self, BufWriter, IsTerminal, Write};

use crate::{
    cli::{Color, Output, Settings},
    correlate::Snapshot,
    diagnose::{Diagnosis, Verdict},
    exit::Exit,
    render::{json, text},
};

/// The exit code that goes with a report.
pub(super) fn exit_code(diagnosis: &Diagnosis) -> Exit {
    match diagnosis.verdict {
        Verdict::Healthy => Exit::Healthy,
        Verdict::Stall => Exit::Stall,
        Verdict::CannotTell => Exit::CannotTell,
    }
}

/// Writes the whole report.
///
/// # Errors
///
/// stdout cannot be written, for example because the reader went away.
pub(super) fn write(snapshot: &Snapshot, diagnosis: &Diagnosis, settings: &Settings) -> io::Result<()> {
    let stdout = io::stdout();
    let terminal = stdout.is_terminal();
    let mut out = BufWriter::new(stdout.lock());
    match settings.output {
        Output::Json => json::report(snapshot, diagnosis, &mut out)?,
        Output::Text => {
            text::report(snapshot, diagnosis, &options(settings, terminal), &mut out)?;
        }
    }
    out.flush()
}

/// How a text is to look.
pub(super) fn options(settings: &Settings, terminal: bool) -> text::TextOptions {
    text::TextOptions {
        verbose: settings.verbose > 0,
        colour: colour(settings.color, terminal),
        width: width(terminal),
    }
}

/// On terminals, unless NO_COLOR says no (no-color.org).
pub(super) fn colour(wanted: Color, terminal: bool) -> bool {
    match wanted {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
    }
}

/// Columns of the terminal; 100 where there is none.
fn width(terminal: bool) -> usize {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok().filter(|size| terminal && size.ws_col > 0);
    size.map_or(100, |size| usize::from(size.ws_col))
}
