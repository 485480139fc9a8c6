//! `cargo xtask check`: everything about the code that can be said without running it.
//!
//! `command` runs the steps and keeps going after a failing one; `arch` holds the rules about who may use what and
//! applies them to what `source` finds in a file; `order` holds the order of stages and finds circles between the files
//! that `modules` knows; `object` looks into the eBPF object; `scratch` looks at who holds memory that its functions share;
//! `machine` looks for paths of the machine that a file was written on.

mod arch;
mod command;
mod machine;
mod modules;
mod object;
mod order;
mod scratch;
mod source;
mod stack;

pub(crate) use command::{Options, run};
