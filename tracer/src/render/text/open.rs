//! What is in flight: open calls with their ages, oldest first, and who still waits for them; those that began before the
//! probes too.

use std::io;

use super::page::Page;
use crate::{
    correlate::{Caller, OpenCall, Request, Snapshot, thresholds::SECOND_NS},
    cri::Method,
    input::{Layer, Liveness},
    render::{
        escape, human,
        leaves::place,
        table::{Align, Cell, Table, Tone},
    },
    words,
};

/// Younger calls are the node's daily work.
const WORTH_SHOWING_NS: u64 = SECOND_NS;

/// Writes the open calls.
pub(super) fn write(page: &mut Page<'_>) -> io::Result<()> {
    let snapshot = page.snapshot;
    if snapshot.open_read_at.is_none() {
        return Ok(());
    }
    let (all, untraced) = (&snapshot.open, snapshot.untraced());
    let rows = lines(snapshot, page.verbose);
    let count = untraced.iter().map(|request| u64::from(request.count)).sum::<u64>() + all.len() as u64;
    let abandoned = all.iter().filter(|call| call.is_abandoned(snapshot.now)).count();
    let mut rest = format!("{} open, oldest first", human::count(count));
    if rows.is_empty() {
        rest = format!("none older than 1 s ({} in progress)", human::count(count));
    } else if abandoned > 0 {
        rest = format!("{rest}, {} abandoned by the kubelet", human::count(abandoned as u64));
    }
    page.section("Open calls", &rest)?;
    if rows.is_empty() {
        return Ok(());
    }
    let columns = [("age", Align::Right), ("where", Align::Left), ("call", Align::Left), ("", Align::Left)];
    let mut table = Table::new(&columns);
    let fit = page.rows(rows.len());
    for line in &rows[..fit] {
        let tone = if line.bad { Tone::Bad } else { Tone::Faint };
        let [age, place, call] = [&line.age, &line.place, &line.call].map(|text| Cell::from(text.clone()));
        table.row(vec![age, place, call, Cell::new(line.note.clone(), tone)]);
    }
    table.write(page.out, page.paint, page.width)?;
    page.more(rows.len() - fit)
}

/// An open call as a person reads it; harmless.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenLine {
    /// Its age, nanoseconds.
    pub age_ns: u64,
    /// Its age.
    pub age: String,
    /// Component and process.
    pub place: String,
    /// What is called.
    pub call: String,
    /// What there is to say of it.
    pub note: String,
    /// Its caller has given it up.
    pub bad: bool,
}

/// The open calls, oldest first; those of the node's daily work only when `all` are wanted.
#[must_use]
pub fn lines(snapshot: &Snapshot, all: bool) -> Vec<OpenLine> {
    let shown = snapshot.open.iter().filter(|call| all || call.age_ns >= WORTH_SHOWING_NS);
    // How old they are is not known, so none is too young.
    let untraced = snapshot.untraced();
    let untraced = untraced.iter().map(untraced_line);
    let mut lines: Vec<OpenLine> = shown.map(|call| line(call, snapshot)).chain(untraced).collect();
    lines.sort_by_key(|line| std::cmp::Reverse(line.age_ns));
    lines
}

fn line(call: &OpenCall, snapshot: &Snapshot) -> OpenLine {
    let span = &call.span;
    OpenLine {
        age_ns: call.age_ns,
        age: human::duration(call.age_ns),
        place: format!("{} {}", span.component().name(), span.id.tgid),
        call: escape::text_to(&name(span.layer(), span.operation()), 40),
        note: note(call, snapshot),
        bad: call.is_abandoned(snapshot.now),
    }
}

/// A call that began before the probes: its goroutine was found in it.
fn untraced_line(request: &Request) -> OpenLine {
    let age = match request.since.ns {
        0 => "≥ 0 s".to_owned(),
        ns => format!("≥ {}", human::duration(ns)),
    };
    let times = if request.count == 1 {
        String::new()
    } else {
        format!("{} × ", human::count(request.count.into()))
    };
    let note = format!("found by its stack, {}", words::waits_for(request));
    OpenLine {
        age_ns: request.since.ns,
        age,
        place: format!("{} {}", request.component.name(), request.pid),
        call: escape::text_to(&format!("{times}{}", request.operation), 40),
        note: escape::text(&note),
        bad: false,
    }
}

/// A call and its place in the chain, where the bare name would mislead.
pub(super) fn name(layer: Layer, operation: &str) -> String {
    match layer {
        Layer::Relist => "relist".into(),
        Layer::PodRelist => "relist of one pod".into(),
        Layer::ListPhase => format!("{operation}, list phase"),
        Layer::StatusPhase => format!("{operation}, status phase"),
        Layer::KubeletClient => format!("{operation}, bare client"),
        Layer::KubeletCall | Layer::Handler | Layer::RuncPhase | Layer::Mark | Layer::Process => {
            operation.to_owned()
        }
    }
}

fn note(call: &OpenCall, snapshot: &Snapshot) -> String {
    let mut notes: Vec<String> = Vec::new();
    match call.caller {
        _ if call.replied => notes.push("reply handed over".into()),
        Caller::Gone(at) => {
            notes.push(format!("abandoned {} ago", human::duration(snapshot.now.since(at))));
        }
        Caller::Foreign => notes.push("other caller".into()),
        Caller::Own => notes.push("asked by plegtrace".into()),
        Caller::Unknown => {
            let deadline = call.span.method().and_then(Method::deadline_ns);
            let passed = deadline.filter(|deadline| call.age_ns > *deadline);
            notes.extend(passed.map(|limit| format!("past the deadline of {}", human::minutes(limit))));
        }
        Caller::Waiting | Caller::NotAsked => {}
    }
    if let Some(park) = call.span.parks.last().filter(|park| park.open) {
        notes.push(format!("parked {}", place(&park.stack)));
    }
    if call.span.is_long_lived() {
        notes.push("long-lived".into());
    }
    if call.span.liveness == Some(Liveness::Unknown) {
        notes.push("goroutine not checked".into());
    }
    notes.join(", ")
}
