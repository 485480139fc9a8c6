//! Relists.

use serde::Serialize;

use super::{
    doc::At,
    tree::{SpanDoc, Time},
};
use crate::correlate::{ListOutcome, Relist, Snapshot};

#[derive(Debug, Serialize)]
pub(super) struct RelistDoc<'a> {
    pid: u32,
    start_at: At,
    duration_ns: u64,
    open: bool,
    interval_ns: Option<u64>,
    list_phase_ns: Option<u64>,
    status_phase_ns: u64,
    status_pods: u64,
    calls: u64,
    failed_calls: u64,
    list: &'static str,
    misfits: u64,
    time: Option<Time>,
    tree: SpanDoc<'a>,
}

impl<'a> RelistDoc<'a> {
    pub(super) fn new(relist: &'a Relist, snapshot: &Snapshot) -> Self {
        let root = relist.root();
        Self {
            pid: root.id.tgid,
            start_at: At::new(snapshot, root.start()),
            duration_ns: root.duration_ns(snapshot.now),
            open: root.is_open(),
            interval_ns: relist.interval_ns,
            list_phase_ns: relist.list_ns,
            status_phase_ns: relist.status_ns,
            status_pods: relist.status_pods,
            calls: relist.calls,
            failed_calls: relist.failed_calls,
            list: match relist.list {
                ListOutcome::Ok => "ok",
                ListOutcome::Failed => "failed",
                ListOutcome::Pending => "pending",
                ListOutcome::Unknown => "unknown",
            },
            misfits: relist.tree.misfits,
            time: Time::new(root, snapshot),
            tree: SpanDoc::new(root, snapshot),
        }
    }
}
