//! plegtrace as a library: the stages of the pipeline, in the order in which data flows.

pub mod cli;
pub mod exit;
pub mod input;
pub mod kernel;
pub mod plan;
pub mod preflight;
pub mod target;
