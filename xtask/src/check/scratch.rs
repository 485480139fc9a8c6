//! The sources of the eBPF programs → places where two mutable references to one entry of a map could exist.
//!
//! A global function of BPF takes no pointers: it looks up the same per-CPU scratch as its caller. If the caller has a `&mut` to it
//! meanwhile, the compiler may keep a store back until after the call. So references come from `scratch::Held` alone, which the
//! borrow checker sees, and global functions are called through it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use syn::visit::{self, Visit};
use syn::{Expr, ItemFn, Type};

use super::arch::rust_files;

/// The only file that makes references to entries of maps.
const OWNER: &str = "scratch.rs";
/// What a function has that works on a scratch.
const WORKS: [&str; 3] = ["Held", "scratch", "lend"];

/// What breaks the rules in the programs under `source` (the `src` of `tracer-ebpf`).
///
/// # Errors
/// When a file cannot be read, or is not Rust.
pub(crate) fn violations(source: &Path) -> Result<Vec<String>> {
    let mut files = Vec::new();
    for path in rust_files(source)? {
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let file = syn::parse_file(&text).with_context(|| format!("{} is not Rust", path.display()))?;
        files.push((path.strip_prefix(source).unwrap_or(&path).display().to_string(), file));
    }
    Ok(judge(&files))
}

fn judge(files: &[(String, syn::File)]) -> Vec<String> {
    let mut globals = Globals::default();
    files.iter().for_each(|(_, file)| globals.visit_file(file));
    let mut found = Vec::new();
    for (name, file) in files.iter().filter(|(name, _)| name != OWNER) {
        let mut places = Places { globals: &globals.names, may_call: false, found: Vec::new() };
        places.visit_file(file);
        found
            .extend(places.found.iter().map(|(line, what)| format!("tracer-ebpf/src/{name}:{line}: {what}")));
    }
    found
}

/// Names of the global functions: no two have the same.
#[derive(Default)]
struct Globals {
    names: BTreeSet<String>,
}

impl<'a> Visit<'a> for Globals {
    fn visit_item_fn(&mut self, function: &'a ItemFn) {
        if is_global(function) {
            self.names.insert(function.sig.ident.to_string());
        }
    }
}

fn is_global(function: &ItemFn) -> bool {
    function.sig.abi.is_some()
}

/// Does a function work on a scratch itself?
#[derive(Default)]
struct Works(bool);

impl<'a> Visit<'a> for Works {
    fn visit_ident(&mut self, ident: &'a syn::Ident) {
        self.0 |= WORKS.iter().any(|word| ident == word);
    }
}

struct Places<'g> {
    globals: &'g BTreeSet<String>,
    /// In a global function without a scratch of its own: its caller has lent nothing.
    may_call: bool,
    found: Vec<(usize, String)>,
}

impl<'a> Visit<'a> for Places<'_> {
    fn visit_item_fn(&mut self, function: &'a ItemFn) {
        let mut works = Works::default();
        works.visit_item_fn(function);
        self.may_call = is_global(function) && !works.0;
        visit::visit_item_fn(self, function);
        self.may_call = false;
    }

    fn visit_type_reference(&mut self, reference: &'a syn::TypeReference) {
        let is_static = reference.lifetime.as_ref().is_some_and(|lifetime| lifetime.ident == "static");
        if is_static && reference.mutability.is_some() && !matches!(*reference.elem, Type::Infer(_)) {
            self.found.push((
                reference.and_token.span.start().line,
                "`&'static mut` to an entry of a map".to_owned(),
            ));
        }
        visit::visit_type_reference(self, reference);
    }

    fn visit_expr_reference(&mut self, reference: &'a syn::ExprReference) {
        let of_pointer =
            matches!(&*reference.expr, Expr::Unary(inner) if matches!(inner.op, syn::UnOp::Deref(_)));
        if reference.mutability.is_some() && of_pointer {
            let what = "`&mut *`: lend it from a `scratch::Held`".to_owned();
            self.found.push((reference.and_token.span.start().line, what));
        }
        visit::visit_expr_reference(self, reference);
    }

    fn visit_expr_call(&mut self, call: &'a syn::ExprCall) {
        if !self.may_call
            && let Expr::Path(function) = &*call.func
            && let Some(last) = function.path.segments.last()
            && self.globals.contains(&last.ident.to_string())
        {
            let what = format!("`{}` is called past `scratch::Held::call`", last.ident);
            self.found.push((last.ident.span().start().line, what));
        }
        visit::visit_expr_call(self, call);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GLOBAL: &str = "extern \"C\" fn step() -> u64 { let Some(held) = scratch() else { return 0 }; 1 }";

    fn found(code: &str) -> Vec<String> {
        let file = |text: &str| syn::parse_file(text).unwrap();
        judge(&[("a.rs".to_owned(), file(GLOBAL)), ("b.rs".to_owned(), file(code))])
    }

    /// A reference to a scratch that outlives everything, or that comes from a pointer.
    #[test]
    fn references_come_from_one_place() {
        let of_static = found("fn scratch() -> Option<&'static mut Scratch> { None }");
        assert_eq!(of_static, ["tracer-ebpf/src/b.rs:1: `&'static mut` to an entry of a map"]);
        let pointer = found("fn a() {\n unsafe { &mut *MAP.get_ptr_mut(0) } }");
        assert_eq!(pointer, ["tracer-ebpf/src/b.rs:2: `&mut *`: lend it from a `scratch::Held`"]);
        assert_eq!(found("fn a(s: &mut Scratch) -> &'static str { let b = &raw mut s.b; b() }"), [""; 0]);
    }

    /// Whoever calls a global function hands its right to the scratch over, or has none.
    #[test]
    fn global_functions_are_called_by_who_holds_the_scratch() {
        let past = ["tracer-ebpf/src/b.rs:1: `step` is called past `scratch::Held::call`"];
        assert_eq!(found("fn a(s: &mut Scratch) { walk::step(); }"), past);
        assert_eq!(found("extern \"C\" fn a() -> u64 { let held = scratch(); step() }"), past);
        assert_eq!(found("extern \"C\" fn a() -> u64 { step() }"), [""; 0]);
        assert_eq!(found("fn a(held: &mut Held<Scratch>) { held.call(step); }"), [""; 0]);
    }

    /// The programs themselves keep the rules.
    #[test]
    fn the_programs_keep_the_rules() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tracer-ebpf/src");
        assert_eq!(violations(&source).unwrap(), [""; 0]);
    }
}
