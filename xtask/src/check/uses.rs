//! Code → the paths and macros it names, with `use` trees written out.

/// A path such as `std::fs::read`, and its line (from 1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) line: usize,
    pub(crate) path: String,
    /// It comes from a `use`: then a forbidden thing may be behind it, not only before it.
    pub(crate) import: bool,
}

/// All paths of at least one segment in `code`, which has neither comments nor strings.
pub(crate) fn paths(code: &str) -> Vec<Named> {
    let tokens = tokens(code);
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if tokens[at].text == "use" {
            at = import(&tokens, at + 1, "", &mut found);
        } else if is_word(tokens[at].text) {
            let (path, next) = chain(&tokens, at);
            found.push(Named { line: tokens[at].line, path, import: false });
            at = next;
        } else {
            at += 1;
        }
    }
    found
}

/// Names of the macros that are called, with their lines.
pub(crate) fn macros(code: &str) -> Vec<(usize, String)> {
    let tokens = tokens(code);
    let called = |pair: &[Token<'_>]| is_word(pair[0].text) && pair[1].text == "!";
    let calls = tokens.windows(2).filter(|pair| called(pair));
    calls.map(|pair| (pair[0].line, pair[0].text.to_owned())).collect()
}

#[derive(Debug, Clone, Copy)]
struct Token<'a> {
    line: usize,
    text: &'a str,
}

fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Words, `::` and single characters.
fn tokens(code: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    let mut line = 1;
    let mut rest = code;
    while let Some(first) = rest.chars().next() {
        let length = if first.is_alphanumeric() || first == '_' {
            rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        if first == '\n' {
            line += 1;
        }
        if !first.is_whitespace() {
            found.push(Token { line, text: &rest[..length] });
        }
        rest = &rest[length..];
    }
    found
}

/// A chain of words joined by `::`, from `at`; also where it ends.
fn chain(tokens: &[Token<'_>], at: usize) -> (String, usize) {
    let mut path = tokens[at].text.to_owned();
    let mut next = at + 1;
    while let [colons, word, ..] = &tokens[next.min(tokens.len())..]
        && colons.text == "::"
        && is_word(word.text)
    {
        path = format!("{path}::{}", word.text);
        next += 2;
    }
    (path, next)
}

/// One tree of a `use`, below `prefix`; returns where it ends.
fn import(tokens: &[Token<'_>], mut at: usize, prefix: &str, found: &mut Vec<Named>) -> usize {
    let mut path = prefix.to_owned();
    while let Some(token) = tokens.get(at) {
        match token.text {
            "::" => at += 1,
            "{" => return branches(tokens, at + 1, &path, found),
            "as" => at += 2,
            "*" => at += 1,
            word if is_word(word) => {
                path = joined(&path, word);
                at += 1;
                let more = tokens.get(at).is_some_and(|next| next.text == "::");
                if !more {
                    found.push(Named { line: token.line, path: path.clone(), import: true });
                }
            }
            _ => break,
        }
    }
    at
}

/// `self` in a tree stands for the path before it.
fn joined(path: &str, word: &str) -> String {
    match (path, word) {
        (_, "self") => path.to_owned(),
        ("", _) => word.to_owned(),
        _ => format!("{path}::{word}"),
    }
}

fn branches(tokens: &[Token<'_>], mut at: usize, prefix: &str, found: &mut Vec<Named>) -> usize {
    while let Some(token) = tokens.get(at) {
        match token.text {
            "}" => return at + 1,
            "," => at += 1,
            _ => at = import(tokens, at, prefix, found).max(at + 1),
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imported(code: &str) -> Vec<String> {
        paths(code).into_iter().filter(|named| named.import).map(|named| named.path).collect()
    }

    /// A tree of imports is as good as its leaves written one by one.
    #[test]
    fn trees_are_written_out() {
        let code = "use std::{fs::{self, File}, time::Instant as Now};\nuse aya;\nuse a::*;";
        assert_eq!(imported(code), ["std::fs", "std::fs::File", "std::time::Instant", "aya"]);
    }

    /// Paths are found where they are used too, with their line.
    #[test]
    fn inline_paths_are_found() {
        let found = paths("fn a() {\n std::fs::read(x)\n}");
        assert!(
            found.contains(&Named { line: 2, path: "std::fs::read".to_owned(), import: false }),
            "{found:?}"
        );
    }

    /// A macro is a word with an exclamation mark.
    #[test]
    fn macros_are_found() {
        assert_eq!(macros("if a {\n println!(b) }"), [(2, "println".to_owned())]);
    }
}
