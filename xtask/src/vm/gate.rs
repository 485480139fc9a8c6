//! What a change has to pass in guests: does each of three kernels take the programs, and do their probes fire? Faults of the node in guests
//! and the newest kernel, which changes without us, are for `cargo xtask test --all` and `cargo xtask vm`.

use super::suites::{self, Suite};

/// Asked in each of the guests. All programs are loaded in one mode; what is another program in another mode, `attach_fires` loads there.
pub(super) const TESTS: [&str; 8] = [
    "boots",
    "btf_present",
    "features_match",
    "programs_load_address",
    "verifier_budget",
    "attach_fires_address",
    "attach_fires_cookie",
    "attach_fires_multi",
];

/// The newest is sid's.
const NEWEST: &str = "sid";

/// Those guests.
pub(super) fn suites() -> Vec<Suite> {
    suites::ALL.into_iter().filter(|suite| suite.name != NEWEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names are those of the table, and no guest is asked by another one's name.
    #[test]
    fn the_tests_exist() {
        let table = include_str!("../../../vm-tests/src/table.rs");
        let named = |line: &'static str| line.split_once("Test { name: \"")?.1.split('"').next();
        let all: Vec<&str> = table.lines().filter_map(named).collect();
        assert!(all.len() > 30 && TESTS.iter().all(|test| all.contains(test)), "{all:?}");
        // Tests are chosen by a part of their name.
        let asked = all.iter().filter(|name| TESTS.iter().any(|test| name.contains(test))).count();
        assert_eq!(asked, TESTS.len());
        assert_eq!(suites().iter().map(|suite| suite.kernel).collect::<Vec<_>>(), ["5.10", "6.1", "6.12"]);
    }
}
