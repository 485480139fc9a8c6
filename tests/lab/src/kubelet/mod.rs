//! A real kubelet, standalone, with static pods: `build` makes the program, `config` and `manifest` write its files,
//! `daemon` runs it, `churn` keeps adding and removing pods.

mod build;
mod churn;
mod config;
mod daemon;
mod manifest;
mod sysctls;

pub(crate) use build::build_beside;
pub use build::{KubeletBuild, fetch, program, program_of_v1, program_with_blocking_pleg};
pub use churn::Churn;
pub use daemon::Kubelet;
pub use manifest::{SECRETS, TOOLS};
