//! The short-lived processes behind the runtime: those that have not ended, and figures of those that have.

use std::{cmp::Reverse, io};

use super::page::Page;
use crate::{
    correlate::{OpenProcess, ProcessRow, thresholds::SECOND_NS},
    render::{
        escape, human,
        table::{Align, Cell, Table, Tone},
    },
    words,
};

/// Younger ones are the node's daily work.
const WORTH_SHOWING_NS: u64 = SECOND_NS;
/// Characters of a container id that tools print.
const SHORT_ID: usize = 12;
/// Place of the column that says what a runc is doing; it is left out when that is not seen of any.
const PHASE: usize = 3;

/// Writes the open ones, then the figures.
pub(super) fn write(page: &mut Page<'_>) -> io::Result<()> {
    let processes = &page.snapshot.processes;
    if processes.read_at.is_none() || (processes.open.is_empty() && processes.rows.is_empty()) {
        return Ok(());
    }
    let ended: u64 = processes.rows.iter().map(|row| row.latency.count()).sum();
    let late = processes.open.iter().filter(|process| process.late).count();
    let mut rest =
        format!("{} ended, {} open", human::count(ended), human::count(processes.open.len() as u64));
    if late > 0 {
        rest = format!("{rest}, {} too long", human::count(late as u64));
    }
    page.section("Processes", &rest)?;
    open(page)?;
    figures(page)
}

fn open(page: &mut Page<'_>) -> io::Result<()> {
    let all = &page.snapshot.processes.open;
    let shown: Vec<&OpenProcess> =
        all.iter().filter(|process| page.verbose || process.age_ns >= WORTH_SHOWING_NS).collect();
    if shown.is_empty() {
        return Ok(());
    }
    let mut columns = vec![
        ("age", Align::Right),
        ("pid", Align::Right),
        ("command", Align::Left),
        ("container", Align::Left),
        ("started by", Align::Left),
    ];
    let rows = page.rows(shown.len());
    let phases = shown[..rows].iter().any(|process| !process.phases.is_empty());
    if phases {
        columns.insert(PHASE, ("in", Align::Left));
    }
    let mut table = Table::new(&columns);
    shown[..rows].iter().for_each(|process| table.row(open_row(process, phases)));
    table.write(page.out, page.paint, page.width)?;
    page.more(shown.len() - rows)
}

fn open_row(process: &OpenProcess, phases: bool) -> Vec<Cell> {
    let at_least = if process.at_least { "≥ " } else { "" };
    let mut command = process.kind.to_string();
    if let Some(under) = &process.under {
        command = format!("{command} (of {under})");
    }
    let container = process.container.as_deref().map_or_else(|| "–".into(), short);
    let parents =
        process.parents.iter().map(|(pid, kind)| format!("{} {pid}", escape::text_to(&kind.to_string(), 24)));
    let mut cells = vec![
        Cell::bad_if(format!("{at_least}{}", human::duration(process.age_ns)), process.late),
        process.pid.to_string().into(),
        Cell::bad_if(escape::text_to(&command, 40), process.late),
        container.into(),
        Cell::new(parents.collect::<Vec<_>>().join(" < "), Tone::Faint),
    ];
    if phases {
        let phase = words::phase_briefly(&process.phases);
        cells.insert(PHASE, phase.map_or_else(|| "–".into(), |phase| escape::text_to(&phase, 60).into()));
    }
    cells
}

/// A container id as tools print it.
pub(super) fn short(id: &str) -> String {
    escape::text_to(&id.chars().take(SHORT_ID).collect::<String>(), 4 * SHORT_ID)
}

fn figures(page: &mut Page<'_>) -> io::Result<()> {
    let mut rows: Vec<&ProcessRow> = page.snapshot.processes.rows.iter().collect();
    if rows.is_empty() {
        return Ok(());
    }
    rows.sort_by_key(|row| (Reverse(row.latency.sum_ns()), &row.kind));
    let right = Align::Right;
    let mut table = Table::new(&[
        ("command", Align::Left),
        ("count", right),
        ("p50", right),
        ("p90", right),
        ("p99", right),
        ("max", right),
        ("failed", right),
        ("killed", right),
    ]);
    let shown = page.rows(rows.len());
    rows[..shown].iter().for_each(|row| table.row(figures_row(row)));
    table.write(page.out, page.paint, page.width)?;
    page.more(rows.len() - shown)
}

fn figures_row(row: &ProcessRow) -> Vec<Cell> {
    let quantile = |q| row.latency.quantile_ns(q).map_or_else(|| "–".into(), human::duration);
    vec![
        escape::text_to(&row.kind.to_string(), 36).into(),
        human::count(row.latency.count()).into(),
        quantile(0.5).into(),
        quantile(0.9).into(),
        quantile(0.99).into(),
        quantile(1.0).into(),
        human::count(row.failed).into(),
        Cell::bad_if(human::count(row.killed), row.killed > 0),
    ]
}
