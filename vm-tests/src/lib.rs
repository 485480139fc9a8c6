//! What needs another kernel: a kit for tests that run as root in a guest, and the tests themselves.
//!
//! A test is one function in `tests/`, listed in [`table::ALL`] with the kernel features it requires. The binary
//! runs the table and prints one `VM-TEST` line per test and a single `VM-VERDICT` line, which is all that the host
//! (`cargo xtask vm`) reads. There are three results: a test that needs a feature newer than the guest's kernel is a
//! SKIP with the reason; a feature that this kernel is known to have and does not is a FAIL.

pub mod agent;
pub mod bundle;
pub mod container;
pub mod cri;
pub mod feature;
pub mod freezer;
pub mod frozen;
pub mod fuse;
pub mod images;
pub mod kernel;
pub mod kubelet;
pub mod machine;
pub mod mount_storm;
pub mod observation;
pub mod outcome;
pub mod reload;
pub mod runner;
pub mod stall;
pub mod streams;
pub mod syscall_cost;
pub mod table;
pub mod tests;
pub mod undo;
pub mod wait;
