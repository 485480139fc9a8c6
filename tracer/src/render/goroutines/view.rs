//! [`GoroutinesView`]: everything that is printed about the goroutines of one process.

use crate::input::{GoroutineGroup, GoroutinesFact};

/// One reading of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoroutinesView {
    /// Version of plegtrace.
    pub tool_version: String,
    /// Host name.
    pub node: String,
    /// Path of the executable as the process sees it. Hostile text.
    pub exe: String,
    /// From when ages are counted, CLOCK_MONOTONIC.
    pub now_ns: u64,
    /// CLOCK_REALTIME minus CLOCK_MONOTONIC.
    pub realtime_offset_ns: i64,
    /// Highest resident memory of plegtrace until then, bytes.
    pub rss_peak_bytes: u64,
    /// What was read.
    pub fact: GoroutinesFact,
}

impl GoroutinesView {
    /// How long ago the last list of a kubelet began that succeeded.
    #[must_use]
    pub fn last_list_age_ns(&self) -> Option<u64> {
        Some(self.now_ns.saturating_sub(self.fact.last_list_ns?))
    }

    /// How long the longest of a group waits at least.
    #[must_use]
    pub fn waiting_ns(&self, group: &GoroutineGroup) -> Option<u64> {
        Some(self.now_ns.saturating_sub(group.parked_by_ns?))
    }
}
