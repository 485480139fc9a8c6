//! One file per test; the list is [`crate::table::ALL`].

pub mod agent_silent;
pub mod attach_fires;
pub mod boots;
pub mod btf_present;
pub mod bus_calls;
pub mod bus_daemon_stopped;
pub mod bus_full;
pub mod census_without_bpf;
pub mod containerd_runs;
pub mod features_match;
pub mod file_system_frozen;
pub mod fuse_dead;
pub mod mount_storm;
pub mod process_follow;
pub mod process_names;
pub mod process_threads;
pub mod programs_load;
pub mod service;
pub mod socket_backends;
pub mod stuck_mapper;
pub mod systemd_frozen;
pub mod verifier_budget;
pub mod wrong_offset_fails;
pub mod wrong_site_refused;
