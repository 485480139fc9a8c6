//! Loops of kubelets.

use serde::Serialize;

use crate::{
    correlate::{BusyLoop, KubeletLoops, LoopWait},
    stuck::LoopStall,
};

/// The loops of one kubelet.
#[derive(Debug, Serialize)]
pub(super) struct LoopsDoc<'a> {
    pid: u32,
    /// Looks that found its sync loop; two are needed to tell what hangs.
    looks: u32,
    found: Vec<&'static str>,
    busy: Vec<LoopDoc<'a>>,
}

impl<'a> From<&'a KubeletLoops> for LoopsDoc<'a> {
    fn from(loops: &'a KubeletLoops) -> Self {
        Self {
            pid: loops.pid,
            looks: loops.looks,
            found: loops.found.iter().map(|kind| kind.name()).collect(),
            busy: loops.busy.iter().map(|one| LoopDoc::new(one, std::slice::from_ref(&one.goid))).collect(),
        }
    }
}

/// A loop, or several of one kind, that wait for something.
#[derive(Debug, Serialize)]
pub(super) struct LoopDoc<'a> {
    name: &'static str,
    stops: &'static str,
    goroutines: &'a [u64],
    waits_for: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lock: Option<&'a str>,
    /// For how long looks found it not gone on; 0 after one look.
    waited_ns: u64,
}

impl<'a> LoopDoc<'a> {
    pub(super) fn of_stall(stall: &'a LoopStall) -> Self {
        Self::new(&stall.oldest, &stall.goids)
    }

    fn new(one: &'a BusyLoop, goroutines: &'a [u64]) -> Self {
        let (method, lock) = match &one.wait {
            LoopWait::Plugin { method, .. } => (method.as_deref(), None),
            LoopWait::Lock { by } => (None, by.as_deref()),
            _ => (None, None),
        };
        Self {
            name: one.kind.name(),
            stops: one.kind.stops(),
            goroutines,
            waits_for: one.wait.name(),
            method,
            lock,
            waited_ns: one.wait_ns(),
        }
    }
}
