//! The screen of a node that is well, or of which nothing can be said: what was watched, by name, and what it took.

use std::{cmp::Reverse, io};

use super::{
    View,
    block::{Block, LABEL, Line, labelled},
    node,
    problem::{head, tail, verdict},
};
use crate::{
    correlate::{Latency, ListOutcome, OciRuntime, ProcessKind, ProcessRow, RpcRow, Side, Snapshot},
    diagnose::Verdict,
    render::{
        escape, human,
        judgement::doubt,
        paint::Paint,
        table::{Align, Cell, Table},
        watched,
        wrap::clip,
    },
};

/// Notices and doubts on the screen.
const OTHERS: usize = 3;

/// Its blocks, in order.
pub(super) fn blocks(view: View<'_>) -> io::Result<Vec<Block>> {
    let (width, snapshot, diagnosis) = (view.width, view.snapshot, view.diagnosis);
    let labelled_block = |label, text: &str, rank| Block::labelled(label, text, width, 1, rank);
    let is_healthy = diagnosis.verdict == Verdict::Healthy;
    let mut blocks = head(view);
    blocks.push(verdict(view, 3));
    if !is_healthy {
        let texts = diagnosis.doubts.iter().skip(1).map(doubt).map(|text| clip(&text, width - LABEL));
        blocks.push(Block::cut(labelled("also", texts.take(OTHERS).collect()), 0, 3));
        let first = "plegtrace doctor   # what this kernel, these programs and these privileges allow";
        blocks.push(labelled_block("do", first, 0));
    }
    blocks.push(labelled_block("node", &node::last_list(snapshot), 0));
    blocks.push(labelled_block("runtime", &watched::runtime(snapshot), 4));
    let seen = watched::seen(snapshot);
    if !seen.is_empty() {
        blocks.push(labelled_block("watched", &seen, 4));
    }
    blocks.push(labelled_block("not", &watched::not_seen(snapshot), 4));
    let notices = diagnosis.split().1.iter().map(|finding| {
        clip(&format!("{}  {}", finding.rule.id, escape::line(&finding.headline)), width - LABEL)
    });
    let notices: Vec<String> = notices.collect();
    if !notices.is_empty() {
        let mut lines = labelled("notice", notices.iter().take(OTHERS).cloned().collect());
        if notices.len() > OTHERS {
            lines.push(Line::Labelled(
                "",
                format!("{} more, -v", human::count((notices.len() - OTHERS) as u64)),
            ));
        }
        blocks.push(Block::cut(lines, 1, 5));
    }
    blocks.push(Block::blank(8));
    blocks.push(figures(view)?);
    blocks.push(Block::blank(9));
    blocks.extend(tail(view));
    Ok(blocks)
}

/// What relists, calls, runc and network plugins took, one line each.
fn figures(view: View<'_>) -> io::Result<Block> {
    let snapshot = view.snapshot;
    let right = Align::Right;
    let columns = [
        ("", Align::Left),
        ("count", right),
        ("failed", right),
        ("p50", right),
        ("p99", right),
        ("max", right),
    ];
    let mut table = Table::new(&columns);
    let rows = rows(snapshot);
    if rows.is_empty() {
        return Ok(Block::whole(Vec::new()));
    }
    for row in rows {
        table.row(row);
    }
    let mut text = Vec::new();
    table.write(&mut text, Paint { colour: false }, view.width)?;
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<Line> = text.lines().map(|line| Line::Plain(line.to_owned())).collect();
    Ok(Block::rows(lines, 3, 6, "--show calls"))
}

fn rows(snapshot: &Snapshot) -> Vec<Vec<Cell>> {
    let mut rows = Vec::new();
    let of = |side: Side| snapshot.rows.iter().filter(move |row| row.key.side == side);
    let lists = |outcome| snapshot.relists.iter().filter(|relist| relist.list == outcome).count() as u64;
    let known = lists(ListOutcome::Ok) + lists(ListOutcome::Failed) > 0;
    let no_list = if known { human::count(lists(ListOutcome::Failed)) } else { "?".to_owned() };
    rows.extend(of(Side::Relist).map(|row| cells("relist", &row.latency, &no_list)));
    let processes = &snapshot.processes.rows;
    let runc = |row: &&ProcessRow| matches!(row.kind, ProcessKind::Runc { .. });
    let cni = |row: &&ProcessRow| matches!(row.kind, ProcessKind::Cni { .. });
    let mut calls: Vec<&RpcRow> = of(Side::Counted).collect();
    calls.sort_by_key(|row| (Reverse(row.latency.max_ns()), &row.key));
    rows.extend(together(oci(processes), processes.iter().filter(runc)));
    rows.extend(together("network plugins", processes.iter().filter(cni)));
    rows.extend(
        calls
            .into_iter()
            .map(|row| cells(&escape::text_to(&row.key.operation, 28), &row.latency, &failed(row))),
    );
    rows
}

/// The program that starts containers, by what ran; `runc` where several did.
fn oci(rows: &[ProcessRow]) -> &'static str {
    let mut all = rows.iter().filter_map(|row| match &row.kind {
        ProcessKind::Runc { by, .. } => Some(*by),
        _ => None,
    });
    let first = all.next().unwrap_or_default();
    if all.all(|by| by == first) { first.name() } else { OciRuntime::default().name() }
}

/// All commands of a program as one row.
fn together<'a>(name: &str, rows: impl Iterator<Item = &'a ProcessRow>) -> Option<Vec<Cell>> {
    let mut sum = Latency::default();
    let mut failed = 0;
    for row in rows {
        sum.add(&row.latency);
        failed += row.failed + row.killed;
    }
    (sum.count() > 0).then(|| cells(name, &sum, &human::count(failed)))
}

fn cells(name: &str, latency: &Latency, failed: &str) -> Vec<Cell> {
    let quantile = |q| latency.quantile_ns(q).map_or_else(|| "–".into(), human::duration);
    vec![
        name.into(),
        human::count(latency.count()).into(),
        failed.into(),
        quantile(0.5).into(),
        quantile(0.99).into(),
        quantile(1.0).into(),
    ]
}

/// How many failed; "?" where results are not seen.
fn failed(row: &RpcRow) -> String {
    match (row.unknown, row.ok() + row.failed) {
        (0, _) => human::count(row.failed),
        (_, 0) => "?".into(),
        _ => format!("≥ {}", human::count(row.failed)),
    }
}
