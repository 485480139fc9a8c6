//! What each guest is asked in every day's run: all tests on all four would take an hour of both processors.
//!
//! What only a kernel can say is asked of each; what goes through the kernel's doors, of the oldest and the newest; and each fault
//! of the node in one guest, so that every day every fault happens, and every kernel has some. `cargo xtask vm` asks all of all.

use super::suites::{self, Suite};

/// Does its verifier take the programs, and do both ways to follow sockets agree?
const EVERYWHERE: [&str; 6] =
    ["boots", "btf_present", "containerd_runs", "features_match", "verifier_budget", "socket_backends"];

/// How programs are attached, and what is read of processes.
const ENDS: [&str; 12] = [
    "census_without_bpf",
    "programs_load_address",
    "programs_load_cookie",
    "programs_load_multi",
    "attach_fires_address",
    "attach_fires_cookie",
    "attach_fires_multi",
    "process_follow",
    "process_threads",
    "wrong_offset_fails",
    "stuck_mapper",
    "wrong_site_refused",
];

/// The tests of a guest, by name.
pub(super) fn tests(suite: &Suite) -> Vec<&'static str> {
    let ends = [suites::ALL.first(), suites::ALL.last()];
    let ends: &[&str] = if ends.contains(&Some(suite)) { &ENDS } else { &[] };
    [&EVERYWHERE, ends, own(suite.name)].concat()
}

/// Those of one guest alone, chosen so that all guests take about as long as each other; `mount_storm` and
/// `filters_refused` need that very kernel.
fn own(suite: &str) -> &'static [&'static str] {
    match suite {
        "bullseye" => &["mount_storm", "freezer_v1", "fuse_dead", "bus_full", "slow_unmount"],
        "bookworm" => &[
            "filters_refused",
            "systemd_frozen",
            "bus_daemon_stopped",
            "service",
            "file_system_frozen",
            "inotify_full",
            "bus_streams",
        ],
        "trixie" => &[
            "fork_storm",
            "slow_disk_busy",
            "slow_disk_held_back",
            "agent_silent",
            "tasks_full",
            "bus_calls",
        ],
        _ => &["long_reload", "process_names"],
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Every test of the table is asked somewhere, and nothing that is not in it.
    #[test]
    fn every_test_has_a_guest() {
        let table = include_str!("../../../vm-tests/src/table.rs");
        let named = |line: &'static str| line.split_once("Test { name: \"")?.1.split('"').next();
        let all: BTreeSet<&str> = table.lines().filter_map(named).collect();
        let asked: BTreeSet<&str> = suites::ALL.iter().flat_map(tests).collect();
        assert!(all.len() > 30, "{all:?}");
        assert_eq!(asked, all);
    }

    /// The ends are asked for more than what every kernel is, and no test twice.
    #[test]
    fn no_test_twice() {
        for suite in &suites::ALL {
            let asked = tests(suite);
            let different: BTreeSet<&str> = asked.iter().copied().collect();
            assert_eq!(different.len(), asked.len(), "{}", suite.name);
            let is_end = ["bullseye", "sid"].contains(&suite.name);
            assert_eq!(asked.contains(&"attach_fires_address"), is_end, "{}", suite.name);
        }
    }
}
