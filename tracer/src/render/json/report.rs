//! [`report`]: the document as text.

use std::io::{self, Write};

use super::doc::Document;
use crate::{correlate::Snapshot, diagnose::Diagnosis, render::escape::is_treacherous};

/// Writes the document of a snapshot and what it means, indented, with a newline at its end.
///
/// # Errors
///
/// Writing fails.
pub fn report(snapshot: &Snapshot, diagnosis: &Diagnosis, out: &mut dyn Write) -> io::Result<()> {
    let json = serde_json::to_string_pretty(&Document::new(snapshot, diagnosis)).map_err(io::Error::other)?;
    writeln!(out, "{}", disarm(&json))
}

/// Writes treacherous characters as JSON escapes. Outside of strings JSON has none but line breaks, so the document
/// means the same as before.
pub(in crate::render) fn disarm(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if c != '\n' && is_treacherous(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Treacherous characters are escaped, and reading the document gives them back.
    #[test]
    fn disarmed_means_the_same() {
        let hostile = "a\u{202e}b\u{9b}c\x1b\n\u{e0041}ä";
        let json = disarm(&serde_json::to_string(hostile).unwrap());
        assert!(!json.chars().any(is_treacherous), "{json}");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), hostile);
    }
}
