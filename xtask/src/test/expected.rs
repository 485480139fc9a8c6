//! `xtask/expected-tests.txt`: how many tests each layer must report, so that tests cannot vanish unseen.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail};

use super::tier::Tier;

const FILE: &str = include_str!("../../expected-tests.txt");

/// The smallest number of tests (passed, failed or skipped) of each layer in this tier.
///
/// # Errors
/// When a line of the file is neither a comment nor `tier layer number`.
pub(crate) fn minimums(tier: Tier) -> Result<BTreeMap<String, usize>> {
    parse(FILE, tier)
}

fn parse(text: &str, tier: Tier) -> Result<BTreeMap<String, usize>> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut found = BTreeMap::new();
    for line in lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        let bad = || format!("xtask/expected-tests.txt: no `tier layer number` in {line:?}");
        let [of, layer, number] = words[..] else { bail!("{}", bad()) };
        let number = number.parse().with_context(bad)?;
        if of == tier.name() {
            found.insert(layer.to_owned(), number);
        }
    }
    Ok(found)
}

/// What is wrong with a number of tests; `None` when there are enough.
pub(crate) fn complaint(minimums: &BTreeMap<String, usize>, layer: &str, seen: usize) -> Option<String> {
    // Whoever asks for some tests only expects no number.
    if minimums.is_empty() {
        return None;
    }
    let Some(minimum) = minimums.get(layer) else {
        return Some(format!("no line for {layer} in xtask/expected-tests.txt: {seen} were seen"));
    };
    (seen < *minimum).then(|| format!("{seen} tests, xtask/expected-tests.txt expects at least {minimum}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The file itself is in order.
    #[test]
    fn the_file_is_read() {
        for tier in [Tier::Gate, Tier::All] {
            let minimums = minimums(tier).unwrap();
            assert!(["unit", "integration", "lab", "vm"].iter().all(|layer| minimums.contains_key(*layer)));
        }
        assert!(parse("gate unit many", Tier::Gate).is_err() && parse("unit 1", Tier::Gate).is_err());
    }

    /// A layer that lost tests complains, and so does one that nobody expects; who asks for some tests expects no number.
    #[test]
    fn lost_tests_are_missed() {
        let minimums = parse("# comment\ngate unit 10\nall unit 20\n", Tier::Gate).unwrap();
        assert_eq!(complaint(&minimums, "unit", 10), None);
        assert!(complaint(&minimums, "unit", 9).is_some());
        assert!(complaint(&minimums, "new", 9).is_some());
        assert_eq!(complaint(&BTreeMap::new(), "unit", 0), None);
    }
}
