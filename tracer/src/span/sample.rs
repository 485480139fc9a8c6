//! Spans for the tests of this folder.

use std::sync::Arc;

use super::{Span, SpanKind};
use crate::{
    decode::{CallId, CallResult, MonoNs},
    input::{Component, HookFact, Layer},
};

/// A span of goroutine 1 in process 1.
pub(crate) fn span(start: u64, end: Option<u64>, depth: u32) -> Span {
    let hook = HookFact {
        index: 0,
        layer: Layer::KubeletCall,
        component: Component::Kubelet,
        exe: "/usr/bin/kubelet".into(),
        operation: format!("at {start}"),
        service: String::new(),
        symbol: String::new(),
        long_lived: false,
        sites: 1,
    };
    Span {
        id: CallId { tgid: 1, goid: 1, hook: 0, start: MonoNs(start) }.into(),
        kind: SpanKind::Call(Arc::new(hook)),
        stream: None,
        carried: None,
        end: end.map(MonoNs),
        result: CallResult::Unknown,
        depth,
        liveness: None,
        restarted: false,
        parked: None,
        known_to: None,
        parks: Vec::new(),
        children: Vec::new(),
    }
}
