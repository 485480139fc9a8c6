//! What real clients and runtimes say to each other, byte by byte, as golden files: how it is recorded and read.

pub mod capture;
mod contents;
pub mod record;
pub mod relay;

pub use capture::{Capture, Chunk};
pub use contents::{Protocol, protobuf};
