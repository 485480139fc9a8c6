//! What takes too long.

use serde::Serialize;

use super::facts::component;
use crate::{
    correlate::RecentKind,
    diagnose::{Diagnosis, Slow, SlowKind},
    render::judgement::slowness,
};

#[derive(Debug, Serialize)]
pub(super) struct SlowDoc<'a> {
    kind: &'static str,
    operation: Option<&'a str>,
    pid: Option<u32>,
    sentence: String,
    count: u64,
    late: u64,
    p50_ns: u64,
    normal_ns: u64,
    component: Option<&'static str>,
    doing: Option<&'static str>,
    share_percent: Option<u64>,
}

impl<'a> SlowDoc<'a> {
    pub(super) fn list(diagnosis: &'a Diagnosis) -> Vec<Self> {
        diagnosis.slow.iter().map(Self::new).collect()
    }

    fn new(slow: &'a Slow) -> Self {
        let (kind, operation) = match &slow.what {
            SlowKind::Relists => ("relists", None),
            SlowKind::Recent(RecentKind::Calls(method)) => ("calls", Some(method.name())),
            SlowKind::Recent(RecentKind::Runc { sub, .. }) => ("runc", Some(sub.as_str())),
            SlowKind::Recent(RecentKind::Cni { plugin, .. }) => ("cni", Some(plugin.as_str())),
            SlowKind::Recent(RecentKind::Hook(program)) => ("hook", Some(program.as_str())),
            SlowKind::Recent(RecentKind::Shim(_)) => ("shim", None),
        };
        let pid = match &slow.what {
            SlowKind::Recent(RecentKind::Shim(pid)) => Some(*pid),
            _ => None,
        };
        Self {
            kind,
            operation,
            pid,
            sentence: slowness(slow),
            count: slow.count,
            late: slow.late,
            p50_ns: slow.p50_ns,
            normal_ns: slow.normal_ns,
            component: slow.component().map(component),
            doing: slow.part.as_ref().map(|(place, _)| place.doing.name()),
            share_percent: slow.part.as_ref().map(|(_, share)| *share),
        }
    }
}
