//! plegtrace as a library: the stages of the pipeline, in the order in which data flows.

pub mod input;
pub mod target;
