//! [`fold`]: a text in lines of a width, in which a figure keeps its unit and a command stays whole.

use textwrap::core::display_width;

/// A blank at which no line ends.
pub(in crate::render) const GLUE: char = '\u{a0}';

/// Marks where a command begins and ends, in texts of rules.
const COMMAND: char = '`';

/// Units that follow a figure.
const UNITS: [&str; 14] =
    ["ns", "µs", "ms", "s", "min", "h", "d", "%", "MiB", "KiB", "GiB", "B", "bytes", "MB"];

/// Breaks a text at blanks into lines of at most `width` columns, never between a figure and its unit; a longer word is
/// broken where it must.
pub(in crate::render) fn fold(text: &str, width: usize) -> Vec<String> {
    break_at_blanks(&glued(text), width)
}

/// The same for a text with commands in backticks, which are left out: a command stays on one line. One that is wider than
/// `width` has a line of its own, which is the only one that may be too wide: terminals copy it as one line.
pub(in crate::render) fn fold_commands(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut open = String::new();
    for (place, part) in text.split(COMMAND).enumerate() {
        let is_command = place % 2 == 1;
        if is_command && display_width(part) > width {
            lines.extend(break_at_blanks(open.trim(), width).into_iter().filter(|line| !line.is_empty()));
            open.clear();
            lines.push(part.to_owned());
        } else if is_command {
            open.extend(part.chars().map(|c| if c == ' ' { GLUE } else { c }));
        } else {
            open.push_str(&glued(part));
        }
    }
    lines.extend(break_at_blanks(open.trim(), width).into_iter().filter(|line| !line.is_empty()));
    lines
}

/// A text without the marks of its commands.
pub(in crate::render) fn plain(text: &str) -> String {
    text.replace(COMMAND, "")
}

/// A text in at most `width` columns; a longer one ends in "…".
pub(in crate::render) fn clip(text: &str, width: usize) -> String {
    if display_width(text) <= width {
        return text.to_owned();
    }
    let mut cut = String::new();
    for c in text.chars() {
        if display_width(&cut) + display_width(c.encode_utf8(&mut [0; 4])) >= width {
            break;
        }
        cut.push(c);
    }
    format!("{}…", cut.trim_end())
}

/// Columns of a text on a terminal.
pub(in crate::render) fn columns(text: &str) -> usize {
    display_width(text)
}

fn break_at_blanks(text: &str, width: usize) -> Vec<String> {
    let options = textwrap::Options::new(width)
        .word_separator(textwrap::WordSeparator::AsciiSpace)
        .word_splitter(textwrap::WordSplitter::NoHyphenation)
        .wrap_algorithm(textwrap::WrapAlgorithm::FirstFit);
    textwrap::wrap(text, options).iter().map(|line| line.replace(GLUE, " ")).collect()
}

/// A text whose figures cling to their units.
fn glued(text: &str) -> String {
    let words: Vec<&str> = text.split(' ').collect();
    let mut out = String::with_capacity(text.len());
    for (place, word) in words.iter().enumerate() {
        out.push_str(word);
        if let Some(next) = words.get(place + 1) {
            out.push(if cling(word, next) { GLUE } else { ' ' });
        }
    }
    out
}

/// `≥ 5.0`, `5.0 s`, `2 min 56 s`.
fn cling(word: &str, next: &str) -> bool {
    let is_figure = |word: &str| {
        let figure = word.trim_start_matches(['(', '≥', '<']);
        !figure.is_empty() && figure.chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | ','))
    };
    let is_unit = |word: &str| UNITS.contains(&word.trim_end_matches(['.', ',', ';', ':', ')', '?']));
    (is_figure(word) && is_unit(next)) || (matches!(word, "≥" | "<") || word == "min") && is_figure(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines end at blanks, within the width.
    #[test]
    fn folds() {
        assert_eq!(fold("aa bb cc", 5), ["aa bb", "cc"]);
        assert_eq!(fold("a 0123456789 b", 5), ["a", "01234", "56789", "b"]);
        assert_eq!(fold("", 5), [""]);
    }

    /// A figure takes its unit to the next line.
    #[test]
    fn figures_keep_their_units() {
        assert_eq!(fold("pressure 0.00 %)", 13), ["pressure", "0.00 %)"]);
        assert_eq!(fold("open ≥ 2 min 56 s, then", 13), ["open", "≥ 2 min 56 s,", "then"]);
        assert_eq!(fold("of 1,234 bytes", 12), ["of", "1,234 bytes"]);
    }

    /// A command is never broken, and stands alone where it is too wide.
    #[test]
    fn commands_stay_whole() {
        assert_eq!(
            fold_commands("if it stays: `kill -9 42`, and so", 14),
            ["if it stays:", "kill -9 42,", "and so"]
        );
        assert_eq!(
            fold_commands("thaw: `echo 0 > /sys/fs/a` now", 10),
            ["thaw:", "echo 0 > /sys/fs/a", "now"]
        );
        assert_eq!(plain("see `ls -l`"), "see ls -l");
    }

    /// Wide characters take two columns.
    #[test]
    fn clips() {
        assert_eq!(
            (clip("日本語", 5).as_str(), clip("abc", 3).as_str(), clip("ab cd", 4).as_str()),
            ("日本…", "abc", "ab…")
        );
    }
}
