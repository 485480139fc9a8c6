//! The slowest relist as an indented tree with self times.

use std::io;

use super::{open::name, page::Page};
use crate::{
    correlate::Relist,
    decode::CallResult,
    input::Layer,
    render::{
        escape, human,
        table::{Align, Cell, Table, Tone},
    },
    span::{Span, self_time_ns},
};

/// Children shown per span; the longest are kept.
const CHILDREN: usize = 6;

/// Writes the tree of the open relist, else of the longest.
pub(super) fn write(page: &mut Page<'_>) -> io::Result<()> {
    let snapshot = page.snapshot;
    let length = |relist: &&Relist| (relist.root().is_open(), relist.root().duration_ns(snapshot.now));
    let Some(slowest) = snapshot.relists.iter().max_by_key(length) else { return Ok(()) };
    let start = human::clock(snapshot.wall_ns(slowest.root().start()));
    let what = if slowest.root().is_open() { "Open relist" } else { "Slowest relist" };
    page.section(what, &format!("began {start}"))?;
    let right = Align::Right;
    let mut table = Table::new(&[("", Align::Left), ("total", right), ("self", right), ("", Align::Left)]);
    span(&mut table, slowest.root(), 0, page);
    table.write(page.out, page.paint, page.width)?;
    if slowest.tree.misfits > 0 {
        let text =
            format!("{} contradict the others and are left out", human::plural(slowest.tree.misfits, "call"));
        writeln!(page.out, "  {}", page.paint.faint(&text))?;
    }
    Ok(())
}

fn span(table: &mut Table, span_: &Span, level: usize, page: &Page<'_>) {
    let now = page.snapshot.now;
    let label = match span_.layer() {
        Layer::Handler => format!("{} {}", span_.component().name(), span_.operation()),
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
    let shown = longest(&inner.children, if page.verbose { usize::MAX } else { CHILDREN }, page);
    let mut hidden = (0, 0);
    for (place, child) in inner.children.iter().enumerate() {
        if shown.contains(&place) {
            span(table, child, level + 1, page);
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
