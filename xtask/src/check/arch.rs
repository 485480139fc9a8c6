//! Who may use what in the tracer, as a table: the import rules of its ARCHITECTURE.md, enforced.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::modules::Modules;
use super::order;
use super::source::{Source, parse};

/// Stages that turn the same bytes into the same bytes, on any machine and at any time.
const PURE: &[&str] = &[
    "cri",
    "decode",
    "wire",
    "correlate",
    "span",
    "stuck",
    "words",
    "flame",
    "timeline",
    "diagnose",
    "render",
];

/// The table. To allow something new, change a row here and the sentence in ARCHITECTURE.md.
const RULES: &[Rule] = &[
    Rule {
        name: "only kernel knows aya",
        thing: Thing::Path(&["aya", "aya_obj", "aya_log"]),
        scope: Scope::AllowedIn(&["kernel"]),
    },
    Rule {
        name: "only target, preflight, census and kernel look at the machine",
        thing: Thing::Text(&["/proc", "/sys"]),
        scope: Scope::AllowedIn(&["target", "preflight", "census", "kernel"]),
    },
    Rule {
        name: "pure stages have no files, processes, sockets, threads or environment",
        thing: Thing::Path(&[
            "std::fs",
            "std::process",
            "std::net",
            "std::thread",
            "std::env",
            "std::os",
            "libc",
            "tokio",
        ]),
        scope: Scope::ForbiddenIn(PURE),
    },
    Rule {
        name: "pure stages have no clock",
        thing: Thing::Path(&["std::time::Instant", "std::time::SystemTime"]),
        scope: Scope::ForbiddenIn(PURE),
    },
    Rule {
        name: "pure stages do not reach back to what looks at the machine",
        thing: Thing::Path(&[
            "crate::kernel",
            "crate::preflight",
            "crate::census",
            "crate::recording",
            "crate::live",
            "crate::probes",
            "crate::engine",
            "crate::commands",
            "crate::session",
            "crate::cli",
            "crate::clock",
        ]),
        scope: Scope::ForbiddenIn(PURE),
    },
    Rule {
        name: "no stage prints",
        thing: Thing::Macro(&["print", "println", "eprint", "eprintln", "dbg"]),
        scope: Scope::AllowedIn(&["main", "cli", "session/entry"]),
    },
];

/// One row: a thing and where it may be.
#[derive(Debug)]
struct Rule {
    name: &'static str,
    thing: Thing,
    scope: Scope,
}

#[derive(Debug)]
enum Thing {
    /// A path or anything below it.
    Path(&'static [&'static str]),
    /// The beginning of a string literal.
    Text(&'static [&'static str]),
    /// A macro by its last name.
    Macro(&'static [&'static str]),
}

/// Modules of the tracer by their path, with everything below them: `decode`, `session/entry`.
#[derive(Debug)]
enum Scope {
    AllowedIn(&'static [&'static str]),
    ForbiddenIn(&'static [&'static str]),
}

/// A place that breaks a rule.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    file: PathBuf,
    line: usize,
    what: String,
    rule: &'static str,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.file.display(), self.line, self.what, self.rule)
    }
}

/// Applies the table and the order of stages to all files under `source` (the tracer's `src`).
///
/// # Errors
/// When a file cannot be read, or is not Rust.
pub(crate) fn violations(source: &Path) -> Result<Vec<String>> {
    let (mut found, mut modules) = (Vec::new(), Modules::default());
    for file in rust_files(source)? {
        let inside = file.strip_prefix(source).unwrap_or(&file);
        if is_test_file(inside) {
            continue;
        }
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let source = parse(&text).with_context(|| format!("cannot read {}", file.display()))?;
        found.extend(judge(inside, &source).iter().map(|broken| format!("tracer/src/{broken}")));
        modules.add(&inside.to_string_lossy(), &source);
    }
    found.extend(order::violations(&modules));
    Ok(found)
}

/// All Rust files below a directory, in order.
///
/// # Errors
/// When a directory cannot be listed.
pub(crate) fn rust_files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(rust_files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Files that only hold tests: `tests.rs`, `x_tests.rs`, and everything in a folder `tests`.
fn is_test_file(inside: &Path) -> bool {
    let stem = inside.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    stem == "tests" || stem.ends_with("_tests") || inside.components().any(|part| part.as_os_str() == "tests")
}

/// `decode/rpc.rs` is `decode/rpc`, `main.rs` is `main`.
fn module(inside: &Path) -> String {
    inside.with_extension("").to_string_lossy().into_owned()
}

fn judge(inside: &Path, source: &Source) -> Vec<Violation> {
    let module = module(inside);
    let mut found = Vec::new();
    for rule in RULES.iter().filter(|rule| rule.scope.concerns(&module)) {
        let hits: Vec<(usize, String)> = match rule.thing {
            Thing::Path(forbidden) => source
                .paths
                .iter()
                .filter(|named| {
                    forbidden.iter().any(|path| reaches(&named.path, path, named.import.is_some()))
                })
                .map(|named| (named.line, named.path.clone()))
                .collect(),
            Thing::Text(forbidden) => source
                .strings
                .iter()
                .filter(|(_, text)| forbidden.iter().any(|start| below(text, start, "/")))
                .cloned()
                .collect(),
            Thing::Macro(forbidden) => {
                let named = |(_, name): &&(usize, String)| forbidden.contains(&name.as_str());
                source.macros.iter().filter(named).cloned().collect()
            }
        };
        found.extend(hits.into_iter().map(|(line, what)| Violation {
            file: inside.to_path_buf(),
            line,
            what: format!("`{what}`"),
            rule: rule.name,
        }));
    }
    found
}

impl Scope {
    fn concerns(&self, module: &str) -> bool {
        match self {
            Self::AllowedIn(modules) => !modules.iter().any(|allowed| below(module, allowed, "/")),
            Self::ForbiddenIn(modules) => modules.iter().any(|forbidden| below(module, forbidden, "/")),
        }
    }
}

/// Whether a named path is a forbidden one or inside it; an import also when it brings in a module that contains the
/// forbidden thing, because then the use of it is out of our sight. The roots are too common for that.
fn reaches(named: &str, forbidden: &str, import: bool) -> bool {
    let named = named.strip_prefix("core::").map_or_else(|| named.to_owned(), |rest| format!("std::{rest}"));
    let root = |path: &str| !path.contains("::");
    below(&named, forbidden, "::") || (import && !root(&named) && below(forbidden, &named, "::"))
}

fn below(text: &str, start: &str, separator: &str) -> bool {
    text.strip_prefix(start).is_some_and(|rest| rest.is_empty() || rest.starts_with(separator))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(file: &str, text: &str) -> Vec<&'static str> {
        judge(Path::new(file), &parse(text).unwrap()).into_iter().map(|violation| violation.rule).collect()
    }

    /// A sample of each rule being broken is found, and the same words elsewhere are fine.
    #[test]
    fn each_rule_can_fail() {
        let samples = [
            ("render/text.rs", "use aya::Ebpf;", "kernel/mod.rs"),
            ("session/mod.rs", "fn a() { read(\"/proc/self/maps\") }", "census/mod.rs"),
            ("decode/call.rs", "use std::{collections::HashMap, fs};", "target/mod.rs"),
            ("correlate/join.rs", "fn a() { std::time::Instant::now() }", "session/mod.rs"),
            ("span/node.rs", "use crate::{decode::Call, kernel::Live};", "session/mod.rs"),
            ("census/mod.rs", "fn a() { println!(\"x\") }", "cli/mod.rs"),
        ];
        for ((file, text, allowed), rule) in samples.iter().zip(RULES) {
            assert_eq!(broken(file, text), [rule.name], "{file}: {text}");
            assert_eq!(broken(allowed, text), [""; 0], "{allowed}: {text}");
        }
        assert_eq!(samples.len(), RULES.len());
    }

    /// A module that contains a forbidden thing must not be imported whole, a harmless neighbour may be.
    #[test]
    fn neighbours_are_harmless() {
        assert_eq!(broken("decode/a.rs", "use std::time::Duration; use std::fmt;"), [""; 0]);
        assert_eq!(broken("decode/a.rs", "use std::time;").len(), 1);
        assert_eq!(broken("decode/a.rs", "// use std::fs;\nconst A: &str = \"std::fs\";"), [""; 0]);
        assert_eq!(broken("decode/a.rs", "#[cfg(test)]\nmod tests { use std::fs; }"), [""; 0]);
        assert_eq!(broken("plan/a.rs", "const A: &str = \"/procession\";"), [""; 0]);
    }

    /// The line is that of the offence.
    #[test]
    fn violations_point_to_their_line() {
        let source = parse("//! x\n\nuse std::fmt;\nuse std::fs::File;\n").unwrap();
        let found = judge(Path::new("render/a.rs"), &source);
        assert_eq!(found[0].line, 4);
        assert!(found[0].to_string().starts_with("render/a.rs:4: `std::fs::File`: "));
    }

    /// The tracer itself keeps the rules.
    #[test]
    fn the_tracer_keeps_the_rules() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tracer/src");
        assert_eq!(violations(&source).unwrap(), [""; 0]);
    }
}
