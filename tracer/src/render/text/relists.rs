//! One row per relist.

use std::io;

use super::page::Page;
use crate::{
    correlate::{ListOutcome, Relist, Side, Snapshot},
    render::{
        human,
        table::{Align, Cell, Table, Tone},
    },
};

/// Writes the relists: all when few, else those that are open or failed and the youngest.
pub(super) fn write(page: &mut Page<'_>) -> io::Result<()> {
    let snapshot = page.snapshot;
    let all = &snapshot.relists;
    if all.is_empty() {
        return Ok(());
    }
    let failed = all.iter().filter(|relist| relist.list == ListOutcome::Failed).count();
    let seen = format!("{} seen, {failed} failed{}", human::count(all.len() as u64), lengths(snapshot));
    page.section("Relists", &seen)?;
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by_key(|&place| {
        (!all[place].root().is_open(), all[place].list != ListOutcome::Failed, usize::MAX - place)
    });
    order.truncate(page.rows(all.len()));
    order.sort_unstable();
    let right = Align::Right;
    let mut table = Table::new(&[
        ("start", Align::Left),
        ("duration", right),
        ("interval", right),
        ("list phase", right),
        ("status phase", right),
        ("pods", right),
        ("calls", right),
        ("list", Align::Left),
    ]);
    order.iter().for_each(|&place| table.row(row(&all[place], snapshot)));
    table.write(page.out, page.paint, page.width)?;
    page.more(all.len() - order.len())
}

/// Percentiles of the finished ones; of one there are none.
fn lengths(snapshot: &Snapshot) -> String {
    let finished = snapshot.rows.iter().filter(|row| row.key.side == Side::Relist);
    let Some(row) = finished.max_by_key(|row| row.latency.count()).filter(|row| row.latency.count() > 1)
    else {
        return String::new();
    };
    let quantile = |q| row.latency.quantile_ns(q).map_or_else(String::new, human::duration);
    let (median, slow, most) = (quantile(0.5), quantile(0.99), quantile(1.0));
    format!(", p50 {median}, p99 {slow}, max {most}")
}

fn row(relist: &Relist, snapshot: &Snapshot) -> Vec<Cell> {
    let root = relist.root();
    let mut duration = human::duration(root.duration_ns(snapshot.now));
    if root.is_open() {
        duration.insert_str(0, "≥ ");
    }
    let status = if relist.status_pods == 0 { "–".into() } else { human::duration(relist.status_ns) };
    let list = match relist.list {
        ListOutcome::Ok => Cell::from("ok"),
        ListOutcome::Failed => Cell::new("failed", Tone::Bad),
        ListOutcome::Pending => Cell::new("pending", Tone::Plain),
        ListOutcome::Unknown => Cell::new("not seen", Tone::Faint),
    };
    vec![
        human::clock(snapshot.wall_ns(root.start())).into(),
        Cell::bad_if(duration, root.is_open()),
        relist.interval_ns.map_or_else(|| "–".into(), human::duration).into(),
        relist.list_ns.map_or_else(|| "–".into(), human::duration).into(),
        status.into(),
        human::count(relist.status_pods).into(),
        calls(relist).into(),
        list,
    ]
}

fn calls(relist: &Relist) -> String {
    let calls = human::count(relist.calls);
    if relist.failed_calls == 0 {
        calls
    } else {
        format!("{calls}, {} failed", human::count(relist.failed_calls))
    }
}
