//! `cargo xtask test`: what a change has to pass; with `--all`, everything that proves the product.
//!
//! `tier` says which tests are which. `layers` asks cargo which test programs there are and sorts them; `runner` runs them one after the
//! other, `program` one of them with its output in a log, which `tail` reads while it grows and `counts` at the end. `again` asks a test
//! of the machine once more; `outcome` adds everything up, and `deadline` prints that also when the run is ended in the middle.
//! `expected` holds the numbers of tests below which a layer has lost some, `margins` the times and sizes that are measured and not
//! asserted, and `proved` the table of what `--all` saw last. `mutants` asks whether the tests would notice a mistake; `everything` is what
//! only `--all` runs.

mod again;
mod command;
mod counts;
mod deadline;
mod everything;
mod expected;
mod layers;
mod machine;
mod margins;
mod mutants;
mod outcome;
mod program;
mod proved;
mod runner;
mod soak;
mod tail;
mod tier;

pub(crate) use command::{Options, run};
pub(crate) use counts::FailedTest;
pub(crate) use layers::PRIVILEGED;
pub(crate) use machine::moment;
pub(crate) use mutants::check as mutants_apply;
pub(crate) use outcome::{Failure, Outcome, WHOLE};
pub(crate) use soak::{Options as SoakOptions, keep_faults, keep_quiet, run as soak};
