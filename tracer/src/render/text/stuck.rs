//! What does not move: what it is, since when, where it is parked, and who waits for it.

use std::io;

use super::page::Page;
use crate::{
    render::{escape, human::plural, wrap::fold},
    stuck::{Stuck, StuckKind},
    words,
};

/// Width of the labels.
const LABEL: usize = 8;

/// Writes the section.
pub(super) fn write(page: &mut Page<'_>) -> io::Result<()> {
    let all = &page.diagnosis.stuck;
    if all.is_empty() {
        return Ok(());
    }
    page.section("Stuck", &format!("{}, what holds others up first", plural(all.len() as u64, "thing")))?;
    let rows = page.rows(all.len());
    for stuck in &all[..rows] {
        one(page, stuck)?;
    }
    page.more(all.len() - rows)
}

fn one(page: &mut Page<'_>, stuck: &Stuck) -> io::Result<()> {
    let verbose = page.verbose;
    let head =
        page.paint.title(&format!("{}, {}", escape::line(&words::what(stuck)), words::age(stuck.since)));
    writeln!(page.out, "  {head}")?;
    if let Some(phase) = words::phase(&stuck.phases) {
        line(page, "phase", &phase)?;
        if stuck.phases.len() > 1 && verbose {
            line(page, "", &words::phase_path(&stuck.phases))?;
        }
    }
    if let Some(container) = &stuck.container {
        line(page, "pod", &words::container_line(container))?;
    }
    for (place, waiter) in stuck.waiters.iter().enumerate() {
        line(page, if place == 0 { "waits" } else { "" }, &words::waiter_line(waiter))?;
    }
    // Where stopped threads were when they were stopped says little.
    let worth = if matches!(stuck.what, StuckKind::Stopped { .. }) { 0 } else { 2 };
    for (place, park) in stuck.parks.iter().take(if verbose { 64 } else { worth }).enumerate() {
        line(page, if place == 0 { "parked" } else { "" }, &words::park_line(park, verbose))?;
    }
    if !stuck.frames.is_empty() {
        line(page, "stack", &words::go_stack(&stuck.frames, verbose))?;
    }
    for socket in &stuck.sockets {
        line(page, "socket", &words::socket_line(socket))?;
    }
    Ok(())
}

/// One line of raw text.
fn line(page: &mut Page<'_>, label: &str, text: &str) -> io::Result<()> {
    let label = format!("{label:<LABEL$}");
    for (place, text) in fold(&escape::line(text), page.width - LABEL - 5).iter().enumerate() {
        let label = if place == 0 { page.paint.faint(&label) } else { " ".repeat(LABEL) };
        writeln!(page.out, "    {label} {text}")?;
    }
    Ok(())
}
