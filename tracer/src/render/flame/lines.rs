//! [`Lines`]: stacks with harmless names and whole microseconds.

use std::collections::BTreeMap;

use crate::{
    flame::{Flame, Frame, Kind, Stack},
    render::escape,
};

/// Longest name of a frame, characters.
const NAME: usize = 120;
/// What a picture of nothing shows.
const NOTHING: &str = "[no relist and no request was seen]";

/// What the widths are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Per {
    /// Everything that was seen.
    Whole,
    /// The mean relist: of those that have ended, and nothing else.
    Relist,
}

/// One stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Line {
    /// Wall time in the innermost frame itself, microseconds.
    pub(super) us: u64,
    /// What each frame is, and how often it was entered.
    pub(super) frames: Vec<(Option<Kind>, u64)>,
}

/// A flame, ready to be written.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    pub(super) per: Per,
    pub(super) relists: u64,
    pub(super) requests: u64,
    pub(super) open: u64,
    pub(super) lines: BTreeMap<Vec<String>, Line>,
}

impl Lines {
    pub(super) fn new(flame: &Flame, per: Per) -> Self {
        let all = flame.stacks();
        let wanted = |stack: &&Stack<'_>| {
            per == Per::Whole || stack.frames.first().is_some_and(|(root, _)| &*root.text == "relist")
        };
        let parts = if per == Per::Relist { flame.relists().max(1) } else { 1 };
        let mut lines: BTreeMap<Vec<String>, Line> = BTreeMap::new();
        let mut sum = Microseconds::new(parts);
        for stack in all.iter().filter(wanted) {
            let us = sum.add(stack.ns);
            let names = stack.frames.iter().map(|(frame, _)| name(frame)).collect();
            let frames = stack.frames.iter().map(|(frame, count)| (Some(frame.kind), *count)).collect();
            let line = lines.entry(names).or_insert(Line { us: 0, frames });
            line.us += us;
        }
        lines.retain(|_, line| line.us > 0);
        Self { per, relists: flame.relists(), requests: flame.requests(), open: flame.open(), lines }
    }

    /// What was folded, in words that [`super::Saved`] understands.
    pub(super) fn header(&self) -> String {
        let what = match self.per {
            Per::Whole => {
                let (requests, open) = (self.requests, self.open);
                format!("{} relists, {requests} other requests, {open} open", self.relists)
            }
            Per::Relist => format!("mean of {} relists", self.relists),
        };
        format!("plegtrace wall time by stack: {what}; in microseconds")
    }

    /// All of it, or something that says that there is nothing.
    pub(super) fn or_nothing(&self) -> BTreeMap<Vec<String>, Line> {
        if !self.lines.is_empty() {
            return self.lines.clone();
        }
        let line = Line { us: 1, frames: vec![(Some(Kind::Unexplained), 0)] };
        BTreeMap::from([(vec![NOTHING.to_owned()], line)])
    }
}

/// Nanoseconds as whole microseconds whose sum is right to less than one.
struct Microseconds {
    parts: u128,
    ns: u128,
    told: u64,
}

impl Microseconds {
    fn new(parts: u64) -> Self {
        Self { parts: u128::from(parts) * 1000, ns: 0, told: 0 }
    }

    fn add(&mut self, ns: u64) -> u64 {
        self.ns += u128::from(ns);
        let whole = u64::try_from(self.ns / self.parts).unwrap_or(u64::MAX);
        let us = whole - self.told;
        self.told = whole;
        us
    }
}

/// A name that has no power over terminals, over the format, and over names of our own.
fn name(frame: &Frame) -> String {
    if let Some(own) = frame.kind.own_name() {
        return own.to_owned();
    }
    let text = escape::text_to(frame.text.trim(), NAME).replace(';', ",");
    // A last word that is a number would be taken for a figure.
    let text = match text.rsplit_once(' ') {
        Some((rest, last)) if last.chars().all(|c| c.is_ascii_digit() || c == '.') => {
            format!("{rest}_{last}")
        }
        _ => text,
    };
    match text.chars().next() {
        None => "?".to_owned(),
        Some('[' | '(' | '#') => format!("\\{text}"),
        Some(_) => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parts of microseconds are carried on, so that the sum is right.
    #[test]
    fn sums_are_right() {
        let mut sum = Microseconds::new(1);
        assert_eq!([700, 700, 700, 10_000].map(|ns| sum.add(ns)), [0, 1, 1, 10]);
        let mut mean = Microseconds::new(3);
        assert_eq!([2_000, 2_000, 5_000].map(|ns| mean.add(ns)), [0, 1, 2]);
        assert_eq!(Microseconds::new(1).add(u64::MAX), u64::MAX / 1000);
    }

    /// Nothing that a name contains ends it, its line, or the picture.
    #[test]
    fn names_are_harmless() {
        let name = |text: &str| name(&Frame { kind: Kind::Program, text: text.into() });
        assert_eq!(name("a;b\nc\u{1b}[2J"), "a,b\\x0ac\\x1b[2J");
        assert_eq!(name("plugin 12"), "plugin_12");
        assert_eq!(name("plugin 1.5"), "plugin_1.5");
        assert_eq!(name("[unexplained]"), "\\[unexplained]");
        assert_eq!(name("# x"), "\\# x");
        assert_eq!(name("  "), "?");
        assert_eq!(name(&"x".repeat(500)).chars().count(), NAME + 1);
    }
}
