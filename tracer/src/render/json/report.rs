//! [`report`]: the document as text.

use std::io::{self, BufWriter, Write};

use serde::Serialize;

use super::doc::Document;
use crate::{correlate::Snapshot, diagnose::Diagnosis, render::escape::is_treacherous};

/// What is handed over to the writer at once, bytes.
const PIECE: usize = 64 << 10;

/// Writes the document of a snapshot and what it means, indented, with a newline at its end.
///
/// # Errors
///
/// Writing fails.
pub fn report(snapshot: &Snapshot, diagnosis: &Diagnosis, out: &mut dyn Write) -> io::Result<()> {
    write_document(&Document::new(snapshot, diagnosis), out)
}

/// Writes a document, indented, with a newline at its end, and treacherous characters as JSON escapes. It is never in memory as
/// a whole: that of a busy node has megabytes.
pub(in crate::render) fn write_document(document: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    let mut pieces = BufWriter::with_capacity(PIECE, out);
    serde_json::to_writer_pretty(Disarming(&mut pieces), document)?;
    writeln!(pieces)?;
    pieces.flush()
}

/// Writes treacherous characters as JSON escapes. Outside of strings JSON has none but line breaks, so the document
/// means the same as before.
struct Disarming<'a, W: Write>(&'a mut W);

impl<W: Write> Write for Disarming<'_, W> {
    /// Takes whole characters only, which is what serde_json writes.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = str::from_utf8(bytes).map_err(io::Error::other)?;
        let is_harmless = |c: char| c == '\n' || !is_treacherous(c);
        let mut rest = text;
        while let Some(at) = rest.find(|c| !is_harmless(c)) {
            let (before, from) = rest.split_at(at);
            self.0.write_all(before.as_bytes())?;
            let mut after = from.chars();
            for unit in after.next().unwrap_or_default().encode_utf16(&mut [0; 2]) {
                write!(self.0, "\\u{unit:04x}")?;
            }
            rest = after.as_str();
        }
        self.0.write_all(rest.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Treacherous characters are escaped, and reading the document gives them back.
    #[test]
    fn disarmed_means_the_same() {
        let hostile = "a\u{202e}b\u{9b}c\x1b\n\u{e0041}ä";
        let mut json = Vec::new();
        write_document(&[hostile, "", "plain"], &mut json).unwrap();
        let json = String::from_utf8(json).unwrap();
        assert!(!json.chars().any(|c| c != '\n' && is_treacherous(c)), "{json}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&json).unwrap(), [hostile, "", "plain"]);
    }
}
