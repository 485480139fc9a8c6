//! plegtrace as a library: the stages of the pipeline, in the order in which data flows.

pub mod input;
// What follows is pure: no clock, no file, no process.
pub mod decode;
pub mod span;
// After `span`, because its snapshots are made of spans.
pub mod correlate;
pub mod render;
