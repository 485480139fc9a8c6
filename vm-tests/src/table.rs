//! The list of tests. To add one: a function in its own file under `tests/`, one line here, and the number in
//! `xtask/expected-tests.txt`.

use anyhow::Result;

use crate::feature::Feature;
use crate::tests;

/// One test of the guest.
#[derive(Debug, Clone, Copy)]
pub struct Test {
    /// The name in the table kernel × test.
    pub name: &'static str,
    /// What the kernel must have; see [`crate::feature::reason_to_skip`].
    pub requires: &'static [Feature],
    /// The test; it returns what was seen, for the reader of the log.
    pub run: fn() -> Result<String>,
}

const COOKIE: &[Feature] = &[Feature::UprobeCookie];
const MULTI: &[Feature] = &[Feature::UprobeMulti];

/// Every test, in the order they run: what the later ones rest on comes first.
pub const ALL: &[Test] = &[
    Test { name: "boots", requires: &[], run: tests::boots::run },
    Test { name: "btf_present", requires: &[Feature::Btf], run: tests::btf_present::run },
    Test { name: "containerd_runs", requires: &[], run: tests::containerd_runs::run },
    Test { name: "census_without_bpf", requires: &[], run: tests::census_without_bpf::run },
    Test { name: "features_match", requires: &[], run: tests::features_match::run },
    Test { name: "programs_load_address", requires: &[], run: tests::programs_load::address },
    Test { name: "programs_load_cookie", requires: COOKIE, run: tests::programs_load::cookie },
    Test { name: "programs_load_multi", requires: MULTI, run: tests::programs_load::multi },
    Test { name: "verifier_budget", requires: &[], run: tests::verifier_budget::run },
    Test { name: "process_follow", requires: &[], run: tests::process_follow::run },
    Test { name: "process_names", requires: &[], run: tests::process_names::run },
    Test { name: "process_inside", requires: &[], run: tests::process_inside::run },
    Test { name: "process_threads", requires: &[], run: tests::process_threads::run },
    Test { name: "attach_fires_address", requires: &[], run: tests::attach_fires::address },
    Test { name: "attach_fires_cookie", requires: COOKIE, run: tests::attach_fires::cookie },
    Test { name: "attach_fires_multi", requires: MULTI, run: tests::attach_fires::multi },
    Test { name: "service", requires: &[], run: tests::service::run },
    Test { name: "bus_calls", requires: &[], run: tests::bus_calls::run },
    Test { name: "bus_streams", requires: &[], run: tests::bus_streams::run },
    Test { name: "socket_backends", requires: &[], run: tests::socket_backends::run },
    Test { name: "systemd_frozen", requires: &[], run: tests::systemd_frozen::run },
    Test { name: "mount_storm", requires: &[Feature::EagerSystemd], run: tests::mount_storm::run },
    Test { name: "long_reload", requires: &[], run: tests::long_reload::run },
    Test { name: "bus_daemon_stopped", requires: &[], run: tests::bus_daemon_stopped::run },
    Test { name: "bus_full", requires: &[], run: tests::bus_full::run },
    Test { name: "fuse_dead", requires: &[], run: tests::fuse_dead::run },
    Test { name: "file_system_frozen", requires: &[], run: tests::file_system_frozen::run },
    Test { name: "freezer_v1", requires: &[], run: tests::freezer_v1::run },
    Test { name: "agent_silent", requires: &[], run: tests::agent_silent::run },
    Test { name: "fork_storm", requires: &[], run: tests::fork_storm::run },
    Test { name: "tasks_full", requires: &[], run: tests::tasks_full::run },
    Test { name: "filters_refused", requires: &[Feature::CompiledFilters], run: tests::filters_refused::run },
    Test { name: "inotify_full", requires: &[], run: tests::inotify_full::run },
    Test { name: "slow_disk_busy", requires: &[], run: tests::slow_disk::busy },
    Test { name: "slow_disk_held_back", requires: &[], run: tests::slow_disk::held_back },
    Test { name: "slow_unmount", requires: &[], run: tests::slow_unmount::run },
    Test { name: "wrong_offset_fails", requires: &[], run: tests::wrong_offset_fails::run },
    Test { name: "stuck_mapper", requires: &[], run: tests::stuck_mapper::run },
    Test { name: "wrong_site_refused", requires: &[], run: tests::wrong_site_refused::run },
];
