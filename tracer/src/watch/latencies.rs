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

impl Latencies {
    pub(super) fn add(&mut self, finished: &Finished) {
        let root = finished.root();
        if let Finished::Relist(_) = finished {
            self.relists.record(length(root));
        }
        self.span(root, false);
    }

    /// A bare client call inside a counted one is the same call once more.
    fn span(&mut self, span: &Span, counted: bool) {
        let table = match span.layer() {
            Layer::KubeletCall => Some(&mut self.client),
            Layer::KubeletClient if !counted => Some(&mut self.client),
            Layer::Handler => Some(&mut self.server),
            _ => None,
        };
        if let Some(table) = table.filter(|_| !span.is_open() && !span.is_long_lived()) {
            if let Some(known) = table.get_mut(span.operation()) {
                known.record(length(span));
            } else if table.len() < OPERATIONS {
                table.entry(span.operation().to_owned()).or_default().record(length(span));
            }
        }
        let inside = counted || span.layer() == Layer::KubeletCall;
        for child in &span.children {
            self.span(child, inside);
        }
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
