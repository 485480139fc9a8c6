//! Writes the report to stdout in the form and colours asked for.

use std::{
    fs::File,
    io::{self, BufWriter, IsTerminal, Write},
    path::PathBuf,
};

use super::CommandError;
use crate::{
    chain::chain,
    cli::{Color, Output, Settings, Show},
    correlate::Snapshot,
    diagnose::{Diagnosis, Verdict},
    exit::Exit,
    flame::Flame,
    otlp::{self, Sent},
    render::{
        flame::{self, Caption, Per, Saved, SavedError},
        human, json, perfetto,
        text::{self, Section},
    },
    timeline::Timeline,
};

/// The exit code that goes with a report.
pub(super) fn exit_code(verdict: Verdict) -> Exit {
    match verdict {
        Verdict::Healthy => Exit::Healthy,
        Verdict::Stall | Verdict::Failing | Verdict::Slow => Exit::Stall,
        Verdict::CannotTell => Exit::CannotTell,
    }
}

/// A flame graph that is wanted.
pub(super) struct Drawing {
    per: Per,
    before: Option<Saved>,
}

impl Drawing {
    /// What the settings ask for, with the earlier one to compare with; `None` when it is something else.
    ///
    /// # Errors
    ///
    /// The earlier one cannot be read.
    pub(super) fn prepare(settings: &Settings) -> Result<Option<Self>, CommandError> {
        if !settings.output.is_flame() {
            return Ok(None);
        }
        let read = |file: &PathBuf| {
            let failed = |source| CommandError::Against { file: file.clone(), source };
            let saved = File::open(file).map_err(SavedError::Read).and_then(Saved::read).map_err(failed)?;
            let per_whole =
                if saved.is_mean() && !settings.per_relist { Err(SavedError::Mean) } else { Ok(()) };
            per_whole.map_err(failed).map(|()| saved)
        };
        let before = settings.against.as_ref().map(read).transpose()?;
        Ok(Some(Self { per: if settings.per_relist { Per::Relist } else { Per::Whole }, before }))
    }
}

/// Writes the whole report.
///
/// # Errors
///
/// stdout cannot be written, for example because the reader went away.
pub(super) fn write(
    snapshot: &Snapshot,
    diagnosis: &Diagnosis,
    flame: Option<(&Drawing, &Flame)>,
    settings: &Settings,
) -> io::Result<()> {
    let stdout = io::stdout();
    let terminal = stdout.is_terminal();
    let mut out = BufWriter::new(stdout.lock());
    match (settings.output, flame) {
        (Output::Json, _) => json::report(snapshot, diagnosis, &mut out)?,
        (Output::Folded, Some((drawing, flame))) => {
            flame::folded(flame, drawing.per, drawing.before.as_ref(), &mut out)?;
        }
        (Output::Svg, Some((drawing, flame))) => {
            flame::svg(flame, drawing.per, drawing.before.as_ref(), &caption(snapshot), &mut out)?;
        }
        (Output::Perfetto, _) => perfetto::trace(snapshot, &Timeline::of(snapshot), &mut out)?,
        (Output::Text | Output::Folded | Output::Svg, _) => {
            text::report(snapshot, diagnosis, &options(settings, terminal), &mut out)?;
        }
    }
    out.flush()
}

/// Sends traces to the collector, if there is one, and says what came of it. Whether they arrive changes no verdict.
pub(super) fn send(snapshot: &Snapshot, settings: &Settings) -> Vec<String> {
    let Some(collector) = &settings.otlp else { return Vec::new() };
    match otlp::send(collector, otlp::requests(snapshot)) {
        Err(error) => vec![chain(&error)],
        Ok(Sent { spans, rejected }) if rejected > 0 => {
            vec![format!("the collector rejected {rejected} of {}", human::plural(spans, "span"))]
        }
        Ok(_) if settings.quiet => Vec::new(),
        Ok(Sent { spans: 0, .. }) => {
            vec!["no traces sent: no relist or request is open, has failed, or took a second".to_owned()]
        }
        Ok(Sent { spans, .. }) => vec![format!("sent {} to the collector", human::plural(spans, "span"))],
    }
}

/// What stands above a flame graph.
pub(super) fn caption(snapshot: &Snapshot) -> Caption {
    let (node, window) = (&snapshot.start.node, human::duration(snapshot.window.ns()));
    let until = human::rfc3339(snapshot.wall_ns(snapshot.now));
    let until = until.split('.').next().unwrap_or_default();
    Caption { about: format!("node {node}, {window} until {until}Z") }
}

/// How a text is to look.
pub(super) fn options(settings: &Settings, terminal: bool) -> text::TextOptions {
    text::TextOptions {
        verbose: settings.verbose > 0,
        show: settings.show.iter().map(|show| section(*show)).collect(),
        colour: colour(settings.color, terminal),
        width: width(terminal),
    }
}

fn section(show: Show) -> Section {
    match show {
        Show::Relists => Section::Relists,
        Show::Calls => Section::Calls,
        Show::Processes => Section::Processes,
        Show::Wire => Section::Wire,
        Show::Tree => Section::Tree,
        Show::Census => Section::Census,
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A contract with scripts: 0 says that nothing is wrong, and nothing else does.
    #[test]
    fn codes() {
        let all = Verdict::ALL;
        assert_eq!(all.map(|verdict| exit_code(verdict) as u8), [1, 1, 1, 0, 5]);
    }
}
