//! `xtask/expected-tests.txt`: how many tests each layer must report, so that tests cannot vanish unseen.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};

const FILE: &str = include_str!("../../expected-tests.txt");

/// The smallest number of tests (passed, failed or skipped) of each layer.
///
/// # Errors
/// When a line of the file is neither a comment nor `layer number`.
pub(crate) fn minimums() -> Result<BTreeMap<String, usize>> {
    parse(FILE)
}

fn parse(text: &str) -> Result<BTreeMap<String, usize>> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let bad = || format!("xtask/expected-tests.txt: no `layer number` in {line:?}");
            let (layer, number) = line.split_once(' ').with_context(bad)?;
            Ok((layer.to_owned(), number.trim().parse().with_context(bad)?))
        })
        .collect()
}

/// What is wrong with a number of tests; `None` when there are enough.
pub(crate) fn complaint(minimums: &BTreeMap<String, usize>, layer: &str, seen: usize) -> Option<String> {
    let Some(minimum) = minimums.get(layer) else {
        return Some(format!("no line for {layer} in xtask/expected-tests.txt: add `{layer} {seen}`"));
    };
    (seen < *minimum).then(|| format!("{seen} tests, xtask/expected-tests.txt expects at least {minimum}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The file itself is in order.
    #[test]
    fn the_file_is_read() {
        let minimums = minimums().unwrap();
        assert!(["unit", "integration", "lab", "vm"].iter().all(|layer| minimums.contains_key(*layer)));
        assert!(parse("unit many").is_err());
    }

    /// A layer that lost tests complains, and so does one that nobody expects.
    #[test]
    fn lost_tests_are_missed() {
        let minimums = parse("# comment\nunit 10\n").unwrap();
        assert_eq!(complaint(&minimums, "unit", 10), None);
        assert!(complaint(&minimums, "unit", 9).is_some());
        assert!(complaint(&minimums, "new", 9).is_some());
    }
}
