//! From the command line to the exit code: picks the command, prints its error, and does nothing else.

mod entry;
mod version;

pub use entry::main;
