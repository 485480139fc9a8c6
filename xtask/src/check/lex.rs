//! Rust source → code without comments, strings and tests, and the strings on their own. Line numbers stay.
//!
//! Just enough of a lexer for rules about names: it knows comments, strings of all kinds, characters and lifetimes,
//! and leaves out items behind `#[cfg(test)]`.

/// Source taken apart.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Source {
    /// The code; whatever is not code is a space.
    pub(crate) code: String,
    /// Contents of string literals outside tests, with their line (from 1).
    pub(crate) strings: Vec<(usize, String)>,
}

/// Takes a file apart.
pub(crate) fn lex(text: &str) -> Source {
    let mut lexer =
        Lexer { rest: text, code: String::with_capacity(text.len()), strings: Vec::new(), line: 1 };
    while lexer.step() {}
    let (code, hidden) = without_tests(&lexer.code);
    let seen = |line: &usize| !hidden.iter().any(|(from, to)| (from..=to).contains(&line));
    Source { code, strings: lexer.strings.into_iter().filter(|(line, _)| seen(line)).collect() }
}

struct Lexer<'a> {
    rest: &'a str,
    code: String,
    strings: Vec<(usize, String)>,
    line: usize,
}

impl<'a> Lexer<'a> {
    /// Consumes one element; false at the end.
    fn step(&mut self) -> bool {
        let Some(first) = self.rest.chars().next() else { return false };
        if self.rest.starts_with("//") {
            let end = self.rest.find('\n').unwrap_or(self.rest.len());
            self.blank(end);
        } else if self.rest.starts_with("/*") {
            let end = comment_end(self.rest);
            self.blank(end);
        } else if let Some((prefix, hashes)) = raw_string(self.rest) {
            let close = format!("\"{}", "#".repeat(hashes));
            let length = self.rest[prefix..].find(&close).unwrap_or(self.rest.len() - prefix);
            self.string(prefix, length, close.len());
        } else if first == '"' {
            let length = string_length(&self.rest[1..]);
            self.string(1, length, 1);
        } else if let Some(end) = character_end(self.rest) {
            self.blank(end);
        } else if first.is_alphanumeric() || first == '_' {
            // Whole words, so that the r of `for "x"` never begins a raw string.
            let end = self.rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(self.rest.len());
            self.keep(end);
        } else {
            self.keep(first.len_utf8());
        }
        true
    }

    fn take(&mut self, length: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(length.min(self.rest.len()));
        self.rest = rest;
        taken
    }

    fn keep(&mut self, length: usize) {
        let taken = self.take(length);
        self.line += taken.matches('\n').count();
        self.code.push_str(taken);
    }

    fn blank(&mut self, length: usize) {
        let taken = self.take(length);
        self.line += taken.matches('\n').count();
        self.code.extend(taken.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
    }

    fn string(&mut self, prefix: usize, length: usize, suffix: usize) {
        let text = self.rest.get(prefix..prefix + length).unwrap_or_default().to_owned();
        self.strings.push((self.line, text));
        self.blank(prefix + length + suffix);
    }
}

/// Block comments nest.
fn comment_end(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        let step = if rest.starts_with(b"/*") {
            depth += 1;
            2
        } else if rest.starts_with(b"*/") {
            depth -= 1;
            2
        } else {
            1
        };
        at += step;
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

/// Length of `r#"`, `br"` and the like, and the number of hashes.
fn raw_string(text: &str) -> Option<(usize, usize)> {
    let after = ["br", "cr", "r"].iter().find_map(|p| text.strip_prefix(p).map(|rest| (p.len(), rest)))?;
    let hashes = after.1.bytes().take_while(|b| *b == b'#').count();
    after.1[hashes..].starts_with('"').then_some((after.0 + hashes + 1, hashes))
}

fn string_length(text: &str) -> usize {
    let mut escaped = false;
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return index,
            _ => {}
        }
    }
    text.len()
}

/// The end of a character literal; `None` for a lifetime and for anything else.
fn character_end(text: &str) -> Option<usize> {
    let rest = text.strip_prefix('\'')?;
    let mut chars = rest.char_indices();
    let (_, first) = chars.next()?;
    if first == '\\' {
        let (_, _) = chars.next()?;
        return rest[2..].find('\'').map(|end| end + 4);
    }
    let (at, second) = chars.next()?;
    (second == '\'').then_some(at + 2)
}

/// Blanks items behind `#[cfg(test)]`; also returns their first and last lines.
fn without_tests(code: &str) -> (String, Vec<(usize, usize)>) {
    const MARK: &str = "#[cfg(test)]";
    let mut out = String::with_capacity(code.len());
    let mut hidden = Vec::new();
    let mut rest = code;
    while let Some(at) = rest.find(MARK) {
        let (before, item) = rest.split_at(at);
        out.push_str(before);
        let end = item_end(item);
        let first = out.matches('\n').count() + 1;
        hidden.push((first, first + item[..end].matches('\n').count()));
        out.extend(item[..end].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        rest = &item[end..];
    }
    out.push_str(rest);
    (out, hidden)
}

/// An item ends with the `;` or the `}` that comes first at its own level.
fn item_end(item: &str) -> usize {
    let mut depth = 0_i32;
    for (index, byte) in item.bytes().enumerate() {
        match byte {
            b'{' | b'(' | b'[' => depth += 1,
            b'}' | b')' | b']' => {
                depth -= 1;
                if depth == 0 && byte == b'}' {
                    return index + 1;
                }
            }
            b';' if depth == 0 => return index + 1,
            _ => {}
        }
    }
    item.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        lex(text).code.split_whitespace().map(str::to_owned).collect()
    }

    /// Comments, strings, characters and lifetimes do not look like code.
    #[test]
    fn only_code_is_left() {
        let text = "a // b\n/* c /* d */ e */ f<'x>('y', '\\'', '\"', \"g \\\" h\", r#\"i\"j\"#, b\"k\") z";
        assert_eq!(words(text).concat(), "af<'x>(,,,,,b)z");
        let strings: Vec<String> = lex(text).strings.into_iter().map(|(_, s)| s).collect();
        assert_eq!(strings, ["g \\\" h", "i\"j", "k"]);
    }

    /// Lines are counted through everything, so that a finding points to its place.
    #[test]
    fn lines_are_kept() {
        let source = lex("/*\n\n*/ \"one\ntwo\"\n\"three\"");
        assert_eq!(source.strings, [(3, "one\ntwo".to_owned()), (5, "three".to_owned())]);
        assert_eq!(source.code.matches('\n').count(), 4);
    }

    /// Tests may do what the code may not.
    #[test]
    fn tests_are_left_out() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n fn b() { \"s\"; }\n}\nfn c() { \"t\"; }\n#[cfg(test)]\nuse d;\nuse e;";
        let source = lex(text);
        assert!(!source.code.contains('b') && !source.code.contains("use d"));
        assert!(source.code.contains("fn c") && source.code.contains("use e"));
        assert_eq!(source.strings, [(6, "t".to_owned())]);
    }
}
