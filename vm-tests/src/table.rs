//! The list of tests. To add one: a function in its own file under `tests/`, one line here, and the number in
//! `xtask/expected-tests.txt`.

use anyhow::Result;

use crate::feature::Feature;
use crate::tests;

/// One test of the guest.
#[derive(Debug, Clone, Copy)]
pub struct Test {
    /// The name in the table kernel × test.
    pub name: &'static str,
    /// What the kernel must have; see [`crate::feature::reason_to_skip`].
    pub requires: &'static [Feature],
    /// The test; it returns what was seen, for the reader of the log.
    pub run: fn() -> Result<String>,
}

/// Every test, in the order they run: what the later ones rest on comes first.
pub const ALL: &[Test] = &[
    Test { name: "boots", requires: &[], run: tests::boots::run },
    Test { name: "btf_present", requires: &[Feature::Btf], run: tests::btf_present::run },
    Test { name: "containerd_runs", requires: &[], run: tests::containerd_runs::run },
];
