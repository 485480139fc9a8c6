//! The tables of calls: client side at the layer the kubelet counts, bare client calls, server side per process.

use std::{cmp::Reverse, collections::BTreeMap, io};

use plegtrace_common::hist::BUCKETS;

use super::page::Page;
use crate::{
    correlate::{RpcRow, Side},
    render::{
        escape, human,
        table::{Align, Cell, Table},
    },
};

/// Narrower pages have no histogram, and not this column.
const WIDTH_WITH_HISTOGRAM: usize = 96;
const P90: usize = 4;
/// Cells of a histogram, a factor of four each: below 16 µs, below 66 µs, … above 4.6 min.
const CELLS: usize = 14;
/// Bucket where the second cell begins.
const FIRST_BUCKET: usize = 14;
/// Head of the histogram: marks where 1 ms (2^20 ns) and 1 s (2^30 ns) begin.
const HISTOGRAM_HEAD: &str = "    ╷1ms ╷1s";
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Writes the tables that have rows.
pub(super) fn write(page: &mut Page<'_>) -> io::Result<()> {
    let mut tables: BTreeMap<(Side, String), Vec<&RpcRow>> = BTreeMap::new();
    for row in &page.snapshot.rows {
        let place = format!("{} {}", row.key.component.name(), row.key.tgid);
        match row.key.side {
            Side::Relist | Side::Phase => {}
            // Where a runc hangs is told with it; what its phases took is for who wants to know it all.
            Side::RuncPhase if !page.verbose => {}
            side => tables.entry((side, place)).or_default().push(row),
        }
    }
    for ((side, place), rows) in tables {
        let title = match side {
            Side::PodRelist => "Relists of one pod",
            Side::Counted => "Calls of the kubelet",
            Side::Bare => "Bare client calls",
            Side::RuncPhase => "runc phases",
            _ => "Handlers",
        };
        let note = match side {
            Side::PodRelist => format!("{place}, as kubelet_pleg_pod_relist_duration_seconds counts them"),
            Side::Counted => format!("{place}, at the layer its own metrics count"),
            Side::Bare => format!("{place}, outside that layer"),
            Side::RuncPhase => "all that ended, across all its processes".to_owned(),
            _ => place,
        };
        table(page, title, &note, rows)?;
    }
    Ok(())
}

fn table(page: &mut Page<'_>, title: &str, note: &str, mut rows: Vec<&RpcRow>) -> io::Result<()> {
    page.section(title, note)?;
    rows.sort_by_key(|row| (Reverse(row.latency.sum_ns()), &row.key));
    let histogram = page.width >= WIDTH_WITH_HISTOGRAM;
    let right = Align::Right;
    let mut columns = vec![
        ("operation", Align::Left),
        ("count", right),
        ("errors", right),
        ("p50", right),
        ("p90", right),
        ("p99", right),
        ("max", right),
    ];
    if histogram {
        columns.push((HISTOGRAM_HEAD, Align::Left));
    } else {
        columns.remove(P90);
    }
    let mut table = Table::new(&columns);
    let shown = page.rows(rows.len());
    for row in &rows[..shown] {
        table.row(cells(row, histogram));
    }
    table.write(page.out, page.paint, page.width)?;
    page.more(rows.len() - shown)
}

fn cells(row: &RpcRow, histogram: bool) -> Vec<Cell> {
    let latency = &row.latency;
    let quantile = |q| latency.quantile_ns(q).map_or_else(|| "–".into(), human::duration);
    let mut cells: Vec<Cell> = vec![
        escape::text_to(&operation(row), 28).into(),
        human::count(latency.count()).into(),
        Cell::bad_if(errors(row), row.failed > 0),
        quantile(0.5).into(),
        quantile(0.9).into(),
        quantile(0.99).into(),
        quantile(1.0).into(),
    ];
    if histogram {
        cells.push(bars(&buckets(row)).into());
    } else {
        cells.remove(P90);
    }
    cells
}

/// The operation, with the API version where it is not v1.
fn operation(row: &RpcRow) -> String {
    if row.key.side == Side::RuncPhase {
        let service = row.key.service.rsplit('/').next().unwrap_or_default();
        return format!("{}, {service}", row.key.operation);
    }
    let version = row.key.service.split('.').find(|part| part.starts_with("v1") && *part != "v1");
    match version {
        Some(version) => format!("{} {version}", row.key.operation),
        None => row.key.operation.clone(),
    }
}

/// Errors; "?" where results are not seen, "≥" where some are not.
fn errors(row: &RpcRow) -> String {
    match (row.unknown, row.ok() + row.failed) {
        (0, _) => human::count(row.failed),
        (_, 0) => "?".into(),
        _ => format!("≥ {}", human::count(row.failed)),
    }
}

/// The kernel's own histogram where it is of exactly these calls, else ours.
fn buckets(row: &RpcRow) -> Vec<u64> {
    match &row.kernel {
        Some(kernel) if kernel.calls > 0 => kernel.buckets.clone(),
        _ => row.latency.buckets().to_vec(),
    }
}

/// A histogram as a line of bars, their height logarithmic so that a single slow call is seen beside thousands.
fn bars(buckets: &[u64]) -> String {
    let mut cells = [0u64; CELLS];
    for (bucket, count) in buckets.iter().take(BUCKETS).enumerate() {
        let cell = (bucket + 2).saturating_sub(FIRST_BUCKET) / 2;
        let cell = &mut cells[cell.min(CELLS - 1)];
        *cell = cell.saturating_add(*count);
    }
    let most = cells.iter().max().map_or(0, |most| bits(*most));
    let bar = |count: &u64| match *count {
        0 => '·',
        count => BARS[((bits(count) * BARS.len() - 1) / most.max(1)).min(BARS.len() - 1)],
    };
    cells.iter().map(bar).collect()
}

/// Number of binary digits.
fn bits(n: u64) -> usize {
    (u64::BITS - n.leading_zeros()) as usize
}

#[cfg(test)]
mod tests {
    use plegtrace_common::hist::bucket;

    use super::*;

    fn bars_of(durations: &[u64]) -> String {
        let mut buckets = [0; BUCKETS];
        durations.iter().for_each(|ns| buckets[bucket(*ns)] += 1);
        bars(&buckets)
    }

    /// Bars stand where the head says.
    #[test]
    fn bars_stand_under_their_marks() {
        let marks = HISTOGRAM_HEAD.chars().enumerate().filter(|(_, c)| *c == '╷').map(|(at, _)| at);
        let bar = |ns| bars_of(&[ns]).chars().position(|c| c == '█').unwrap();
        assert_eq!(marks.collect::<Vec<_>>(), [bar(1 << 20), bar(1 << 30)]);
        assert_eq!((bar(0), bar((1 << 20) - 1), bar(u64::MAX)), (0, 3, CELLS - 1));
    }

    /// One outlier beside many is a low bar, not none.
    #[test]
    fn outliers_are_seen() {
        let mut durations = vec![1_100_000; 10_000];
        durations.push(120_000_000_000);
        assert_eq!(bars_of(&durations), "····█·······▁·");
    }
}
