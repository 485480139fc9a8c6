//! plegtrace as a library: the stages of the pipeline, in the order in which data flows.

mod chain;
pub mod checks;
pub mod cli;
pub mod clock;
pub mod cri;
pub mod exit;
pub mod input;
pub mod recording;

// What looks at the machine.
pub mod census;
pub mod kernel;
pub mod otlp;
pub mod plan;
pub mod preflight;
pub mod target;

// What follows is pure: no clock, no file, no process.
pub mod decode;
pub mod span;
// Requests from bytes; nobody feeds it yet.
pub mod wire;
// After `span`, because its snapshots are made of spans.
pub mod correlate;
// Judges what it says.
pub mod stuck;
// Facts in words, for the two after it.
pub mod diagnose;
pub mod flame;
pub mod render;
pub mod timeline;
pub mod words;

// What runs for as long as plegtrace observes.
pub mod engine;
mod live;
pub mod probes;
#[cfg(feature = "top")]
pub mod top;
pub mod watch;

// What is done when plegtrace is called.
pub mod commands;
pub mod session;

#[cfg(test)]
mod tests;
