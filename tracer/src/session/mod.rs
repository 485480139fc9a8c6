//! From the command line to the exit code: picks the command, prints its error, and does nothing else.

mod entry;

pub use entry::main;

// Where these were found before there was an engine.
pub use crate::{
    clock,
    engine::{EngineError as SessionError, Tap, observe},
};
