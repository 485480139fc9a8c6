//! What the tests of plegtrace share.

pub mod breakpoints;
pub mod found;
pub mod golden;
pub mod goroutines;
pub mod kernel_side;
mod plot;
pub mod program;
pub mod story;
pub mod truth;
pub mod watching;
