//! plegtrace as a library: the stages of the pipeline, in the order in which data flows.

pub mod checks;
pub mod cli;
pub mod cri;
pub mod exit;
pub mod input;
pub mod recording;

// What looks at the machine.
pub mod census;
pub mod kernel;
pub mod plan;
pub mod preflight;
pub mod target;

// What follows is pure: no clock, no file, no process.
pub mod decode;
pub mod span;
// After `span`, because its snapshots are made of spans.
pub mod correlate;
// Judges what it says.
pub mod stuck;
// Facts in words, for the two after it.
pub mod diagnose;
pub mod render;
pub mod words;

// What knows all of them.
pub mod session;
