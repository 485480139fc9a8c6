//! [`report`]: the order of the sections, and what they share.

use std::io::{self, Write};

use super::{
    bus, by_hand, finding, frame, messages, open, processes, relists, requests, rpc, stuck, time, tree,
    unseen, verdict,
};
use crate::{
    correlate::Snapshot,
    diagnose::{Diagnosis, Verdict},
    render::{human, paint::Paint},
};

/// Rows of a list that is not verbose.
const SHORT: usize = 8;

/// How a report is to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextOptions {
    /// Lists are not cut, and what is normal is shown too.
    pub verbose: bool,
    /// Colour; decided by the caller, who knows the terminal.
    pub colour: bool,
    /// Columns of the terminal; taken as 80 to 120.
    pub width: usize,
}

impl Default for TextOptions {
    fn default() -> Self {
        Self { verbose: false, colour: false, width: 100 }
    }
}

/// Writes the report of a snapshot and what it means.
///
/// A stall that is explained fits one screen: the tables are for whoever asks for more, or has to find out what no rule
/// knows.
///
/// # Errors
///
/// Writing fails.
pub fn report(
    snapshot: &Snapshot,
    diagnosis: &Diagnosis,
    options: &TextOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let paint = Paint { colour: options.colour };
    let width = options.width.clamp(80, 120);
    let mut page = Page { out, paint, verbose: options.verbose, width, snapshot, diagnosis };
    frame::header(&mut page)?;
    verdict::write(&mut page)?;
    finding::write(&mut page)?;
    time::write(&mut page)?;
    if page.is_whole() {
        stuck::write(&mut page)?;
        open::write(&mut page)?;
        processes::write(&mut page)?;
        relists::write(&mut page)?;
        rpc::write(&mut page)?;
        messages::write(&mut page)?;
        bus::write(&mut page)?;
        tree::write(&mut page)?;
        requests::write(&mut page)?;
    }
    by_hand::write(&mut page)?;
    unseen::write(&mut page)?;
    frame::footer(&mut page)
}

/// A page being written.
pub(super) struct Page<'a> {
    pub(super) out: &'a mut dyn Write,
    pub(super) paint: Paint,
    pub(super) verbose: bool,
    pub(super) width: usize,
    pub(super) snapshot: &'a Snapshot,
    pub(super) diagnosis: &'a Diagnosis,
}

impl Page<'_> {
    /// Begins a section.
    pub(super) fn section(&mut self, title: &str, rest: &str) -> io::Result<()> {
        let gap = if rest.is_empty() { "" } else { "   " };
        let (title, rest) = (self.paint.title(title), self.paint.faint(rest));
        writeln!(self.out, "\n{title}{gap}{rest}")
    }

    /// Are the tables shown? Not when the verdict explains the stall without them.
    pub(super) fn is_whole(&self) -> bool {
        let explained = self.diagnosis.verdict == Verdict::Stall && self.diagnosis.main().is_some();
        self.verbose || !explained
    }

    /// How many of `len` are shown when `most` are enough; one more is shown rather than left out.
    pub(super) fn short(&self, len: usize, most: usize) -> usize {
        if self.verbose || len <= most + 1 { len } else { most }
    }

    /// How many rows of a list of `len` are shown.
    pub(super) fn rows(&self, len: usize) -> usize {
        self.short(len, SHORT)
    }

    /// Says how many rows were left out.
    pub(super) fn more(&mut self, hidden: usize) -> io::Result<()> {
        if hidden == 0 {
            return Ok(());
        }
        let text = format!("… {} more, -v", human::count(hidden as u64));
        let text = self.paint.faint(&text);
        writeln!(self.out, "  {text}")
    }

    /// `  1  text`, the text folded under itself.
    pub(super) fn indented(&mut self, mark: &str, text: &str) -> io::Result<()> {
        let gap = if mark.is_empty() { "" } else { "  " };
        let margin = mark.chars().count() + gap.len();
        for (line, text) in fold(text, self.width - margin - 2).iter().enumerate() {
            let mark = if line == 0 { self.paint.faint(mark) } else { " ".repeat(mark.chars().count()) };
            writeln!(self.out, "  {mark}{gap}{text}")?;
        }
        Ok(())
    }

    /// `label  text`, the text folded under itself.
    pub(super) fn labelled(&mut self, label: &str, text: &str) -> io::Result<()> {
        const LABEL: usize = 9;
        let label = format!("{label:<LABEL$}");
        for (line, text) in fold(text, self.width - LABEL - 3).iter().enumerate() {
            let label = if line == 0 { self.paint.faint(&label) } else { " ".repeat(LABEL) };
            writeln!(self.out, "  {label} {text}")?;
        }
        Ok(())
    }
}

/// Breaks a text at spaces into lines of at most `width` columns; a longer word is broken where it must.
pub(in crate::render) fn fold(text: &str, width: usize) -> Vec<String> {
    let options = textwrap::Options::new(width)
        .word_separator(textwrap::WordSeparator::AsciiSpace)
        .word_splitter(textwrap::WordSplitter::NoHyphenation)
        .wrap_algorithm(textwrap::WrapAlgorithm::FirstFit);
    textwrap::wrap(text, options).into_iter().map(std::borrow::Cow::into_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines end at spaces, within the width.
    #[test]
    fn folds() {
        assert_eq!(fold("aa bb cc", 5), ["aa bb", "cc"]);
        assert_eq!(fold("a 0123456789 b", 5), ["a", "01234", "56789", "b"]);
        assert_eq!(fold("", 5), [""]);
    }
}
