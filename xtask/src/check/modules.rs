//! The files of the tracer as modules, and which of them a path means: through `self`, `super`, `crate` and through what
//! a module passes on from others.

use std::collections::BTreeMap;

use super::source::{Named, Source};

/// A module by the names on the way to it; the root has none.
type Path = Vec<String>;

/// More steps than any path takes from one re-export to the next.
const STEPS: u32 = 32;

/// All files, by the module they are.
#[derive(Debug, Default)]
pub(crate) struct Modules {
    files: BTreeMap<Path, File>,
}

#[derive(Debug)]
struct File {
    /// Below `src`, with its ending.
    name: String,
    named: Vec<Named>,
}

/// A file uses something of another one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Edge {
    pub(crate) from: String,
    pub(crate) to: String,
}

impl Modules {
    /// Adds a file by its name below `src`.
    pub(crate) fn add(&mut self, name: &str, source: &Source) {
        let mut path: Path = name.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
        if path.last().is_some_and(|last| last == "mod") || path == ["lib"] {
            path.pop();
        }
        self.files.insert(path, File { name: name.to_owned(), named: source.paths.clone() });
    }

    /// Who uses whom, each with the first line where it does. A file that only passes something on does not use it.
    pub(crate) fn edges(&self) -> BTreeMap<Edge, usize> {
        let mut edges = BTreeMap::new();
        for (path, file) in &self.files {
            let uses = |named: &&Named| named.import.as_ref().is_none_or(|import| !import.public);
            for named in file.named.iter().filter(uses) {
                let Some(to) = self.file_of(path, &named.path).filter(|to| *to != file.name) else {
                    continue;
                };
                let edge = Edge { from: file.name.clone(), to: to.to_owned() };
                let line = edges.entry(edge).or_insert(named.line);
                *line = named.line.min(*line);
            }
        }
        edges
    }

    /// The file in which `text`, written in module `from`, is defined; `None` for what is not of the tracer.
    fn file_of(&self, from: &[String], text: &str) -> Option<&str> {
        let names: Vec<&str> = text.split("::").collect();
        let (start, rest) = self.start(from, &names)?;
        self.walk(&start, rest, STEPS)
    }

    /// The module that a path begins in, and what follows.
    fn start<'t>(&self, from: &[String], names: &'t [&'t str]) -> Option<(Path, &'t [&'t str])> {
        let (mut module, mut rest) = (from.to_vec(), names);
        match names.first()? {
            &"crate" => return Some((Vec::new(), &names[1..])),
            &"self" => rest = &names[1..],
            &"super" => {
                while rest.first() == Some(&"super") {
                    module.pop()?;
                    rest = &rest[1..];
                }
            }
            first => {
                // A name of this module: a child, or something that it imported.
                let mut child = module.clone();
                child.push((*first).to_owned());
                let file = self.files.get(from)?;
                let imported =
                    |named: &Named| named.import.as_ref().is_some_and(|import| import.name == *first);
                if !self.files.contains_key(&child) && !file.named.iter().any(imported) {
                    return None;
                }
            }
        }
        Some((module, rest))
    }

    /// Follows `names` from `module` on, for at most `steps` re-exports.
    fn walk(&self, module: &[String], names: &[&str], steps: u32) -> Option<&str> {
        let file = self.files.get(module)?;
        let Some((first, rest)) = names.split_first() else { return Some(&file.name) };
        let mut child = module.to_vec();
        child.push((*first).to_owned());
        if self.files.contains_key(&child) {
            return self.walk(&child, rest, steps);
        }
        let imported = |named: &&Named| named.import.as_ref().is_some_and(|import| import.name == *first);
        let Some(import) = file.named.iter().find(imported) else { return Some(&file.name) };
        let target: Vec<&str> = import.path.split("::").collect();
        // The import of a crate leads nowhere in here.
        let (start, more) = self.start(module, &target).filter(|_| steps > 0 && target != [*first])?;
        let whole: Vec<&str> = more.iter().chain(rest).copied().collect();
        self.walk(&start, &whole, steps - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::source::parse;

    fn edges(files: &[(&str, &str)]) -> Vec<(String, String, usize)> {
        let mut modules = Modules::default();
        files.iter().for_each(|(name, text)| modules.add(name, &parse(text).unwrap()));
        modules.edges().into_iter().map(|(edge, line)| (edge.from, edge.to, line)).collect()
    }

    fn edge(from: &str, to: &str, line: usize) -> (String, String, usize) {
        (from.to_owned(), to.to_owned(), line)
    }

    /// All ways to name a module lead to its file; what is not of the tracer leads nowhere.
    #[test]
    fn paths_lead_to_files() {
        let found = edges(&[
            ("lib.rs", "mod a; mod b;"),
            ("a/mod.rs", "mod c; mod d;\nfn f() { c::g() }"),
            ("a/c.rs", "use super::d::{self, E};\nuse std::fmt;\nuse serde::a;"),
            ("a/d.rs", "fn f() -> crate::b::B {}\nfn g(x: self::Own, y: b::Other) {}"),
            ("b.rs", ""),
        ]);
        assert_eq!(
            found,
            [edge("a/c.rs", "a/d.rs", 1), edge("a/d.rs", "b.rs", 1), edge("a/mod.rs", "a/c.rs", 2)]
        );
    }

    /// A name that a module passes on is that of the file which defines it; passing it on is no use.
    #[test]
    fn names_that_are_passed_on() {
        let found = edges(&[
            ("lib.rs", "mod a; mod b;"),
            ("a/mod.rs", "mod c;\npub use c::{C, D as E};\npub struct Own;"),
            ("a/c.rs", "pub struct C; pub struct D;"),
            ("b.rs", "use crate::a::E;\nuse crate::a::Own;\nfn f() { E::new() }"),
        ]);
        assert_eq!(found, [edge("b.rs", "a/c.rs", 1), edge("b.rs", "a/mod.rs", 2)]);
    }
}
