//! [`report`]: the order of the sections, and what they share.

use std::io::{self, Write};

use super::{
    bus, by_hand, details, finding, frame, messages, open, processes, relists, requests, rpc, stuck, time,
    tree, unseen,
};
use crate::{
    correlate::Snapshot,
    diagnose::Diagnosis,
    render::{
        human,
        paint::Paint,
        screen::{self, View},
        wrap::{columns, fold},
    },
};

/// Rows of a list that is not verbose.
const SHORT: usize = 8;

/// A part of the report that can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// Relists, and where their time goes.
    Relists,
    /// Calls: open ones, and what they take.
    Calls,
    /// Short-lived processes, and what people typed.
    Processes,
    /// Requests on sockets, and calls over D-Bus.
    Wire,
    /// The slowest relist and requests as trees.
    Tree,
    /// What the census found stuck.
    Census,
}

impl Section {
    /// All of them, in the order of the page.
    pub const ALL: [Self; 6] =
        [Self::Census, Self::Calls, Self::Processes, Self::Relists, Self::Wire, Self::Tree];
}

/// Sections that are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shown(u8);

impl Shown {
    /// Is it one of them?
    #[must_use]
    pub fn has(self, section: Section) -> bool {
        self.0 & 1 << section as u8 != 0
    }
}

impl FromIterator<Section> for Shown {
    fn from_iter<I: IntoIterator<Item = Section>>(sections: I) -> Self {
        Self(sections.into_iter().fold(0, |all, section| all | 1 << section as u8))
    }
}

/// How a report is to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextOptions {
    /// Everything: all sections, lists that are not cut, what is normal too.
    pub verbose: bool,
    /// Sections after the first screen.
    pub show: Shown,
    /// Colour; decided by the caller, who knows the terminal.
    pub colour: bool,
    /// Columns of the terminal; taken as 80 to 120.
    pub width: usize,
}

impl Default for TextOptions {
    fn default() -> Self {
        Self { verbose: false, show: Shown::default(), colour: false, width: 100 }
    }
}

/// Writes the report of a snapshot and what it means: one screen, and after it the sections that are asked for.
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
    screen::write(View { snapshot, diagnosis, width }, paint, out)?;
    let mut page = Page { out, paint, verbose: options.verbose, width, snapshot, diagnosis };
    if page.verbose {
        details::write(&mut page)?;
        finding::write(&mut page)?;
    }
    for section in Section::ALL.into_iter().filter(|section| options.verbose || options.show.has(*section)) {
        page.part(section)?;
    }
    if page.verbose {
        unseen::write(&mut page)?;
        frame::footer(&mut page)?;
    }
    Ok(())
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

    /// Writes a section.
    fn part(&mut self, section: Section) -> io::Result<()> {
        match section {
            Section::Census => stuck::write(self),
            Section::Calls => {
                open::write(self)?;
                rpc::write(self)?;
                time::of_request(self)
            }
            Section::Processes => {
                processes::write(self)?;
                by_hand::write(self)
            }
            Section::Relists => {
                relists::write(self)?;
                time::of_relists(self)
            }
            Section::Wire => {
                messages::write(self)?;
                bus::write(self)
            }
            Section::Tree => {
                tree::write(self)?;
                requests::write(self)
            }
        }
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
        let gap = if mark.is_empty() { 0 } else { 2 };
        self.lines(mark, &fold(text, self.width - columns(mark) - gap - 2))
    }

    /// The same of lines that are folded already.
    pub(super) fn lines(&mut self, mark: &str, lines: &[String]) -> io::Result<()> {
        let gap = if mark.is_empty() { "" } else { "  " };
        for (place, text) in lines.iter().enumerate() {
            let mark = if place == 0 { self.paint.faint(mark) } else { " ".repeat(columns(mark)) };
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
