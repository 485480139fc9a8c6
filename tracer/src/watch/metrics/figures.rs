//! [`Figures`]: sums since `watch` began, and the last state.

use std::collections::BTreeMap;

use plegtrace_common::reason::{Reason, Weight};

use super::histogram::Histogram;
use crate::{
    correlate::{Finished, InFlightCalls, LastList, Snapshot},
    decode::{CallResult, MonoNs},
    diagnose::{Diagnosis, Verdict},
    input::Layer,
    span::Span,
    watch::latencies::{Side, each_call},
};

/// Different series of calls; CRI has far fewer.
const SERIES: usize = 512;

/// A series of finished calls.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CallKey {
    pub(super) operation: String,
    pub(super) side: &'static str,
    pub(super) status: &'static str,
}

/// Calls in flight of one operation and side.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Flying {
    pub(super) operation: String,
    pub(super) side: &'static str,
    pub(super) count: u64,
    pub(super) oldest: MonoNs,
}

/// Everything that a page shows.
#[derive(Debug, Default)]
pub(super) struct Figures {
    pub(super) relists: Histogram,
    /// Of one pod.
    pub(super) pod_relists: Histogram,
    pub(super) calls: BTreeMap<CallKey, Histogram>,
    /// Finished calls for which there was no series left.
    pub(super) untold: u64,
    pub(super) flying: Vec<Flying>,
    /// Since when a relist is open, of all pods or of one.
    pub(super) relist_since: Option<MonoNs>,
    pub(super) verdict: Option<Verdict>,
    /// Id of the cause and its component, when the node is held up or slow.
    pub(super) cause: Option<(String, String)>,
    /// Start of the last relist that got its list.
    pub(super) last_list: Option<MonoNs>,
    /// Since when none was seen to get one, as long as that is all that is known.
    pub(super) no_list_since: Option<MonoNs>,
    /// The age of the last list from which on the kubelet reports "PLEG is not healthy", nanoseconds.
    pub(super) threshold_ns: Option<u64>,
    /// When the open calls were read last.
    pub(super) looked: Option<MonoNs>,
    pub(super) cpu_s: f64,
    pub(super) rss_bytes: u64,
    pub(super) probes: u64,
    pub(super) events: u64,
    /// By reason.
    pub(super) lost: BTreeMap<String, u64>,
}

impl Figures {
    pub(super) fn ended(&mut self, finished: &Finished) {
        let root = finished.root();
        let table = match root.layer() {
            Layer::Relist => Some(&mut self.relists),
            Layer::PodRelist => Some(&mut self.pod_relists),
            _ => None,
        };
        if let Some(table) = table {
            table.record(root.end.map_or(0, |end| end.since(root.start())));
        }
        each_call(finished, &mut |side, span| self.call(side, span));
    }

    fn call(&mut self, side: Side, span: &Span) {
        let Some(end) = span.end else { return };
        let status = match span.result {
            CallResult::Ok => "ok",
            CallResult::Failed => "error",
            CallResult::Unknown => "unknown",
        };
        let key = CallKey { operation: operation_type(span.operation()), side: side.name(), status };
        if self.calls.len() >= SERIES && !self.calls.contains_key(&key) {
            self.untold += 1;
            return;
        }
        self.calls.entry(key).or_default().record(end.since(span.start()));
    }

    /// Each second: a picture of a calm node is drawn once a minute at most, and what is asked here is how old things are.
    pub(super) fn in_flight(&mut self, calls: Vec<InFlightCalls>, last_list: LastList, now: MonoNs) {
        self.looked = Some(now);
        match last_list {
            LastList::At(at) => self.last_list = Some(at),
            // A relist that failed tells nothing of the last that got its list.
            LastList::NotSince(since) => self.no_list_since = Some(since),
            LastList::Untraced => {}
        }
        let relists = calls.iter().filter(|call| matches!(call.layer, Layer::Relist | Layer::PodRelist));
        self.relist_since = relists.map(|call| call.oldest).min();
        let side = |layer: Layer| match layer {
            Layer::KubeletCall => Some(Side::Client.name()),
            Layer::Handler => Some(Side::Server.name()),
            _ => None,
        };
        let flying = calls.into_iter().filter_map(|call| {
            let operation = operation_type(&call.operation);
            Some(Flying { operation, side: side(call.layer)?, count: call.count, oldest: call.oldest })
        });
        self.flying = flying.take(SERIES).collect();
    }

    #[expect(clippy::cast_precision_loss, reason = "CPU time of years is exact to the microsecond")]
    pub(super) fn judged(&mut self, snapshot: &Snapshot, diagnosis: &Diagnosis) {
        self.verdict = Some(diagnosis.verdict);
        let is_problem = diagnosis.verdict.is_problem();
        let finding = diagnosis.accused().first().filter(|_| is_problem);
        self.cause = finding.map(|finding| {
            let component = finding.culprit.as_ref().map_or("unknown", |culprit| culprit.component.name());
            (finding.rule.id.to_owned(), component.to_owned())
        });
        let cost = snapshot.cost.unwrap_or_default();
        (self.cpu_s, self.rss_bytes) = (cost.cpu_ns as f64 / 1e9, cost.rss_bytes);
        self.probes = snapshot.hooks.iter().map(|hook| u64::from(hook.hook.sites)).sum();
        self.events = snapshot.tally.events;
        self.threshold_ns = Some(snapshot.pace().threshold_ns);
        self.lost = losses(snapshot);
    }
}

/// Records lost so far by reason. Those that the kernel side can have are always there: the first increase of a counter
/// that was not there before is seen by nobody.
fn losses(snapshot: &Snapshot) -> BTreeMap<String, u64> {
    let kernel = Reason::ALL.into_iter().filter(|reason| reason.weight() == Weight::Loss);
    let mut lost: BTreeMap<String, u64> = kernel.map(|reason| (reason.name().to_owned(), 0)).collect();
    for loss in snapshot.real_losses() {
        *lost.entry(loss.reason.clone()).or_default() += loss.count;
    }
    lost
}

/// A CRI method as the kubelet's metrics call it: `ListPodSandbox` is `list_podsandbox`.
pub(super) fn operation_type(method: &str) -> String {
    let mut text = String::with_capacity(method.len() + 4);
    for (place, letter) in method.chars().enumerate() {
        if letter.is_ascii_uppercase() && place > 0 {
            text.push('_');
        }
        text.push(letter.to_ascii_lowercase());
    }
    text.replace("pod_sandbox", "podsandbox")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As in `pkg/kubelet/kuberuntime/instrumented_services.go`.
    #[test]
    fn operations_are_called_as_by_the_kubelet() {
        for (method, name) in [
            ("ListPodSandbox", "list_podsandbox"),
            ("PodSandboxStatus", "podsandbox_status"),
            ("ExecSync", "exec_sync"),
            ("Status", "status"),
            ("UpdateContainerResources", "update_container_resources"),
        ] {
            assert_eq!(operation_type(method), name);
        }
    }
}
