//! What the tests of plegtrace share.

pub mod bench;
pub mod breakpoints;
pub mod churn;
pub mod connector;
pub mod draw;
pub mod endurance;
pub mod found;
pub mod golden;
pub mod goroutines;
pub mod kernel_side;
pub mod life;
pub mod matrix;
mod plot;
pub mod program;
pub mod prometheus;
pub mod recordings;
pub mod story;
pub mod strace;
pub mod truth;
pub mod watching;
pub mod wire;
