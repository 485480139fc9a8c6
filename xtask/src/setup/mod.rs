//! `cargo xtask setup`: gets the eBPF toolchain and the tools of the VM lab onto this machine.
//!
//! `facts` looks at the machine, `decide` turns the facts into a plan (pure), `apply` installs what the plan
//! lacks, `toolchain` is the remembered result that the other commands use. When the remembered result still
//! stands, nothing of this runs.

mod apply;
mod command;
mod decide;
mod facts;
mod toolchain;
mod vm_tools;

pub(crate) use command::{Options, bpf, run};
pub(crate) use toolchain::Toolchain;
pub(crate) use vm_tools::vm_tools;
