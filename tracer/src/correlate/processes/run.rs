//! [`Run`]: a program that ran, or runs, for a request; [`Runs`]: the last of those that have ended.

use std::{collections::VecDeque, sync::Arc};

use plegtrace_common::role::Role;

use super::{ProcessEnd, ProcessKind, finished::counts, span::Span};
use crate::decode::MonoNs;

/// One program of a short-lived process, from its `execve` on.
#[derive(Clone, Debug)]
pub(in crate::correlate) struct Run {
    pub(in crate::correlate) pid: u32,
    pub(in crate::correlate) kind: ProcessKind,
    /// Container it worked for.
    pub(in crate::correlate) container: Option<String>,
    /// What the shim that started it works for: its pod.
    pub(in crate::correlate) pod: Option<String>,
    pub(in crate::correlate) parent: Option<u32>,
    /// Role of who started it.
    pub(in crate::correlate) parent_role: Role,
    pub(in crate::correlate) start: MonoNs,
    /// When and how it ended; `None` while it runs.
    pub(in crate::correlate) end: Option<(MonoNs, ProcessEnd)>,
}

impl Run {
    /// `None` for what is no short-lived program, began before the probes, or runs for no CRI request.
    pub(super) fn of_program(
        span: &Span,
        parent: Option<&Span>,
        end: Option<(MonoNs, ProcessEnd)>,
    ) -> Option<Self> {
        let kind = span.kind();
        let counted = end.map_or_else(|| kind.is_short_lived(), |(_, how)| counts(&kind, how));
        let start = span.start.filter(|_| counted && span.may_be_of_cri())?;
        let shim = parent.filter(|parent| parent.role == Role::Shim);
        Some(Self {
            pid: span.pid,
            kind,
            container: span.container.clone(),
            pod: shim.and_then(|shim| shim.container.clone()),
            parent: span.parent,
            parent_role: span.parent_role,
            start,
            end,
        })
    }

    /// Did it begin while `other`, its parent, ran?
    pub(in crate::correlate) fn is_child_of(&self, other: &Self) -> bool {
        self.parent == Some(other.pid)
            && self.start >= other.start
            && other.end.is_none_or(|(end, _)| self.start <= end)
    }
}

/// The last programs that have ended.
#[derive(Debug, Default)]
pub(super) struct Runs {
    ended: VecDeque<Arc<Run>>,
    /// How many there were.
    pub(super) count: u64,
    /// How many were given up by age.
    aged: u64,
}

impl Runs {
    /// One more.
    pub(super) fn add(&mut self, run: Run, bound: usize) {
        self.count += 1;
        self.ended.push_back(Arc::new(run));
        while self.ended.len() > bound {
            self.ended.pop_front();
        }
    }

    /// Gives up those that are not wanted: it is given each with its end.
    pub(super) fn age(&mut self, wanted: impl Fn(&Run, MonoNs) -> bool) {
        let before = self.ended.len();
        self.ended.retain(|run| run.end.is_none_or(|(end, _)| wanted(run, end)));
        self.aged += (before - self.ended.len()) as u64;
    }

    /// Those that are kept, in the order of their ends.
    pub(super) fn kept(&self) -> impl Iterator<Item = &Arc<Run>> {
        self.ended.iter()
    }

    /// Those that made room for younger ones.
    pub(super) fn evicted(&self) -> u64 {
        self.count - self.aged - self.ended.len() as u64
    }
}
