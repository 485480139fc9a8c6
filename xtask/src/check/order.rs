//! In which order the files of the tracer may know each other: stages in the order in which data flows, and no circle
//! between files of different folders.

use std::collections::{BTreeMap, BTreeSet};

use super::modules::{Edge, Modules};

/// The stages in the order in which data flows: each may know those before it. Those of one row do not know each other.
/// What is not listed here (`input`, which is the seam that all write or read, and plain data and helpers such as `cri`,
/// `cli`, `checks`, `exit`, `chain` and `clock`) may be known by all and knows no stage.
const ORDER: &[&[&str]] = &[
    &["target"],
    &["preflight"],
    &["plan"],
    &["kernel", "census"],
    &["recording"],
    &["decode"],
    &["wire"],
    &["span"],
    &["correlate"],
    &["stuck"],
    &["words"],
    &["flame", "timeline"],
    &["diagnose"],
    &["render"],
    &["otlp"],
    &["live"],
    &["probes"],
    &["engine"],
    &["watch"],
    &["top"],
    &["commands"],
    &["session"],
    &["main"],
];

/// What is wrong with who knows whom.
pub(crate) fn violations(modules: &Modules) -> Vec<String> {
    judge(&modules.edges())
}

fn judge(edges: &BTreeMap<Edge, usize>) -> Vec<String> {
    let mut found = Vec::new();
    for (edge, line) in edges.iter().filter(|(edge, _)| is_against_the_order(edge)) {
        found.push(format!(
            "tracer/src/{}:{line}: imports {}: against the order of stages",
            edge.from, edge.to
        ));
    }
    for circle in circles(&edges.keys().collect()) {
        let files = circle.iter().copied().collect::<Vec<_>>().join(", ");
        found.push(format!("a circle between files of different folders: {files}"));
        let inside = |edge: &Edge| circle.contains(&*edge.from) && circle.contains(&*edge.to);
        let inside = edges.iter().filter(|(edge, _)| inside(edge));
        found.extend(
            inside.map(|(edge, line)| format!("  tracer/src/{}:{line}: imports {}", edge.from, edge.to)),
        );
    }
    found
}

/// Files that know nothing that came later are fine, and so is a stage with itself.
fn is_against_the_order(edge: &Edge) -> bool {
    let stage = |file: &str| file.split(['/', '.']).next().unwrap_or_default().to_owned();
    let (from, to) = (stage(&edge.from), stage(&edge.to));
    let rank = |stage: &str| ORDER.iter().position(|row| row.contains(&stage)).map_or(0, |at| at + 1);
    from != to && rank(&to) > 0 && rank(&to) >= rank(&from)
}

/// Groups of files, not all of one folder, that reach each other.
fn circles<'e>(edges: &BTreeSet<&'e Edge>) -> Vec<BTreeSet<&'e str>> {
    let mut uses: BTreeMap<&str, Vec<&'e str>> = BTreeMap::new();
    for edge in edges {
        uses.entry(&edge.from).or_default().push(&edge.to);
    }
    let reached: BTreeMap<&'e str, BTreeSet<&'e str>> =
        edges.iter().map(|edge| (&*edge.from, reach(&uses, &edge.from))).collect();
    let mut found: BTreeSet<BTreeSet<&'e str>> = BTreeSet::new();
    for (file, others) in &reached {
        let back = |other: &&'e str| reached.get(other).is_some_and(|all| all.contains(file));
        let circle: BTreeSet<&str> = others.iter().copied().filter(back).collect();
        let folders: BTreeSet<&str> = circle.iter().map(|file| folder(file)).collect();
        if folders.len() > 1 {
            found.insert(circle);
        }
    }
    found.into_iter().collect()
}

/// What a file uses, and what that uses, and so on.
fn reach<'e>(uses: &BTreeMap<&str, Vec<&'e str>>, from: &str) -> BTreeSet<&'e str> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&'e str> = uses.get(from).cloned().unwrap_or_default();
    while let Some(file) = next.pop() {
        if reached.insert(file) {
            next.extend(uses.get(file).into_iter().flatten().copied());
        }
    }
    reached
}

fn folder(file: &str) -> &str {
    file.rsplit_once('/').map_or("", |(folder, _)| folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(edges: &[(&str, &str)]) -> Vec<String> {
        let edge = |(from, to): &(&str, &str)| Edge { from: (*from).to_owned(), to: (*to).to_owned() };
        judge(&edges.iter().map(|pair| (edge(pair), 7)).collect())
    }

    /// Later stages know earlier ones and everybody knows the seam, not the other way round; equals do not know each other.
    #[test]
    fn stages_have_an_order() {
        let fine =
            [("render/a.rs", "correlate/b.rs"), ("target/a.rs", "input/b.rs"), ("plan/a.rs", "plan/b/c.rs")];
        assert_eq!(judged(&fine), [""; 0]);
        for (from, to) in [
            ("correlate/a.rs", "diagnose/b.rs"),
            ("kernel/a.rs", "census/b.rs"),
            ("input/a.rs", "target/b.rs"),
            ("span/a.rs", "correlate/mod.rs"),
        ] {
            let found = judged(&[(from, to)]);
            assert_eq!(found, [format!("tracer/src/{from}:7: imports {to}: against the order of stages")]);
        }
    }

    /// A circle through two folders is found, one inside of a folder is nobody's business.
    #[test]
    fn circles_between_folders() {
        assert_eq!(judged(&[("span/a.rs", "span/b.rs"), ("span/b.rs", "span/a.rs")]), [""; 0]);
        let circle = [("span/a.rs", "span/b/c.rs"), ("span/b/c.rs", "span/d.rs"), ("span/d.rs", "span/a.rs")];
        let found = judged(&circle);
        assert_eq!(found.len(), 4, "{found:?}");
        assert!(found[0].ends_with("span/a.rs, span/b/c.rs, span/d.rs"), "{found:?}");
        assert_eq!(judged(&circle[..2]), [""; 0], "the last import closes it");
    }
}
