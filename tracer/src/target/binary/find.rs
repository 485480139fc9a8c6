//! Functions by name: patterns of the catalogue → functions of one executable.

use std::collections::HashMap;

use super::GoBinary;
use crate::target::{
    pattern::{Pattern, PatternSet},
    pclntab::Function,
    symtab::{self, Witness},
};

/// A function that a pattern found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// Index of the pattern in the list given to [`GoBinary::resolve`].
    pub pattern: usize,
    /// Full Go name.
    pub name: String,
    /// Address of its first instruction in the file.
    pub entry_vaddr: u64,
    /// Bytes up to the next function.
    pub size: u64,
    /// What the ELF symbol table says.
    pub witness: Witness,
}

impl GoBinary {
    /// Functions whose name ends with `suffix` at a path element or dot; see [`Pattern`].
    #[must_use]
    pub fn find_suffix(&self, suffix: &str) -> Vec<Match> {
        self.resolve(&[Pattern::new(suffix)])
    }

    /// Finds many patterns in one pass. Of functions with the same name the largest is kept: the other is the wrapper
    /// that translates between calling conventions. Ordered by pattern, then name.
    #[must_use]
    pub fn resolve(&self, patterns: &[Pattern]) -> Vec<Match> {
        let set = PatternSet::new(patterns);
        self.collect(|name| set.matching(name).collect())
    }

    /// Finds the functions whose full name `wanted` accepts, as [`resolve`](Self::resolve) does; `pattern` is 0.
    pub fn select(&self, mut wanted: impl FnMut(&str) -> bool) -> Vec<Match> {
        self.collect(|name| if wanted(name) { vec![0] } else { Vec::new() })
    }

    /// One pass over the table; `wants` names the patterns that a function matches.
    fn collect(&self, mut wants: impl FnMut(&str) -> Vec<usize>) -> Vec<Match> {
        let mut best: HashMap<(usize, &str), Function<'_>> = HashMap::new();
        for function in self.table.functions() {
            for pattern in wants(function.name) {
                let kept = best.entry((pattern, function.name)).or_insert(function);
                if function.size > kept.size {
                    *kept = function;
                }
            }
        }
        let symbols = symtab::addresses(&self.elf, best.keys().map(|(_, name)| *name));
        let mut matches: Vec<Match> = best
            .into_iter()
            .map(|((pattern, name), function)| Match {
                pattern,
                name: name.to_owned(),
                entry_vaddr: function.entry,
                size: function.size,
                witness: witness(symbols.get(name).map_or(&[], Vec::as_slice), function.entry),
            })
            .collect();
        self.forgive_twins(&mut matches, &symbols);
        matches.sort_by(|a, b| (a.pattern, &a.name).cmp(&(b.pattern, &b.name)));
        matches
    }

    /// Symbols of a doubled name may name the smaller twin; that is no contradiction.
    fn forgive_twins(&self, matches: &mut [Match], symbols: &HashMap<&str, Vec<u64>>) {
        for found in matches.iter_mut().filter(|found| matches!(found.witness, Witness::Disagrees(_))) {
            let places = symbols.get(found.name.as_str()).map_or(&[][..], Vec::as_slice);
            let named = |place: &u64| {
                self.table
                    .function_at(*place)
                    .is_some_and(|twin| twin.entry == *place && twin.name == found.name)
            };
            if places.iter().any(named) {
                found.witness = Witness::Agrees;
            }
        }
    }
}

fn witness(symbols: &[u64], entry: u64) -> Witness {
    match symbols.first() {
        None => Witness::Absent,
        Some(_) if symbols.contains(&entry) => Witness::Agrees,
        Some(other) => Witness::Disagrees(*other),
    }
}
