//! What people do on the node meanwhile: runc and tools for containers that were typed by hand. Nothing of it is the node's.

use std::io;

use super::page::Page;
use crate::{
    correlate::ProcessSeen,
    input::Command,
    render::{
        escape, human,
        table::{Align, Cell, Table, Tone},
    },
    words,
};

/// Writes them.
pub(super) fn write(page: &mut Page<'_>) -> io::Result<()> {
    let snapshot = page.snapshot;
    let all = &snapshot.census.by_hand;
    if all.is_empty() {
        return Ok(());
    }
    page.section(
        "Typed by hand",
        &format!("{} running, not the node's own", human::count(all.len() as u64)),
    )?;
    let columns =
        [("age", Align::Right), ("pid", Align::Right), ("command", Align::Left), ("in", Align::Left)];
    let mut table = Table::new(&columns);
    let fit = page.rows(all.len());
    for seen in &all[..fit] {
        table.row(row(seen, snapshot.now.0));
    }
    table.write(page.out, page.paint, page.width)?;
    page.more(all.len() - fit)
}

fn row(seen: &ProcessSeen, now_ns: u64) -> Vec<Cell> {
    let fact = &seen.fact;
    let age = fact.started_ns.map(|started| human::duration(now_ns.saturating_sub(started)));
    let command = match &fact.command {
        Some(command @ Command::Runc { .. }) => words::command_words(command, &fact.comm),
        _ => fact.comm.clone(),
    };
    vec![
        age.unwrap_or_default().into(),
        fact.pid.to_string().into(),
        escape::text_to(&command, 40).into(),
        Cell::new(escape::text(fact.by_hand.as_deref().unwrap_or_default()), Tone::Faint),
    ]
}
