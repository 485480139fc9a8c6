//! `cargo xtask test`: everything that proves the product on this machine, in layers.
//!
//! `layers` asks cargo which test programs there are and sorts them; `runner` knows which run when, `program` runs one with its output in a log;
//! `counts` reads what it printed; `expected` holds the numbers of tests below which a layer has lost some; `command`
//! goes through the layers, keeps going after a failing one, and ends with the line that counts everything. `mutants`
//! asks whether the tests would notice a mistake; `everything` is what only `--all` runs, and `ledger` what of that has passed.

mod command;
mod counts;
mod everything;
mod expected;
mod layers;
mod ledger;
mod mutants;
mod outcome;
mod program;
mod runner;
mod soak;

pub(crate) use command::{Options, run};
pub(crate) use layers::PRIVILEGED;
pub(crate) use mutants::check as mutants_apply;
pub(crate) use soak::{Options as SoakOptions, run as soak};
