//! How calls end, method by method: which fail every time, since when. A streak ends with the first call that succeeds, so it is told in a
//! few figures however long an observation lasts.

use std::collections::{BTreeMap, VecDeque};

use crate::{
    cri::{Method, Subject},
    decode::{Call, CallResult, MonoNs},
    input::{ErrorsFact, HookFact, Layer},
    wire::trailers::MAX_WORDS,
};

/// Errors of each method whose moments are kept: of more failures it is not known why they failed.
const MAX_SAID: usize = 64;
/// How runtimes say that a container or sandbox is not there any more, in small letters: containerd (StopContainer and StopPodSandbox of 1.6
/// and older; since 1.7 it is no error to end what is gone), CRI-O (`GetContainerFromShortID`), Docker.
const GONE: [&str; 6] = [
    "try to find container",
    "try to find sandbox",
    "could not find container",
    "could not find pod",
    "id does not exist",
    "no such container",
];

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
    /// Of so many the runtime said that the container or sandbox is not there any more. Other clients of the runtime may have asked.
    pub said_gone: u64,
    /// Of so many it said something else.
    pub said_other: u64,
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
    /// When errors were written, and whether they are about something that is gone.
    said: BTreeMap<Method, VecDeque<(MonoNs, bool)>>,
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
            said_gone: 0,
            said_other: 0,
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

    /// What the runtime says of calls that failed; the youngest of each method stays, but for those about what is gone.
    pub(super) fn said(&mut self, fact: ErrorsFact) {
        for error in fact.errors {
            let Some(method) = Method::from_name(&error.method) else { continue };
            let at = MonoNs(error.at_ns);
            let gone = is_gone(method, &error.words);
            let said = self.said.entry(method).or_default();
            said.push_back((at, gone));
            if said.len() > MAX_SAID {
                said.pop_front();
            }
            if !gone && self.errors.get(&method).is_none_or(|known| known.at <= at) {
                let words = error.words.chars().take(MAX_WORDS).collect();
                self.errors.insert(method, CallError { at, words });
            }
        }
    }

    /// The last error of each method that has had one, but for those about what is gone.
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
        self.streaks.values().filter(counts).map(|streak| self.with_words(*streak)).collect()
    }

    fn with_words(&self, streak: Streak) -> Streak {
        let said = self.said.get(&streak.method).into_iter().flatten().filter(|(at, _)| *at >= streak.since);
        let (gone, other): (Vec<bool>, Vec<bool>) = said.map(|(_, gone)| *gone).partition(|gone| *gone);
        Streak { said_gone: gone.len() as u64, said_other: other.len() as u64, ..streak }
    }
}

/// Do these words say that the container or sandbox that a call is about is not there any more?
fn is_gone(method: Method, words: &str) -> bool {
    let is_of_one = matches!(method.facts().subject, Subject::Container | Subject::Pod);
    let words = words.to_lowercase();
    is_of_one && GONE.iter().any(|gone| words.contains(gone))
}
