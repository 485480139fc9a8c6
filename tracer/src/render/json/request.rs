//! CRI requests that are no part of a relist.

use serde::Serialize;

use super::{
    calls::caller,
    doc::At,
    facts::component,
    tree::{SpanDoc, Time},
};
use crate::correlate::{RequestTree, Snapshot};

#[derive(Debug, Serialize)]
pub(super) struct RequestDoc<'a> {
    operation: &'a str,
    component: &'static str,
    pid: u32,
    start_at: At,
    duration_ns: u64,
    open: bool,
    caller: &'static str,
    container: Option<&'a str>,
    left_out: u64,
    misfits: u64,
    time: Option<Time>,
    tree: SpanDoc<'a>,
}

impl<'a> RequestDoc<'a> {
    pub(super) fn new(request: &'a RequestTree, snapshot: &Snapshot) -> Self {
        let root = request.root();
        Self {
            operation: root.operation(),
            component: component(root.component()),
            pid: root.id.tgid,
            start_at: At::new(snapshot, root.start()),
            duration_ns: root.duration_ns(snapshot.now),
            open: root.is_open(),
            caller: caller(request.caller),
            container: request.container.as_deref(),
            left_out: request.left_out,
            misfits: request.tree.misfits,
            time: Time::new(root, snapshot),
            tree: SpanDoc::new(root, snapshot),
        }
    }
}
