//! Calls over D-Bus: one row per method, and those that have no answer for long, with who does not answer.

use std::{cmp::Reverse, io};

use super::page::Page;
use crate::{
    correlate::{BusRow, OpenBusCall, thresholds::SECOND_NS},
    decode::BusKind,
    render::{
        escape, human,
        table::{Align, Cell, Table, Tone},
    },
    words,
};

/// Younger ones are daily work.
const WORTH_SHOWING_NS: u64 = SECOND_NS;
/// Widest name of a method.
const NAME: usize = 40;

/// Writes the section when there were calls.
pub(super) fn write(page: &mut Page<'_>) -> io::Result<()> {
    let bus = &page.snapshot.bus;
    if bus.rows.is_empty() {
        return Ok(());
    }
    let mut rows: Vec<&BusRow> = bus.rows.iter().collect();
    rows.sort_by_key(|row| (Reverse(row.latency.sum_ns()), &row.names));
    let answered: u64 =
        rows.iter().filter(|row| row.kind == BusKind::Call).map(|row| row.latency.count()).sum();
    page.section("D-Bus calls", &format!("{} answered", human::count(answered)))?;
    let right = Align::Right;
    let mut table = Table::new(&[
        ("method", Align::Left),
        ("count", right),
        ("errors", right),
        ("unanswered", right),
        ("open", right),
        ("p50", right),
        ("p99", right),
        ("max", right),
        ("", Align::Left),
    ]);
    let shown = page.rows(rows.len());
    rows[..shown].iter().for_each(|row| table.row(cells(row)));
    table.write(page.out, page.paint, page.width)?;
    page.more(rows.len() - shown)?;
    open(page)
}

fn cells(row: &BusRow) -> Vec<Cell> {
    let latency = &row.latency;
    let quantile = |q| latency.quantile_ns(q).map_or_else(|| "–".into(), human::duration);
    let error = row.last_error.as_deref().map_or("", |name| name.rsplit('.').next().unwrap_or_default());
    vec![
        escape::text_to(&words::bus_method(&row.names, row.kind), NAME).into(),
        human::count(latency.count()).into(),
        Cell::bad_if(human::count(row.errors), row.errors > 0),
        Cell::bad_if(human::count(row.unanswered), row.unanswered > 0),
        human::count(row.open).into(),
        quantile(0.5).into(),
        quantile(0.99).into(),
        quantile(1.0).into(),
        Cell::new(escape::text_to(error, NAME), Tone::Faint),
    ]
}

/// `≥ 5.0 s` of one that was there before.
fn age(call: &OpenBusCall) -> String {
    let sign = if call.fact.before { "≥ " } else { "" };
    format!("{sign}{}", human::duration(call.age_ns))
}

/// Those that should have been answered, oldest first; all of them when verbose.
fn open(page: &mut Page<'_>) -> io::Result<()> {
    let (verbose, bus) = (page.verbose, &page.snapshot.bus);
    let worth = |open: &&OpenBusCall| verbose || open.age_ns >= WORTH_SHOWING_NS;
    let open: Vec<&OpenBusCall> = bus.open.iter().filter(worth).collect();
    if open.is_empty() {
        return Ok(());
    }
    let jobs = open.iter().filter(|call| call.fact.job).count();
    let count = |of: usize, name| (of > 0).then(|| human::plural(of as u64, name));
    let counts: Vec<String> =
        [count(open.len() - jobs, "call"), count(jobs, "job")].into_iter().flatten().collect();
    let rest = format!("{}, oldest first", counts.join(" and "));
    page.section(if jobs == 0 { "D-Bus calls without an answer" } else { "Not done over D-Bus" }, &rest)?;
    let columns =
        [("age", Align::Right), ("method", Align::Left), ("by", Align::Left), ("waits for", Align::Left)];
    let mut table = Table::new(&columns);
    let shown = page.rows(open.len());
    for call in &open[..shown] {
        table.row(vec![
            Cell::bad_if(age(call), call.age_ns >= WORTH_SHOWING_NS),
            escape::text_to(&words::bus_method(&words::bus_names(&call.fact), call.kind()), NAME).into(),
            escape::text(&words::bus_caller(&call.fact)).into(),
            escape::text(&words::bus_waits_for(call, bus)).into(),
        ]);
    }
    table.write(page.out, page.paint, page.width)?;
    page.more(open.len() - shown)?;
    bus.peers.iter().try_for_each(|peer| page.indented("", &escape::line(&words::bus_peer(peer))))
}
