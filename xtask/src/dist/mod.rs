//! `cargo xtask dist`: what people install who have no compiler. Everything is made in memory from one list of files and
//! written in one go; the same commit gives the same bytes.

mod command;
mod deb;
mod image;
mod pages;
mod payload;
mod plugin;
mod program;
mod release;
mod rpm;
mod sbom;
mod sums;
mod tarball;

pub(crate) use command::{Options, run};
