//! One file per test; the list is [`crate::table::ALL`].

pub mod boots;
pub mod btf_present;
pub mod containerd_runs;
