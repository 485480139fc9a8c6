//! A real kubelet, standalone, with static pods: `build` makes the program, `config` and `manifest` write its files,
//! `daemon` runs it, `churn` keeps adding and removing pods.

mod build;
mod churn;
mod config;
mod daemon;
mod manifest;
mod sysctls;

pub(crate) use build::Beside;
pub(crate) use build::LOCKING_POD;
pub use build::{
    KubeletBuild, fetch, program, program_of_v1, program_that_locks_itself_out, program_with_blocking_pleg,
};
pub use churn::Churn;
pub use daemon::Kubelet;
pub(crate) use manifest::path as manifest_path;
pub use manifest::{SECRETS, TOOLS};
