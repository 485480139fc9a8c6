//! A real kubelet, standalone, with static pods: `build` makes the program.

mod build;

pub use build::{KubeletBuild, kubelet as program};
