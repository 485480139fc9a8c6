//! How calls end, method by method: which fail every time, since when. A streak ends with the first call that succeeds, so it is told in a
//! few figures however long an observation lasts.

use std::collections::BTreeMap;

use crate::{
    cri::Method,
    decode::{Call, CallResult, MonoNs},
    input::{ErrorsFact, HookFact, Layer},
    wire::trailers::MAX_WORDS,
};

/// Calls of one method that have failed, one after the other, without one that succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Streak {
    /// What was asked for.
    pub method: Method,
    /// Where it was seen: a call of the kubelet, or a handler of the runtime where the kubelet's calls are not probed.
    pub layer: Layer,
    /// The process it was last seen in.
    pub pid: u32,
    /// How many have failed since the last success.
    pub failed: u64,
    /// One has succeeded before, as far as was seen.
    pub succeeded: bool,
    /// Start of the first of them.
    pub since: MonoNs,
    /// End of the last.
    pub last: MonoNs,
    /// What the longest of them took, nanoseconds.
    pub longest_ns: u64,
}

/// What the runtime said of a call that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallError {
    /// When it was written.
    pub at: MonoNs,
    /// Its words, at most [`MAX_WORDS`] characters; hostile text.
    pub words: String,
}

/// What is known of each method; bounded by their number.
#[derive(Debug, Default)]
pub(super) struct Outcomes {
    streaks: BTreeMap<(Method, Layer), Streak>,
    errors: BTreeMap<Method, CallError>,
}

impl Outcomes {
    /// A call has ended.
    pub(super) fn add(&mut self, call: &Call, hook: &HookFact) {
        if !matches!(hook.layer, Layer::KubeletCall | Layer::Handler) || hook.long_lived {
            return;
        }
        let Some(method) = Method::from_name(&hook.operation) else { return };
        let (layer, pid) = (hook.layer, call.tgid);
        let new = Streak {
            method,
            layer,
            pid,
            failed: 0,
            succeeded: false,
            since: call.start,
            last: call.end,
            longest_ns: 0,
        };
        let streak = self.streaks.entry((method, layer)).or_insert(new);
        match call.result() {
            CallResult::Ok => *streak = Streak { succeeded: true, ..new },
            CallResult::Failed => {
                let since = if streak.failed == 0 { call.start } else { streak.since.min(call.start) };
                let (failed, last) = (streak.failed + 1, streak.last.max(call.end));
                let longest_ns = streak.longest_ns.max(call.duration_ns());
                *streak = Streak { failed, since, last, pid, longest_ns, ..*streak };
            }
            CallResult::Unknown => {}
        }
    }

    /// What the runtime says of calls that failed; the youngest of each method stays.
    pub(super) fn said(&mut self, fact: ErrorsFact) {
        for error in fact.errors {
            let Some(method) = Method::from_name(&error.method) else { continue };
            let at = MonoNs(error.at_ns);
            if self.errors.get(&method).is_none_or(|known| known.at <= at) {
                let words = error.words.chars().take(MAX_WORDS).collect();
                self.errors.insert(method, CallError { at, words });
            }
        }
    }

    /// The last error of each method that has had one.
    pub(super) fn errors(&self) -> BTreeMap<Method, CallError> {
        self.errors.clone()
    }

    /// Methods of which the last call has failed, in the order of the API. What the kubelet saw of a method is all that counts of it: a
    /// handler also serves others.
    pub(super) fn view(&self) -> Vec<Streak> {
        let by_kubelet = |method| self.streaks.contains_key(&(method, Layer::KubeletCall));
        let counts = |streak: &&Streak| {
            streak.failed > 0 && (streak.layer == Layer::KubeletCall || !by_kubelet(streak.method))
        };
        self.streaks.values().filter(counts).copied().collect()
    }
}
