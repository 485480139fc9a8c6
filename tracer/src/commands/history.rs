//! `plegtrace history`: the windows that `watch` has written, as a table or as JSON.

use std::{
    io::{self, BufWriter, Write},
    path::Path,
    time::Duration,
};

use super::CommandError;
use crate::{
    cli::{Output, Settings},
    clock,
    exit::Exit,
    render::history,
    watch::{Entry, read_history, select},
};

/// Prints what there is since then.
///
/// # Errors
///
/// There is no history, or stdout cannot be written.
pub(crate) fn run(dir: &Path, since: Option<Duration>, settings: &Settings) -> Result<Exit, CommandError> {
    let failed = |source| CommandError::History { dir: dir.to_owned(), source };
    let now =
        i64::try_from(clock::monotonic_ns()).unwrap_or(i64::MAX).saturating_add(clock::realtime_offset_ns());
    let from = since.map(|since| now.saturating_sub(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)));
    let entries = select(read_history(dir).map_err(failed)?, from);
    write(&entries, settings).map_err(CommandError::Write)?;
    Ok(Exit::Healthy)
}

fn write(entries: &[Entry], settings: &Settings) -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    match settings.output {
        Output::Json => {
            serde_json::to_writer(&mut out, entries)?;
            writeln!(out)?;
        }
        Output::Text | Output::Folded | Output::Svg | Output::Perfetto => {
            let rows: Vec<history::Row<'_>> = entries.iter().map(row).collect();
            history::table(&rows, &mut out)?;
        }
    }
    out.flush()
}

fn row(entry: &Entry) -> history::Row<'_> {
    history::Row {
        unix_ns: entry.at_unix_ns,
        window_ns: entry.window_ns,
        verdict: &entry.verdict,
        id: entry.id.as_deref().unwrap_or(""),
        component: entry.component.as_deref().unwrap_or(""),
        relists: entry.relists.count,
        p50_ns: entry.relists.p50_ns,
        p99_ns: entry.relists.p99_ns,
        calls: entry.client.values().fold(0, |sum, it| sum.saturating_add(it.count)),
        open: entry.open,
        cpu_ns: entry.cpu_ns,
        lost: entry.lost,
    }
}
