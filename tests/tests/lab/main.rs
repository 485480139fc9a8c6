//! What proves plegtrace on real nodes of the lab, as root, one test at a time.
//!
//! The modules `gate_*` are what every change has to pass; the others are for `--all`.
//!
//! One program, so that it is linked once; `cargo xtask test` runs it module by module. Modules of a few seconds have
//! neighbours of minutes: run one alone with `cargo test -p plegtrace-tests --test lab MODULE:: -- --test-threads=1`.

mod browser;
mod bus;
mod capabilities;
mod census;
mod census_node;
mod cluster;
mod contained;
mod debug_log;
mod docker;
mod doubt;
mod endurance;
mod exec;
mod failing;
mod gate_bus;
mod gate_node;
mod gate_restarts;
mod gate_runtimes;
mod goroutines;
mod healthy;
mod hostage;
mod limits;
mod matrix;
mod matrix_loud;
mod modes;
mod names;
mod operator;
mod parks;
mod phases;
mod prediction;
mod processes;
mod recording;
mod request_trees;
mod requests;
mod safety;
mod shared;
mod slow;
mod slow_disk;
mod slow_downs;
mod ssh;
mod targets;
mod top;
mod truth;
mod watch;
mod watch_soak;
mod wire;
