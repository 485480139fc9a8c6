//! `cargo xtask check`: everything about the code that can be said without running it.
//!
//! `command` runs the steps and keeps going after a failing one; `arch` holds the rules about who may use what and
//! applies them to the source that `lex` and `uses` have taken apart; `object` looks into the eBPF object;
//! `machine` looks for paths of the machine that a file was written on.

mod arch;
mod command;
mod lex;
mod machine;
mod object;
mod uses;

pub(crate) use command::{Options, run};
