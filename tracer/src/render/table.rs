//! [`Table`]: rows of cells → aligned lines.

use std::io::{self, Write};

use super::paint::Paint;

/// How a column stands, and how a cell is painted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Align {
    Left,
    Right,
}

/// Weight of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Bad,
    Faint,
}

/// A cell: harmless text and its weight.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    /// A cell of this weight.
    pub(super) fn new(text: impl Into<String>, tone: Tone) -> Self {
        Self { text: text.into(), tone }
    }

    /// Bad when `bad`.
    pub(super) fn bad_if(text: impl Into<String>, bad: bool) -> Self {
        Self::new(text, if bad { Tone::Bad } else { Tone::Plain })
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::new(text, Tone::Plain)
    }
}

/// Rows under a head.
#[derive(Debug)]
pub(super) struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// An empty table with these columns.
    pub(super) fn new(columns: &[(&str, Align)]) -> Self {
        let columns = columns.iter().map(|(name, align)| ((*name).to_owned(), *align)).collect();
        Self { columns, rows: Vec::new() }
    }

    /// Adds a row, one cell per column.
    pub(super) fn row(&mut self, cells: Vec<Cell>) {
        debug_assert_eq!(cells.len(), self.columns.len(), "a cell per column");
        self.rows.push(cells);
    }

    /// Writes head and rows, indented by two; what would pass `limit` columns is cut.
    pub(super) fn write(&self, out: &mut dyn Write, paint: Paint, limit: usize) -> io::Result<()> {
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].text.chars().count());
            cells.max().unwrap_or(0).max(self.columns[column].0.chars().count())
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let head: Vec<Cell> =
            self.columns.iter().map(|(name, _)| Cell::new(name.as_str(), Tone::Faint)).collect();
        for row in std::iter::once(&head).chain(&self.rows) {
            self.line(out, row, &widths, paint, limit)?;
        }
        Ok(())
    }

    fn line(
        &self,
        out: &mut dyn Write,
        row: &[Cell],
        widths: &[usize],
        paint: Paint,
        limit: usize,
    ) -> io::Result<()> {
        let mut line = String::from("  ");
        let mut used = 2;
        let last = row.iter().rposition(|cell| !cell.text.is_empty()).unwrap_or(0);
        for (place, cell) in row.iter().enumerate().take(last + 1) {
            let pad = " ".repeat(widths[place] - cell.text.chars().count());
            let gap = if place == 0 { "" } else { "  " };
            let before = used + gap.len() + if self.columns[place].1 == Align::Right { pad.len() } else { 0 };
            let Some(text) = cut(&cell.text, limit.saturating_sub(before)) else { break };
            used += gap.len() + widths[place];
            let text = match cell.tone {
                Tone::Plain => text,
                Tone::Bad => paint.bad(&text),
                Tone::Faint => paint.faint(&text),
            };
            match (self.columns[place].1, place == last) {
                (Align::Right, _) => line.extend([gap, &pad, &text]),
                (Align::Left, false) => line.extend([gap, &text, &pad]),
                (Align::Left, true) => line.extend([gap, &text]),
            }
        }
        writeln!(out, "{}", line.trim_end())
    }
}

/// A text in at most `room` columns; `None` when there is no room at all.
fn cut(text: &str, room: usize) -> Option<String> {
    if text.chars().count() <= room {
        return Some(text.to_owned());
    }
    let kept = room.checked_sub(1)?;
    Some(text.chars().take(kept).chain(['…']).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Columns line up, and no line ends in blanks.
    #[test]
    fn aligned() {
        let mut table = Table::new(&[("name", Align::Left), ("n", Align::Right), ("note", Align::Left)]);
        table.row(vec!["a".into(), "1".into(), "".into()]);
        table.row(vec!["longer".into(), "100".into(), Cell::bad_if("x", true)]);
        let mut out = Vec::new();
        table.write(&mut out, Paint { colour: false }, 80).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "  name      n  note\n  a         1\n  longer  100  x\n");
        let mut out = Vec::new();
        table.write(&mut out, Paint { colour: false }, 16).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "  name      n  …\n  a         1\n  longer  100  x\n");
    }
}
