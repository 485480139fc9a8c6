//! What proves plegtrace without root and without a node: properties, stories, goldens, replays, parsers, the command line.
//!
//! One program, so that it is linked once; `cargo xtask test` runs it module by module.

mod ageing;
mod ages;
mod alerts;
mod allocations;
mod census_recorded;
mod cli;
mod diagnose;
mod explain;
mod faults;
mod field;
mod finished;
mod first_screen;
mod flame;
mod goroutine_ages;
mod goroutine_hostile;
mod goroutine_kit;
mod goroutines;
mod memory;
mod pod_relists;
mod preamble;
mod property;
mod quiet;
mod recording;
mod recordings;
mod relist_clock;
mod render;
mod story;
mod story_processes;
mod story_requests;
mod story_time;
mod story_wire;
mod stuck;
mod target_builds;
mod target_forged;
mod target_goldens;
mod target_hostile;
mod target_kit;
mod target_kubelet;
mod timeline;
mod truth;
mod unit;
mod watch;
mod wire;
mod wire_kit;
