//! Where the time of relists goes, and that of the slowest requests.

use std::io;

use super::page::Page;
use crate::{
    correlate::{TimeTable, thresholds::SECOND_NS},
    render::{
        escape, human,
        judgement::part,
        table::{Align, Cell, Table},
    },
};

/// Rows that are shown when the report is not verbose.
const SHORT: usize = 6;
/// Requests that are shorter have no table, unless the report is verbose.
const WORTH_SHOWING_NS: u64 = SECOND_NS;

/// Where the time of relists goes.
pub(super) fn of_relists(page: &mut Page<'_>) -> io::Result<()> {
    let relists = &page.snapshot.relist_time;
    if relists.count == 0 {
        return Ok(());
    }
    let wall = human::duration(relists.wall_ns);
    let about = format!("{}{}, {wall} in all", human::plural(relists.count, "relist"), open(relists));
    page.section("Where relist time goes", &about)?;
    table(page, relists)
}

/// Where that of the slowest requests goes.
pub(super) fn of_request(page: &mut Page<'_>) -> io::Result<()> {
    let Some(request) = &page.snapshot.request_time else { return Ok(()) };
    if !page.verbose && request.table.wall_ns < WORTH_SHOWING_NS {
        return Ok(());
    }
    let title = format!("Where {} time goes", escape::text_to(&request.operation, 24));
    let longest = match request.table.count {
        1 => "the longest".to_owned(),
        count => format!("the {} longest", human::count(count)),
    };
    let wall = human::duration(request.table.wall_ns);
    page.section(&title, &format!("{longest}{}, {wall}", open(&request.table)))?;
    table(page, &request.table)
}

/// `, 1 open`.
fn open(table: &TimeTable) -> String {
    if table.open > 0 { format!(", {} open", human::count(table.open)) } else { String::new() }
}

fn table(page: &mut Page<'_>, times: &TimeTable) -> io::Result<()> {
    let right = Align::Right;
    let mut table = Table::new(&[
        ("part", Align::Left),
        ("time", right),
        ("share", right),
        ("p50", right),
        ("p99", right),
    ]);
    let shown = page.short(times.rows.len(), SHORT);
    for row in &times.rows[..shown] {
        let quantile = |q| match times.quantile_ns(row, q) {
            0 => "–".to_owned(),
            ns => human::duration(ns),
        };
        table.row(vec![
            part(&row.place).into(),
            human::duration(row.sum_ns).into(),
            human::share(row.sum_ns, times.wall_ns).into(),
            quantile(0.5).into(),
            quantile(0.99).into(),
        ]);
    }
    let rest = &times.rows[shown..];
    if !rest.is_empty() {
        let sum = rest.iter().map(|row| row.sum_ns).sum();
        let empty = || Cell::from("");
        table.row(vec![
            format!("{} more, -v", human::plural(rest.len() as u64, "part")).into(),
            human::duration(sum).into(),
            human::share(sum, times.wall_ns).into(),
            empty(),
            empty(),
        ]);
    }
    table.write(page.out, page.paint, page.width)
}
