//! Hostile text → text that a terminal shows as it is: no control sequences, no reordering, no invisible characters,
//! bounded length.

/// Longest text shown, in characters of the original.
pub const MAX_CHARS: usize = 120;

/// Longest sentence shown, in characters of the original.
const MAX_LINE: usize = 4000;

/// Makes a sentence of [`crate::words`] harmless, in which each text of the node is bounded already.
#[must_use]
pub fn line(raw: &str) -> String {
    text_to(raw, MAX_LINE)
}

/// Makes a text harmless; longer ones are cut and end in "…".
#[must_use]
pub fn text(raw: &str) -> String {
    text_to(raw, MAX_CHARS)
}

/// Like [`text`] with a length of its own.
#[must_use]
pub fn text_to(raw: &str, max_chars: usize) -> String {
    let mut out = String::with_capacity(raw.len().min(4 * max_chars));
    for (place, c) in raw.chars().enumerate() {
        if place >= max_chars {
            out.push('…');
            break;
        }
        push(&mut out, c);
    }
    out
}

/// Makes bytes harmless; what is not UTF-8 becomes `\xNN`.
#[must_use]
pub fn bytes(raw: &[u8]) -> String {
    let mut out = String::new();
    let mut room = MAX_CHARS;
    for chunk in raw.utf8_chunks() {
        for c in chunk.valid().chars().take(room) {
            push(&mut out, c);
        }
        room = room.saturating_sub(chunk.valid().chars().count());
        for byte in chunk.invalid().iter().take(room) {
            out.push_str(&format!("\\x{byte:02x}"));
        }
        room = room.saturating_sub(chunk.invalid().len());
        if room == 0 {
            out.push('…');
            break;
        }
    }
    out
}

fn push(out: &mut String, c: char) {
    match c {
        '\\' => out.push_str("\\\\"),
        c if (c as u32) < 0x100 && c.is_control() => out.push_str(&format!("\\x{:02x}", c as u32)),
        c if is_treacherous(c) => out.push_str(&format!("\\u{{{:x}}}", c as u32)),
        c => out.push(c),
    }
}

/// Does a character change what is seen around it, or is it not seen at all?
#[must_use]
pub fn is_treacherous(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{feff}' // invisible, or bidirectional marks
            | '\u{300}'..='\u{36f}' // combining marks pile up over other lines
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Escape sequences, reordering and invisible characters lose their power but can still be read.
    #[test]
    fn tamed() {
        assert_eq!(text("a\x1b[31mb\n"), "a\\x1b[31mb\\x0a");
        assert_eq!(text("\u{9b}2J"), "\\x9b2J");
        assert_eq!(text("x\u{202e}y\u{200b}"), "x\\u{202e}y\\u{200b}");
        assert_eq!(text("C:\\x1b"), "C:\\\\x1b", "an escape cannot be forged");
        assert_eq!(text("pod-ä-日本"), "pod-ä-日本");
    }

    /// Length is bounded, and it is said.
    #[test]
    fn bounded() {
        assert_eq!(text(&"x".repeat(500)).chars().count(), MAX_CHARS + 1);
        assert_eq!(text_to("abcdef", 3), "abc…");
        assert_eq!(bytes(&[b'x'; 500]).chars().count(), MAX_CHARS + 1);
    }

    /// Bytes that are no text are shown as numbers.
    #[test]
    fn invalid_bytes() {
        assert_eq!(bytes(b"a\xff\x1bz"), "a\\xff\\x1bz");
    }
}
