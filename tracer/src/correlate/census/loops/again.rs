//! Requests to the API server, one after the other. A kubelet gives a request up after 10 s, makes four more, and pauses for 10 s before the
//! next five (`nodeStatusUpdateRetry`, `nodeStatusUpdateFrequency`): a look that meets the pause does not show that an answer came.

use super::limits::{API_AGAIN_NS, API_PAUSE_NS};
use crate::decode::MonoNs;

/// Looks that make a row: fewer may have met requests of an API server that is slow by chance.
const LOOKS: u32 = 4;
/// Looks at a request for each pause.
const LOOKS_A_PAUSE: u32 = 3;

/// The looks that found a loop in requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Again {
    /// The end of the first.
    since: MonoNs,
    /// Begin of the last.
    until: MonoNs,
    /// How many there were.
    pub looks: u32,
    /// How often the loop was found between two requests.
    pub pauses: u32,
    /// Begin of the look that found it so first, when the last look did.
    paused: Option<MonoNs>,
}

impl Again {
    /// After the first look, which began and ended then.
    pub(super) fn first((began, ended): (MonoNs, MonoNs)) -> Self {
        Self { since: ended, until: began, looks: 1, pauses: 0, paused: None }
    }

    /// After a look that found it in a request again, and began then.
    pub(super) fn asks(self, began: MonoNs) -> Self {
        Self { until: began, looks: self.looks.saturating_add(1), paused: None, ..self }
    }

    /// After a look that did not, and began then; `None`: it does something else.
    pub(super) fn pauses(self, began: MonoNs) -> Option<Self> {
        let paused = self.paused.unwrap_or(began);
        let pauses = self.pauses.saturating_add(u32::from(self.paused.is_none()));
        (began.since(paused) <= API_PAUSE_NS).then_some(Self { pauses, paused: Some(paused), ..self })
    }

    /// Did the last look find it between two requests?
    pub(super) fn is_paused(&self) -> bool {
        self.paused.is_some()
    }

    /// From the first look to the last, when that is too long, and there was a request at nearly all of them.
    #[must_use]
    pub fn late_ns(&self) -> Option<u64> {
        let ns = self.until.since(self.since);
        let lasts = ns >= API_AGAIN_NS && self.looks >= LOOKS;
        (lasts && self.looks >= self.pauses.saturating_mul(LOOKS_A_PAUSE)).then_some(ns)
    }
}
