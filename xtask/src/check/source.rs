//! Rust source → the paths, macros and strings it names, as `syn` reads them. What is behind `#[cfg(test)]` is left out.
//!
//! The arguments of macros have no syntax of their own that anybody knows: in them, words joined by `::` are paths.

use anyhow::{Context as _, Result};
use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, ImplItem, Item, Lit, Macro, Meta, UseTree, Visibility};

/// A path such as `std::fs::read`, and its line (from 1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) line: usize,
    pub(crate) path: String,
    pub(crate) import: Option<Import>,
}

/// How a `use` brings a path in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Import {
    /// The name it has from here on; `*` stands for everything inside.
    pub(crate) name: String,
    /// It is passed on to other modules.
    pub(crate) public: bool,
}

/// Source taken apart.
#[derive(Debug, Default)]
pub(crate) struct Source {
    pub(crate) paths: Vec<Named>,
    /// Names of the macros that are called, with their lines.
    pub(crate) macros: Vec<(usize, String)>,
    /// Contents of string literals, with their lines; no documentation.
    pub(crate) strings: Vec<(usize, String)>,
}

/// Takes a file apart.
///
/// # Errors
/// When it is not Rust.
pub(crate) fn parse(text: &str) -> Result<Source> {
    let file = syn::parse_file(text).context("not Rust")?;
    let mut source = Source::default();
    source.visit_file(&file);
    Ok(source)
}

impl<'a> Visit<'a> for Source {
    fn visit_item(&mut self, item: &'a Item) {
        if !attributes(item).iter().any(is_for_tests) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item(&mut self, item: &'a ImplItem) {
        let attributes = match item {
            ImplItem::Fn(function) => &function.attrs[..],
            ImplItem::Const(constant) => &constant.attrs[..],
            _ => &[],
        };
        if !attributes.iter().any(is_for_tests) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        let public = !matches!(item.vis, Visibility::Inherited);
        self.tree(&item.tree, "", public);
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if let Some(first) = path.segments.first() {
            let line = first.ident.span().start().line;
            self.paths.push(Named { line, path: names.join("::"), import: None });
        }
        visit::visit_path(self, path);
    }

    /// Who may see an item is no use of what is named there.
    fn visit_vis_restricted(&mut self, _: &'a syn::VisRestricted) {}

    fn visit_lit(&mut self, literal: &'a Lit) {
        let line = literal.span().start().line;
        let text = match literal {
            Lit::Str(text) => text.value(),
            Lit::ByteStr(bytes) => String::from_utf8_lossy(&bytes.value()).into_owned(),
            Lit::CStr(text) => text.value().to_string_lossy().into_owned(),
            _ => return,
        };
        self.strings.push((line, text));
    }

    fn visit_attribute(&mut self, attribute: &'a Attribute) {
        if let Meta::List(list) = &attribute.meta {
            self.tokens(list.tokens.clone());
        }
    }

    fn visit_macro(&mut self, called: &'a Macro) {
        if let Some(last) = called.path.segments.last() {
            self.macros.push((last.ident.span().start().line, last.ident.to_string()));
        }
        self.visit_path(&called.path);
        self.tokens(called.tokens.clone());
    }
}

impl Source {
    /// One tree of a `use`, below `prefix`: its leaves, as if each were written alone.
    fn tree(&mut self, tree: &UseTree, prefix: &str, public: bool) {
        let joined = |name: &str| match (prefix, name) {
            ("", _) => name.to_owned(),
            (_, "self") => prefix.to_owned(),
            _ => format!("{prefix}::{name}"),
        };
        let (ident, path, name) = match tree {
            UseTree::Path(path) => return self.tree(&path.tree, &joined(&path.ident.to_string()), public),
            UseTree::Group(group) => {
                return group.items.iter().for_each(|tree| self.tree(tree, prefix, public));
            }
            UseTree::Glob(glob) => {
                let line = glob.star_token.spans[0].start().line;
                let import = Some(Import { name: "*".to_owned(), public });
                return self.paths.push(Named { line, path: prefix.to_owned(), import });
            }
            UseTree::Name(name) => (&name.ident, joined(&name.ident.to_string()), None),
            UseTree::Rename(rename) => {
                (&rename.ident, joined(&rename.ident.to_string()), Some(rename.rename.to_string()))
            }
        };
        let name = name.unwrap_or_else(|| path.rsplit("::").next().unwrap_or_default().to_owned());
        self.paths.push(Named {
            line: ident.span().start().line,
            path,
            import: Some(Import { name, public }),
        });
    }

    /// What the arguments of a macro name.
    fn tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            match token {
                TokenTree::Group(group) => self.tokens(group.stream()),
                TokenTree::Literal(literal) => self.visit_lit(&Lit::new(literal.clone())),
                TokenTree::Ident(first) => {
                    let line = first.span().start().line;
                    let mut path = vec![first.to_string()];
                    while let [a, b, TokenTree::Ident(next), ..] = &tokens[at + 1..]
                        && is_colon(a, Spacing::Joint)
                        && is_colon(b, Spacing::Alone)
                    {
                        path.push(next.to_string());
                        at += 3;
                    }
                    if calls(&tokens[at + 1..]) {
                        self.macros.push((line, path[path.len() - 1].clone()));
                    }
                    self.paths.push(Named { line, path: path.join("::"), import: None });
                }
                TokenTree::Punct(_) => {}
            }
            at += 1;
        }
    }
}

fn is_colon(token: &TokenTree, spacing: Spacing) -> bool {
    // The second colon may be followed by more punctuation: `a::<T>`.
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == ':' && (spacing == Spacing::Alone || punct.spacing() == spacing))
}

/// An exclamation mark and arguments.
fn calls(rest: &[TokenTree]) -> bool {
    matches!(rest, [TokenTree::Punct(mark), TokenTree::Group(group), ..]
        if mark.as_char() == '!' && group.delimiter() != Delimiter::None)
}

fn is_for_tests(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg")
        && attribute.parse_args::<syn::Path>().is_ok_and(|condition| condition.is_ident("test"))
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imported(code: &str) -> Vec<String> {
        let source = parse(code).unwrap();
        source.paths.into_iter().filter(|named| named.import.is_some()).map(|named| named.path).collect()
    }

    /// A tree of imports is as good as its leaves written one by one.
    #[test]
    fn trees_are_written_out() {
        let code = "use std::{fs::{self, File}, time::Instant as Now};\nuse aya;\nuse a::*;";
        assert_eq!(imported(code), ["std::fs", "std::fs::File", "std::time::Instant", "aya", "a"]);
        let named = parse("pub use a::b as c;").unwrap().paths.remove(0);
        assert_eq!(named.import, Some(Import { name: "c".to_owned(), public: true }));
    }

    /// Paths are found where they are used too, with their line, also in the arguments of macros.
    #[test]
    fn inline_paths_are_found() {
        let source =
            parse("fn a() {\n std::fs::read(x);\n print!(\"{}\",\n crate::kernel::f::<u8>(b))\n}").unwrap();
        let at = |line, path: &str| Named { line, path: path.to_owned(), import: None };
        assert!(source.paths.contains(&at(2, "std::fs::read")), "{source:?}");
        assert!(source.paths.contains(&at(4, "crate::kernel::f")), "{source:?}");
    }

    /// Macros are found by their last name, also inside of others; strings of all kinds with their lines.
    #[test]
    fn macros_and_strings_are_found() {
        let source =
            parse("fn a() {\n println!(\"one\", std::dbg!(b), r#\"/proc\"#);\n let c = c\"two\";\n}")
                .unwrap();
        assert_eq!(source.macros, [(2, "println".to_owned()), (2, "dbg".to_owned())]);
        let strings: Vec<(usize, &str)> =
            source.strings.iter().map(|(line, text)| (*line, text.as_str())).collect();
        assert_eq!(strings, [(2, "one"), (2, "/proc"), (3, "two")]);
    }

    /// Documentation names nothing, nor does what is compiled for tests only.
    #[test]
    fn documentation_and_tests_are_left_out() {
        let code = "//! std::fs\n/// \"/proc\" std::env\nstruct A;\n#[cfg(test)]\nmod tests { use std::fs; }\n\
                    impl A {\n #[cfg(test)]\n fn b() { std::net::c() }\n}\n// std::thread\n";
        let source = parse(code).unwrap();
        assert!(
            source.strings.is_empty() && !source.paths.iter().any(|named| named.path.starts_with("std")),
            "{source:?}"
        );
    }
}
