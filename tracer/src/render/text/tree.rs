//! Spans as an indented tree with self times; the slowest relist as one.

use std::io;

use super::{open::name, page::Page};
use crate::{
    correlate::Relist,
    decode::CallResult,
    input::Layer,
    render::{
        escape, human,
        leaves::{Group, Kind, follows_parks, groups},
        table::{Align, Cell, Table, Tone},
        wrap::fold,
    },
    span::{Span, Tree, account, self_time_ns},
};

/// Children shown per span; the longest are kept.
const CHILDREN: usize = 6;
/// A leaf is shown when it takes at least this share of its tree: one part in so many.
const LEAF_SHARE: u64 = 50;
/// Columns that a leaf leaves for figures; more where the tree is open, and says so.
const FIGURES: usize = 24;
const OPEN_FIGURES: usize = 34;

/// Writes the tree of the open relist, else of the longest.
pub(super) fn write(page: &mut Page<'_>) -> io::Result<()> {
    let snapshot = page.snapshot;
    let length = |relist: &&Relist| (relist.root().is_open(), relist.root().duration_ns(snapshot.now));
    let Some(slowest) = snapshot.relists.iter().max_by_key(length) else { return Ok(()) };
    let start = human::clock(snapshot.wall_ns(slowest.root().start()));
    let what = if slowest.root().is_open() { "Open relist" } else { "Slowest relist" };
    page.section(what, &format!("began {start}"))?;
    draw(page, &slowest.tree)
}

/// What a leaf must weigh to be shown, and the columns it may take.
#[derive(Clone, Copy, Debug)]
struct LeafSize {
    least_ns: u64,
    columns: usize,
}

/// Writes a tree, and how much of it is measured.
pub(super) fn draw(page: &mut Page<'_>, tree: &Tree) -> io::Result<()> {
    let right = Align::Right;
    let mut table = Table::new(&[("", Align::Left), ("total", right), ("self", right), ("", Align::Left)]);
    let figures = if tree.root.is_open() { OPEN_FIGURES } else { FIGURES };
    let leaf = LeafSize {
        least_ns: tree.root.duration_ns(page.snapshot.now) / LEAF_SHARE,
        columns: page.width.saturating_sub(figures),
    };
    span(&mut table, &tree.root, 0, page, leaf);
    table.write(page.out, page.paint, page.width)?;
    explained(&tree.root, page)?;
    if tree.misfits > 0 {
        let text = format!("{} contradict the others and were left out", human::plural(tree.misfits, "call"));
        writeln!(page.out, "  {}", page.paint.faint(&text))?;
    }
    Ok(())
}

fn span(table: &mut Table, span_: &Span, level: usize, page: &Page<'_>, leaf: LeafSize) {
    let now = page.snapshot.now;
    let label = match span_.layer() {
        Layer::Handler => format!("{} {}", span_.component().name(), span_.operation()),
        Layer::Process => format!("{}, pid {}", span_.operation(), span_.id.tgid),
        layer => name(layer, span_.operation()),
    };
    let length = human::duration(span_.duration_ns(now));
    let inner = if page.verbose { span_ } else { same_call(span_) };
    let own = self_time_ns(span_, now);
    let self_ns = if std::ptr::eq(inner, span_) { own } else { own + self_time_ns(inner, now) };
    let total = if span_.is_open() { format!("≥ {length}") } else { length };
    table.row(vec![
        format!("{}{}", "  ".repeat(level.min(16)), escape::text_to(&label, 48)).into(),
        Cell::bad_if(total, span_.is_open()),
        human::duration(self_ns).into(),
        note(span_),
    ]);
    let own = if std::ptr::eq(inner, span_) { vec![span_] } else { vec![span_, inner] };
    leaves(table, &own, level + 1, page, leaf);
    let shown = longest(&inner.children, if page.verbose { usize::MAX } else { CHILDREN }, page);
    let mut hidden = (0, 0);
    for (place, child) in inner.children.iter().enumerate() {
        if shown.contains(&place) {
            span(table, child, level + 1, page, leaf);
        } else {
            hidden = (hidden.0 + 1, hidden.1 + child.duration_ns(now));
        }
    }
    if hidden.0 > 0 {
        let text = format!("{}… {} more, -v", "  ".repeat(level + 1), human::count(hidden.0));
        let total = Cell::new(human::duration(hidden.1), Tone::Faint);
        table.row(vec![Cell::new(text, Tone::Faint), total, "".into(), "".into()]);
    }
}

/// Says how much of a tree is measured, when anything is there that could have measured it.
fn explained(root: &Span, page: &mut Page<'_>) -> io::Result<()> {
    if !follows_parks(page.snapshot) {
        return Ok(());
    }
    let account = account(root, page.snapshot.now);
    let total = account.total_ns().max(1);
    let percent = 100.0 * account.explained_ns() as f64 / total as f64;
    let parts = [
        ("running, ready or in a syscall", account.not_parked_ns),
        ("parked", account.parked_ns + account.short_ns),
        ("between client and handler", account.transport_ns),
        ("in processes", account.process_ns),
        ("unexplained", account.unexplained_ns),
    ];
    let parts: Vec<String> = parts
        .iter()
        .filter(|(_, ns)| *ns > 0)
        .map(|(what, ns)| format!("{what} {}", human::duration(*ns)))
        .collect();
    // Rounded down: 100 % is all of it.
    let text = format!("explained {:.1} %: {}", (10.0 * percent).floor() / 10.0, parts.join(", "));
    for line in fold(&text, page.width - 2) {
        writeln!(page.out, "  {line}")?;
    }
    Ok(())
}

/// The leaves of a span that weigh something in its tree; a process has one, which is its self time.
fn leaves(table: &mut Table, spans: &[&Span], level: usize, page: &Page<'_>, leaf: LeafSize) {
    if !follows_parks(page.snapshot) {
        return;
    }
    let now = page.snapshot.now;
    let indent = "  ".repeat(level.min(16));
    let shown =
        |group: &&Group<'_>| group.kind != Kind::Process && (page.verbose || group.ns >= leaf.least_ns);
    for group in groups(spans, now).iter().filter(shown) {
        let label = format!("· {}", group.words());
        let room = leaf.columns.saturating_sub(indent.len());
        table.row(vec![
            Cell::new(format!("{indent}{}", cut(label, room)), Tone::Faint),
            Cell::new(human::duration(group.ns), if group.open { Tone::Bad } else { Tone::Faint }),
            "".into(),
            "".into(),
        ]);
    }
}

/// A harmless text in at most `room` columns.
fn cut(text: String, room: usize) -> String {
    match text.char_indices().nth(room.saturating_sub(1)) {
        Some((end, _)) if text.chars().count() > room => format!("{}…", &text[..end]),
        _ => text,
    }
}

/// The bare client call that is all there is inside a counted one: the same call once more.
fn same_call(span: &Span) -> &Span {
    match span.children.as_slice() {
        [only]
            if span.layer() == Layer::KubeletCall
                && only.layer() == Layer::KubeletClient
                && only.operation() == span.operation() =>
        {
            only
        }
        _ => span,
    }
}

/// Places of the longest children; open and failed ones come first.
fn longest(children: &[Span], keep: usize, page: &Page<'_>) -> Vec<usize> {
    let mut places: Vec<usize> = (0..children.len()).collect();
    if children.len() > keep.saturating_add(1) {
        places.sort_by_key(|&place| {
            let child = &children[place];
            let weight =
                (child.is_open(), child.result == CallResult::Failed, child.duration_ns(page.snapshot.now));
            (std::cmp::Reverse(weight), place)
        });
        places.truncate(keep);
    }
    places
}

fn note(span: &Span) -> Cell {
    match (span.is_open(), span.result) {
        (true, _) => Cell::new("open", Tone::Bad),
        (false, CallResult::Failed) => Cell::new("failed", Tone::Bad),
        (false, CallResult::Ok | CallResult::Unknown) => "".into(),
    }
}
