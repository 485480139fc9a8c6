//! The programs, one file per family.

mod call;
mod park;
mod process;
mod wire;
