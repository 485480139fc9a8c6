//! [`Limits`]: how much state may wait, and [`Drops`]: what did not fit.

use super::thresholds::SECOND_NS;
use crate::input::LossCount;

/// How much of the past a report shows. After that time memory is flat.
const KEPT_NS: u64 = 180 * SECOND_NS;

/// Bounds of all waiting state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Records that arrive later than others with an end this much younger may be misplaced.
    pub reorder_ns: u64,
    /// Relists kept; the oldest go first.
    pub relists: usize,
    /// Calls kept inside those relists.
    pub relist_calls: usize,
    /// Kubelet calls kept of goroutines that are not known to relist.
    pub loose_calls: usize,
    /// Client calls, and handlers, kept to find out who waits for whom.
    pub recent_calls: usize,
    /// So long after its end a call, a park or a program is kept, and for as long as something needs it.
    pub kept_ns: u64,
    /// So long after its end a process has rows, and is among the targets.
    pub gone_ns: u64,
    /// Open calls kept.
    pub open_calls: usize,
    /// Rows of the tables (operation × process).
    pub rows: usize,
    /// Watched processes kept: as many as the kernel side watches.
    pub processes: usize,
    /// Rows of the table of processes.
    pub process_rows: usize,
    /// Finished processes kept of each sort that stands out: slow, failed, first of a container.
    pub process_list: usize,
    /// Programs of ended processes kept to find the request they ran for.
    pub ended_processes: usize,
    /// Finished requests kept with their trees, the longest of each operation.
    pub requests: usize,
    /// Open requests that have trees, the oldest.
    pub open_requests: usize,
    /// Targets, refusals and loss reasons kept, each.
    pub facts: usize,
    /// Memory for all facts that are kept, whatever they are about, bytes.
    pub fact_bytes: usize,
    /// Processes of a census kept, and Go programs of which goroutines are.
    pub census: usize,
    /// Parks kept; the oldest go first.
    pub parks: usize,
    /// Different stacks of parks.
    pub stacks: usize,
    /// Names of addresses in those stacks.
    pub symbols: usize,
}

impl Default for Limits {
    /// About 24 MiB when everything is full, and what facts take.
    fn default() -> Self {
        Self {
            reorder_ns: 2_000_000_000,
            // As many as a kubelet makes that lists once a second.
            relists: (KEPT_NS / SECOND_NS) as usize,
            relist_calls: 65_536,
            loose_calls: 16_384,
            recent_calls: 16_384,
            kept_ns: KEPT_NS,
            gone_ns: KEPT_NS,
            open_calls: 32_768,
            rows: 1024,
            processes: 16_384,
            process_rows: 256,
            process_list: 64,
            ended_processes: 2048,
            requests: 64,
            open_requests: 256,
            facts: 4096,
            // Recorded nodes, of a few pods each, take up to half a MiB.
            fact_bytes: 64 << 20,
            census: 4096,
            parks: 32_768,
            stacks: 8192,
            symbols: 16_384,
        }
    }
}

/// What the stream itself or the bounds forced us to give up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Drops {
    /// Records that could not be decoded.
    pub(super) undecoded: u64,
    /// Calls of a hook nobody announced.
    pub(super) unknown_hook: u64,
    /// Calls inside relists that did not fit.
    pub(super) relist_calls: u64,
    /// Whole relists that made room for younger ones.
    pub(super) relists: u64,
    /// Calls outside relists that made room for younger ones.
    pub(super) loose_calls: u64,
    /// Open calls that did not fit.
    pub(super) open_calls: u64,
    /// Calls of rows that did not fit.
    pub(super) row_calls: u64,
    /// Processes that did not fit.
    pub(super) processes: u64,
    /// Processes of kinds that did not fit.
    pub(super) process_rows: u64,
    /// Processes and programs of a census that did not fit.
    pub(super) census: u64,
    /// Ended processes that made room for younger ones.
    pub(super) ended_processes: u64,
    /// Open requests without a tree.
    pub(super) open_requests: u64,
    /// Facts that did not fit.
    pub(super) facts: u64,
    /// Facts for which there was no memory, or with a text that none of ours has.
    pub(super) heavy_facts: u64,
    /// Parks that made room for younger ones.
    pub(super) parks: u64,
    /// Stacks of parks, and their names, that did not fit.
    pub(super) stacks: u64,
    /// Requests between runtime and shims that did not fit.
    pub(super) messages: u64,
    /// Calls over D-Bus that did not fit.
    pub(super) bus_calls: u64,
}

impl Drops {
    /// As losses of the stages "decode" and "correlate"; zero counts are left out.
    pub(super) fn losses(&self) -> Vec<LossCount> {
        let all = [
            ("undecoded", "records could not be decoded", self.undecoded, true),
            ("unknown_hook", "calls of a hook that was not announced", self.unknown_hook, true),
            (
                "relist_calls_full",
                "a relist had too many calls: some are not in its tree",
                self.relist_calls,
                true,
            ),
            ("relists_evicted", "old relists made room for younger ones", self.relists, false),
            ("loose_calls_evicted", "old kubelet calls made room for younger ones", self.loose_calls, false),
            ("open_calls_full", "too many calls open at once: some are not shown", self.open_calls, true),
            (
                "rows_full",
                "too many operations and processes: some calls are in no table",
                self.row_calls,
                true,
            ),
            ("processes_full", "too many processes at once: some are not shown", self.processes, true),
            (
                "process_rows_full",
                "too many kinds of processes: some are in no table",
                self.process_rows,
                true,
            ),
            (
                "ended_processes_evicted",
                "old processes made room for younger ones",
                self.ended_processes,
                false,
            ),
            (
                "request_trees_full",
                "too many requests open at once: the youngest have no tree",
                self.open_requests,
                false,
            ),
            ("census_full", "too many processes in a census: some are not shown", self.census, true),
            ("parks_evicted", "old parks made room for younger ones", self.parks, false),
            ("stacks_full", "too many places where goroutines park: some have no name", self.stacks, false),
            (
                "messages_full",
                "too many requests between kubelet, runtime and shims at once: some are in no table",
                self.messages,
                true,
            ),
            (
                "bus_calls_full",
                "too many calls over D-Bus at once: some are in no table",
                self.bus_calls,
                true,
            ),
            (
                "facts_too_large",
                "facts took too much memory, or had texts that are too long: they were left out",
                self.heavy_facts,
                true,
            ),
            ("facts_full", "too many targets, refusals or reasons: some are not shown", self.facts, true),
        ];
        let entry = |(reason, sentence, count, is_loss): (&str, &str, u64, bool)| LossCount {
            stage: if reason == "undecoded" { "decode".into() } else { "correlate".into() },
            reason: reason.into(),
            sentence: sentence.into(),
            count,
            is_loss,
        };
        all.into_iter().filter(|(_, _, count, _)| *count > 0).map(entry).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was given up is told with its stage; what was not is not mentioned.
    #[test]
    fn only_what_happened() {
        assert_eq!(Drops::default().losses(), []);
        let losses = Drops { undecoded: 3, loose_calls: 2, ..Drops::default() }.losses();
        let told: Vec<_> =
            losses.iter().map(|loss| (loss.stage.as_str(), loss.count, loss.is_loss)).collect();
        assert_eq!(told, [("decode", 3, true), ("correlate", 2, false)]);
    }
}
