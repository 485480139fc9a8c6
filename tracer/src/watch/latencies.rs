//! [`Latencies`]: durations of one window, by operation and side.

use std::collections::BTreeMap;

use super::history::Quantiles;
use crate::{
    correlate::{Finished, Latency},
    input::Layer,
    span::Span,
};

/// Different operations that are kept apart; CRI has far fewer.
const OPERATIONS: usize = 128;

/// Durations of what ended in a window.
#[derive(Debug, Default)]
pub(super) struct Latencies {
    pub(super) relists: Latency,
    client: BTreeMap<String, Latency>,
    server: BTreeMap<String, Latency>,
}

/// Who saw a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The kubelet.
    Client,
    /// The runtime.
    Server,
}

impl Side {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }
}

/// Shows each CRI call of what has ended, once for each side; those that have not ended themselves, and those that are made to
/// last, are left out.
pub(super) fn each_call(finished: &Finished, see: &mut dyn FnMut(Side, &Span)) {
    span(finished.root(), false, see);
}

/// A bare client call inside a counted one is the same call once more.
fn span(here: &Span, counted: bool, see: &mut dyn FnMut(Side, &Span)) {
    let side = match here.layer() {
        Layer::KubeletCall => Some(Side::Client),
        Layer::KubeletClient if !counted => Some(Side::Client),
        Layer::Handler => Some(Side::Server),
        _ => None,
    };
    if let Some(side) = side.filter(|_| !here.is_open() && !here.is_long_lived()) {
        see(side, here);
    }
    let inside = counted || here.layer() == Layer::KubeletCall;
    here.children.iter().for_each(|child| span(child, inside, see));
}

impl Latencies {
    pub(super) fn add(&mut self, finished: &Finished) {
        if let Finished::Relist(_) = finished {
            self.relists.record(length(finished.root()));
        }
        each_call(finished, &mut |side, span| {
            let table = match side {
                Side::Client => &mut self.client,
                Side::Server => &mut self.server,
            };
            if let Some(known) = table.get_mut(span.operation()) {
                known.record(length(span));
            } else if table.len() < OPERATIONS {
                table.entry(span.operation().to_owned()).or_default().record(length(span));
            }
        });
    }

    /// As the history tells them: on the kubelet's side, and on the runtime's.
    pub(super) fn quantiles(&self) -> [BTreeMap<String, Quantiles>; 2] {
        [&self.client, &self.server].map(|table| {
            let all = table.iter().map(|(name, latency)| (name.clone(), Quantiles::of(latency)));
            all.collect()
        })
    }
}

fn length(span: &Span) -> u64 {
    span.end.map_or(0, |end| end.since(span.start()))
}
