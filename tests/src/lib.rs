//! What the tests of plegtrace share.

pub mod bench;
pub mod breakpoints;
pub mod browser;
pub mod churn;
pub mod claim;
pub mod connector;
pub mod draw;
pub mod endurance;
pub mod faults;
pub mod found;
pub mod golden;
pub mod goroutines;
pub mod kernel_side;
pub mod life;
pub mod matrix;
pub mod perfetto;
mod plot;
pub mod program;
pub mod prometheus;
pub mod recordings;
pub mod run_delay;
pub mod slowest;
pub mod story;
pub mod strace;
pub mod truth;
pub mod watching;
pub mod wire;
