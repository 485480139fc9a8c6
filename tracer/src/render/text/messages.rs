//! Requests between runtime and shims, between kubelet and runtime, and to Docker: one row per method, and those that have no
//! answer for long.

use std::{cmp::Reverse, io};

use super::{other_clients, page::Page};
use crate::{
    correlate::{MessageRow, Messages, OpenMessage, Snapshot, thresholds::SECOND_NS},
    input::Component,
    render::{
        escape, human,
        table::{Align, Cell, Table, Tone},
    },
};

/// As much of an id as `docker ps` shows.
const SHORT_ID: usize = 12;
/// With this begins a method whose name is not known.
const UNKNOWN: &str = "unknown#";
/// Younger ones are daily work.
const WORTH_SHOWING_NS: u64 = SECOND_NS;

/// Writes the sections when these requests are followed.
pub(super) fn write(page: &mut Page<'_>) -> io::Result<()> {
    let snapshot = page.snapshot;
    // Below a dockershim nobody asks so.
    if !snapshot.grpc.rows.is_empty() || snapshot.docker.rows.is_empty() {
        write_one(page, &snapshot.grpc, "CRI calls on the wire (gRPC)", "CRI calls without an answer")?;
    }
    write_one(page, &snapshot.docker, "Docker API calls (HTTP)", "Docker API calls without an answer")?;
    other_clients::write(page)?;
    if !snapshot.messages.rows.is_empty() || has_shims(snapshot) {
        write_one(page, &snapshot.messages, "Shim calls (ttrpc)", "Shim calls without an answer")?;
    }
    Ok(())
}

/// Is there somebody to be called? CRI-O has no shims that speak ttrpc.
fn has_shims(snapshot: &Snapshot) -> bool {
    let mut seen = snapshot.census.processes.iter().map(|seen| seen.fact.component);
    let mut targets = snapshot.targets.iter().map(|target| target.fact.component);
    // Whoever calls shims has them sooner or later.
    targets.any(|component| matches!(component, Component::Shim | Component::Containerd))
        || seen.any(|component| component == Component::Shim)
}

fn write_one(page: &mut Page<'_>, messages: &Messages, title: &str, title_of_open: &str) -> io::Result<()> {
    if messages.read_at.is_none() || messages.rows.is_empty() && messages.open.is_empty() {
        return Ok(());
    }
    let (nameless, mut rows): (Vec<&MessageRow>, Vec<&MessageRow>) =
        messages.rows.iter().partition(|row| is_nameless(row));
    rows.sort_by_key(|row| (Reverse(row.latency.sum_ns()), &row.service, &row.method));
    let answered: u64 = messages.rows.iter().map(|row| row.latency.count()).sum();
    page.section(title, &format!("{} answered", human::count(answered)))?;
    if messages.rows.is_empty() {
        return Ok(());
    }
    if rows.is_empty() {
        without_name(page, &nameless)?;
        return open(page, messages, title_of_open);
    }
    let right = Align::Right;
    let mut table = Table::new(&[
        ("method", Align::Left),
        ("count", right),
        ("unanswered", right),
        ("open", right),
        ("p50", right),
        ("p99", right),
        ("max", right),
    ]);
    let shown = page.rows(rows.len());
    rows[..shown].iter().for_each(|row| table.row(cells(row)));
    table.write(page.out, page.paint, page.width)?;
    page.more(rows.len() - shown)?;
    without_name(page, &nameless)?;
    open(page, messages, title_of_open)
}

/// A connection is older than plegtrace, and its header table with it.
fn is_nameless(row: &MessageRow) -> bool {
    row.method.is_empty() || row.method.starts_with(UNKNOWN)
}

/// `11 requests whose method is not known yet`.
fn without_name(page: &mut Page<'_>, rows: &[&MessageRow]) -> io::Result<()> {
    let count: u64 = rows.iter().map(|row| row.latency.count() + row.unanswered + row.open).sum();
    if count == 0 {
        return Ok(());
    }
    page.indented("", &format!("{} whose method is not known yet", human::plural(count, "request")))
}

fn cells(row: &MessageRow) -> Vec<Cell> {
    let mut cells = vec![escape::text_to(&name(&row.service, &row.method), 40).into()];
    cells.extend(figures(row));
    cells
}

/// How many of a method there were, and how long they took.
pub(super) fn figures(row: &MessageRow) -> [Cell; 6] {
    let latency = &row.latency;
    let quantile = |q| latency.quantile_ns(q).map_or_else(|| "–".into(), human::duration);
    [
        human::count(latency.count()).into(),
        Cell::bad_if(human::count(row.unanswered), row.unanswered > 0),
        human::count(row.open).into(),
        quantile(0.5).into(),
        quantile(0.99).into(),
        quantile(1.0).into(),
    ]
}

/// `Task/State`; the version of the service is of no use to who reads this.
pub(super) fn name(service: &str, method: &str) -> String {
    if method.is_empty() {
        return "name not read".to_owned();
    }
    if let Some(number) = method.strip_prefix(UNKNOWN) {
        return format!("not known yet (#{})", number.split(['.', '@']).next().unwrap_or_default());
    }
    if service.is_empty() {
        return method.to_owned();
    }
    format!("{}/{method}", service.rsplit('.').next().unwrap_or_default())
}

/// Those that should have been answered, oldest first; all of them when verbose.
fn open(page: &mut Page<'_>, messages: &Messages, title: &str) -> io::Result<()> {
    let verbose = page.verbose;
    let worth = |open: &&OpenMessage| verbose || open.should_end() && open.age_ns >= WORTH_SHOWING_NS;
    let open: Vec<&OpenMessage> = messages.open.iter().filter(worth).collect();
    if open.is_empty() {
        return Ok(());
    }
    let rest = format!("{}, oldest first", human::plural(open.len() as u64, "request"));
    page.section(title, &rest)?;
    let columns = [
        ("age", Align::Right),
        ("method", Align::Left),
        ("from", Align::Left),
        ("to", Align::Left),
        ("", Align::Left),
    ];
    let mut table = Table::new(&columns);
    let shown = page.rows(open.len());
    for message in &open[..shown] {
        let fact = &message.fact;
        table.row(vec![
            Cell::bad_if(human::duration(message.age_ns), message.should_end()),
            escape::text_to(&name(&fact.service, &fact.method), 40).into(),
            process(page.snapshot, fact.asker).into(),
            process(page.snapshot, fact.answerer).into(),
            Cell::new(note(message), Tone::Faint),
        ]);
    }
    table.write(page.out, page.paint, page.width)?;
    page.more(open.len() - shown)
}

fn process(snapshot: &Snapshot, pid: u32) -> String {
    let target = snapshot.targets.iter().find(|target| target.fact.pid == pid);
    match target {
        _ if pid == 0 => "not known".to_owned(),
        Some(target) => format!("{} {pid}", target.fact.component.name()),
        None => pid.to_string(),
    }
}

fn note(message: &OpenMessage) -> String {
    let (fact, container) = (&message.fact, &message.fact.container);
    let of_container =
        (!container.is_empty()).then(|| format!("container {}", escape::text_to(container, SHORT_ID)));
    let unsent = fact.unsent.then(|| "not sent: the buffer of the socket is full".to_owned());
    let lasts = message.is_long_lived.then(|| "lasts by design".to_owned());
    let unread = |bytes: Option<u32>, who: &str| {
        bytes
            .filter(|bytes| *bytes > 0)
            .map(|bytes| format!("{who}: {} B unread", human::count(bytes.into())))
    };
    let ends = [unread(fact.unread, "asker"), unread(fact.unread_by_answerer, "answerer")];
    let notes = of_container.into_iter().chain(unsent.or(lasts)).chain(ends.into_iter().flatten());
    notes.collect::<Vec<_>>().join(", ")
}
