//! [`Finished`]: what is kept of processes that have ended: figures, and a few that stand out.

use std::collections::{BTreeMap, VecDeque};

use super::{EndedProcess, ProcessEnd, ProcessKind, ProcessRow, WorkloadProcess, span::Span};
use crate::{
    correlate::{Latency, Limits},
    decode::MonoNs,
};

/// The row of helpers and hooks whose names found no room.
const OTHERS: &str = "other programs";

#[derive(Debug, Default)]
struct Figures {
    latency: Latency,
    failed: u64,
    killed: u64,
}

/// Figures by kind, and the processes that stand out.
#[derive(Debug, Default)]
pub(super) struct Finished {
    rows: BTreeMap<ProcessKind, Figures>,
    /// The longest first.
    pub(super) slowest: Vec<EndedProcess>,
    pub(super) failed: VecDeque<EndedProcess>,
    pub(super) workloads: VecDeque<WorkloadProcess>,
    /// Processes of kinds for which there was no row left.
    pub(super) dropped: u64,
}

impl Finished {
    /// A program ended, or its process.
    pub(super) fn add(&mut self, span: &Span, end: MonoNs, how: ProcessEnd, limits: &Limits) {
        let kind = span.kind();
        if kind == ProcessKind::Workload {
            let mut ended = workload(span);
            ended.end = Some((end, how));
            push_back(&mut self.workloads, ended, limits.process_list);
        }
        let Some(start) = span.start.filter(|_| counts(&kind, how)) else { return };
        if !self.count(&kind, end.since(start), how, limits.process_rows) {
            self.dropped += 1;
        }
        let container = span.container.clone();
        let ended = EndedProcess { pid: span.pid, kind, container, start, end, how };
        if matches!(how, ProcessEnd::Exited(1..) | ProcessEnd::Killed(_)) {
            push_back(&mut self.failed, ended.clone(), limits.process_list);
        }
        self.rank(ended, limits.process_list);
    }

    /// `false` when there is no room for one more kind. Helpers have whatever names the node gives them: half of the room is
    /// theirs, and what finds none in it shares a row.
    fn count(&mut self, kind: &ProcessKind, ns: u64, how: ProcessEnd, bound: usize) -> bool {
        let others = ProcessKind::Helper { program: OTHERS.to_owned() };
        let kind = match kind {
            known if self.rows.contains_key(known) => known,
            helper
                if is_helper(helper)
                    && self.rows.keys().filter(|row| is_helper(row)).count() >= bound / 2 =>
            {
                &others
            }
            new => new,
        };
        if !self.rows.contains_key(kind) {
            if self.rows.len() > bound || self.rows.len() == bound && *kind != others {
                return false;
            }
            self.rows.insert(kind.clone(), Figures::default());
        }
        let Some(row) = self.rows.get_mut(kind) else { return false };
        row.latency.record(ns);
        row.failed += u64::from(matches!(how, ProcessEnd::Exited(1..)));
        row.killed += u64::from(matches!(how, ProcessEnd::Killed(_)));
        true
    }

    /// Keeps it when it is among the longest.
    fn rank(&mut self, ended: EndedProcess, bound: usize) {
        let ns = ended.duration_ns();
        let place = self.slowest.partition_point(|other| other.duration_ns() >= ns);
        if place < bound {
            self.slowest.insert(place, ended);
            self.slowest.truncate(bound);
        }
    }

    /// The figures, by kind.
    pub(super) fn rows(&self) -> Vec<ProcessRow> {
        let row = |(kind, figures): (&ProcessKind, &Figures)| ProcessRow {
            kind: kind.clone(),
            latency: figures.latency.clone(),
            failed: figures.failed,
            killed: figures.killed,
        };
        self.rows.iter().map(row).collect()
    }
}

fn is_helper(kind: &ProcessKind) -> bool {
    matches!(kind, ProcessKind::Helper { .. } | ProcessKind::Hook { .. })
}

/// One `runc init` is three processes (nsexec); the two that only make the third end well and do not count.
pub(super) fn counts(kind: &ProcessKind, how: ProcessEnd) -> bool {
    kind.is_short_lived() && !(matches!(kind, ProcessKind::RuncInit { .. }) && how == ProcessEnd::Exited(0))
}

/// A first process that lives.
pub(super) fn workload(span: &Span) -> WorkloadProcess {
    WorkloadProcess {
        pid: span.pid,
        container: span.container.clone(),
        under: span.under.clone(),
        start: span.start,
        end: None,
    }
}

fn push_back<T>(list: &mut VecDeque<T>, item: T, bound: usize) {
    if list.len() >= bound {
        list.pop_front();
    }
    if bound > 0 {
        list.push_back(item);
    }
}
