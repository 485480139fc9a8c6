//! What the tests of plegtrace share.

pub mod golden;
mod plot;
pub mod story;
