//! HTTP/2 (RFC 9113) without its meaning: where frames begin and end in one direction of a connection.
//!
//! A [`Walker`] is fed one push (the bytes of one system call) after the other. It skips payloads without reading them,
//! so the cost depends on the number of frames only. When what should be a frame header cannot be one, it is *out of
//! step*: that is counted, the rest of the push is skipped, and it tries again at the beginning of each later push, which
//! is where programs mostly begin a frame. There it wants a chain of headers that fits the push, because payloads can
//! look like a header.

mod chain;
mod event;
mod header;
#[cfg(test)]
mod tests;
mod walker;

pub use chain::MAX_STRICT;
pub use event::*;
pub use walker::Walker;
