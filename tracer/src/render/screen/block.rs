//! [`Block`]: lines that belong together, and how much of them may be left out; [`fit`] leaves out what matters least.

use std::io::{self, Write};

use crate::{
    diagnose::Verdict,
    render::{
        paint::Paint,
        wrap::{clip, columns, fold},
    },
};

/// Columns of a label with its gap.
pub(super) const LABEL: usize = 9;

/// A line, harmless and not painted yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// An empty one.
    Blank,
    /// The first line of the verdict: its word, and the rest.
    Verdict(String, String),
    /// A label, empty on the lines after the first, and a text.
    Labelled(&'static str, String),
    /// What stands above lines that belong together.
    Title(String),
    /// Only text.
    Plain(String),
}

impl Line {
    /// Writes it.
    pub(super) fn write(&self, verdict: Verdict, paint: Paint, out: &mut dyn Write) -> io::Result<()> {
        match self {
            Self::Blank => writeln!(out),
            Self::Verdict(word, rest) => {
                let word = match verdict {
                    Verdict::Healthy => paint.good(word),
                    Verdict::Stall | Verdict::Failing | Verdict::Slow => paint.bad(word),
                    Verdict::CannotTell => paint.doubt(word),
                };
                writeln!(out, "{word}  {rest}")
            }
            Self::Labelled("", text) => writeln!(out, "{:LABEL$}{text}", ""),
            Self::Labelled(label, text) => {
                let gap = " ".repeat(LABEL.saturating_sub(columns(label)));
                writeln!(out, "{}{gap}{text}", paint.faint(label))
            }
            Self::Title(text) => writeln!(out, "{}", paint.title(text)),
            Self::Plain(text) => writeln!(out, "{text}"),
        }
    }

    /// Says that something after it was left out.
    pub(super) fn mark(&mut self, width: usize) {
        let (text, room) = match self {
            Self::Blank => return,
            Self::Verdict(word, rest) => {
                let used = columns(word) + 2;
                (rest, width - used)
            }
            Self::Labelled(_, text) => (text, width - LABEL),
            Self::Title(text) | Self::Plain(text) => (text, width),
        };
        if !text.ends_with('…') {
            *text =
                clip(&format!("{}…", clip(text, room - 1).trim_end_matches(['…', ',', ';', ':', ' '])), room);
        }
    }
}

/// Lines that belong together.
#[derive(Clone, Debug)]
pub(super) struct Block {
    lines: Vec<Line>,
    /// So many of them are never left out.
    least: usize,
    /// The higher, the sooner they are.
    rank: u8,
    /// Of a table: where the rows are that were left out.
    rows_in: Option<&'static str>,
    left_out: usize,
}

impl Block {
    /// Lines of which all are needed.
    pub(super) fn whole(lines: Vec<Line>) -> Self {
        Self { least: lines.len(), ..Self::cut(lines, 0, 0) }
    }

    /// Lines of which the first `least` are needed; of two blocks the one of the higher rank is cut first.
    pub(super) fn cut(lines: Vec<Line>, least: usize, rank: u8) -> Self {
        Self { lines, least, rank, rows_in: None, left_out: 0 }
    }

    /// Rows of a table: the last line counts what is left out, and names where it is.
    pub(super) fn rows(lines: Vec<Line>, least: usize, rank: u8, shown_by: &'static str) -> Self {
        Self { rows_in: Some(shown_by), ..Self::cut(lines, least, rank) }
    }

    /// Leaves out the last line.
    fn shrink(&mut self, width: usize) {
        let Some(shown_by) = self.rows_in else {
            self.lines.pop();
            if let Some(last) = self.lines.last_mut() {
                last.mark(width);
            }
            return;
        };
        // The line that counts it takes the place of a row.
        let goes = if self.left_out == 0 { 2 } else { 1 };
        self.lines.truncate(self.lines.len() - usize::from(self.left_out > 0));
        self.lines.truncate(self.lines.len().saturating_sub(goes));
        self.left_out += goes;
        self.lines.push(Line::Plain(format!("  … {} more, {shown_by}", self.left_out)));
    }

    /// An empty line, which goes when room is short.
    pub(super) fn blank(rank: u8) -> Self {
        Self::cut(vec![Line::Blank], 0, rank)
    }

    /// A label and a text folded beside it.
    pub(super) fn labelled(label: &'static str, text: &str, width: usize, least: usize, rank: u8) -> Self {
        Self::cut(labelled(label, fold(text, width - LABEL)), least, rank)
    }
}

impl Block {
    /// At most so many of its lines, the cut marked.
    pub(super) fn at_most(mut self, most: usize, width: usize) -> Self {
        if self.lines.len() > most {
            self.lines.truncate(most);
            if let Some(last) = self.lines.last_mut() {
                last.mark(width);
            }
        }
        self.least = self.least.min(self.lines.len());
        self
    }

    /// Its lines.
    pub(super) fn len(&self) -> usize {
        self.lines.len()
    }
}

/// A label before the first of some lines.
pub(super) fn labelled(label: &'static str, texts: Vec<String>) -> Vec<Line> {
    let line = |(place, text)| Line::Labelled(if place == 0 { label } else { "" }, text);
    texts.into_iter().enumerate().map(line).collect()
}

/// The lines of all blocks, as many as `most` where that is possible without leaving out what is needed.
pub(super) fn fit(mut blocks: Vec<Block>, most: usize, width: usize) -> Vec<Line> {
    let rows = |blocks: &[Block]| {
        blocks.iter().flat_map(|block| &block.lines).map(|line| rows_of(line, width)).sum::<usize>()
    };
    while rows(&blocks) > most {
        let shrinks = blocks.iter_mut().filter(|block| block.lines.len() > block.least);
        // Of two of one rank the later one.
        let Some(block) = shrinks.max_by_key(|block| block.rank) else { break };
        block.shrink(width);
    }
    let mut lines: Vec<Line> = blocks.into_iter().flat_map(|block| block.lines).collect();
    // What stood between two of them may be gone.
    lines.dedup_by(|second, first| *second == Line::Blank && *first == Line::Blank);
    lines
}

/// Rows of the terminal that a line takes: more than one of a command that is too wide for it.
fn rows_of(line: &Line, width: usize) -> usize {
    match line {
        Line::Labelled(_, text) => (LABEL + columns(text)).div_ceil(width),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(lines: &[Line]) -> Vec<&str> {
        fn text(line: &Line) -> &str {
            match line {
                Line::Labelled(_, text) => text.as_str(),
                _ => "",
            }
        }
        lines.iter().map(text).collect()
    }

    fn lines(texts: &[&str]) -> Vec<Line> {
        labelled("a", texts.iter().map(|text| (*text).to_owned()).collect())
    }

    /// What matters least goes first, what is needed stays, and a cut is marked.
    #[test]
    fn cuts_what_matters_least() {
        let blocks = || {
            let (first, second) = (lines(&["1", "2,", "3"]), lines(&["4", "5"]));
            vec![Block::cut(first, 1, 1), Block::blank(5), Block::cut(second, 1, 2)]
        };
        assert_eq!(texts(&fit(blocks(), 6, 80)), ["1", "2,", "3", "", "4", "5"]);
        assert_eq!(texts(&fit(blocks(), 4, 80)), ["1", "2,", "3", "4…"]);
        assert_eq!(texts(&fit(blocks(), 3, 80)), ["1", "2…", "4…"]);
        assert_eq!(texts(&fit(blocks(), 0, 80)), ["1…", "4…"]);
    }

    /// A line that is too wide counts as the rows that it takes.
    #[test]
    fn wide_lines_count() {
        let wide = "x".repeat(100);
        let blocks = vec![Block::whole(lines(&[&wide])), Block::cut(lines(&["1", "2"]), 1, 1)];
        assert_eq!(fit(blocks, 3, 80).len(), 2);
    }
}
