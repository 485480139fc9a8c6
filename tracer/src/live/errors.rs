//! What the runtime says of calls that fail: the last words of each method, once it has a name.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use plegtrace_common::rec::BlockRec;

use crate::{
    cri::Method,
    decode::request_names,
    input::{ErrorFact, ErrorsFact},
    wire::{naming::Learnt, trailers::error_words},
};

/// Most names whose words are kept: twice as many as the API has methods, because a name may still be unknown.
const MAX_NAMES: usize = 64;

/// Most handlers that are kept until the error is written with which they ended; …
const MAX_HANDLERS: usize = 64;
/// … which is at once, unless the process waits for a CPU.
const WRITTEN_NS: u64 = 1_000_000_000;

/// The last error of each name since it was asked for.
#[derive(Debug, Default)]
pub(super) struct Errors {
    last: BTreeMap<String, Last>,
    handlers: VecDeque<Handler>,
}

/// A handler of the runtime that has failed.
#[derive(Debug)]
struct Handler {
    pid: u32,
    /// `None` when that was not seen.
    stream: Option<u32>,
    end_ns: u64,
    /// `/package.Service/Method`.
    path: Arc<str>,
}

#[derive(Debug)]
struct Last {
    at_ns: u64,
    words: String,
}

impl Errors {
    /// A handler has failed: what the runtime writes next on its stream is why.
    pub(super) fn failed(&mut self, path: &Arc<str>, pid: u32, stream: Option<u32>, end_ns: u64) {
        if self.handlers.len() >= MAX_HANDLERS {
            self.handlers.pop_front();
        }
        self.handlers.push_back(Handler { pid, stream, end_ns, path: Arc::clone(path) });
    }

    /// Trailers of a request of this name. Where the name is unknown so far, the handler that has just failed has it, if only one can have
    /// written them.
    pub(super) fn take(&mut self, name: String, rec: &BlockRec) {
        let at_ns = rec.header.ts_ns;
        let wrote_it = |handler: &Handler| {
            let written = handler.end_ns..=handler.end_ns.saturating_add(WRITTEN_NS);
            let is_its = handler.stream.is_none_or(|stream| stream == rec.stream);
            handler.pid == rec.header.tgid && is_its && written.contains(&at_ns)
        };
        let found: Vec<usize> =
            (0..).zip(&self.handlers).filter(|(_, it)| wrote_it(it)).map(|(at, _)| at).collect();
        let handler = if let [only] = found[..] { self.handlers.remove(only) } else { None };
        let name = match handler {
            Some(handler) if !name.contains('/') => handler.path.trim_start_matches('/').to_owned(),
            _ => name,
        };
        let bytes = usize::try_from(rec.len).ok().and_then(|len| rec.bytes.get(..len));
        let Some(words) = bytes.and_then(error_words) else { return };
        self.put(name, Last { at_ns, words });
    }

    /// Names have become known.
    pub(super) fn learn(&mut self, learnt: &[Learnt]) {
        for learnt in learnt {
            if let Some(last) = self.last.remove(&learnt.unknown) {
                self.put(learnt.name.clone(), last);
            }
        }
    }

    /// What is new, of methods whose words may go further.
    pub(super) fn fresh(&mut self) -> Option<ErrorsFact> {
        let mut errors = Vec::new();
        self.last.retain(|name, last| {
            let Some((service, method)) = request_names(name) else { return false };
            if service.is_empty() {
                return !method.is_empty();
            }
            if may_be_told(&method) {
                errors.push(ErrorFact {
                    service,
                    method,
                    at_ns: last.at_ns,
                    words: std::mem::take(&mut last.words),
                });
            }
            false
        });
        (!errors.is_empty()).then_some(ErrorsFact { errors })
    }

    /// The youngest of a name; of too many names the one that failed least recently is forgotten.
    fn put(&mut self, name: String, last: Last) {
        if self.last.get(&name).is_some_and(|known| known.at_ns > last.at_ns) {
            return;
        }
        self.last.insert(name, last);
        if self.last.len() > MAX_NAMES {
            let oldest = self.last.iter().min_by_key(|(_, last)| last.at_ns).map(|(name, _)| name.clone());
            oldest.map(|name| self.last.remove(&name));
        }
    }
}

/// The words of a command that failed may quote the command.
fn may_be_told(method: &str) -> bool {
    !matches!(Method::from_name(method), None | Some(Method::ExecSync | Method::Exec))
}

#[cfg(test)]
mod tests {
    use plegtrace_common::{header::RecHeader, wire::request::BLOCK};
    use zerocopy::FromZeros as _;

    use super::*;

    fn failed(at_ns: u64, words: &str) -> BlockRec {
        let mut rec = BlockRec {
            header: RecHeader { ts_ns: at_ns, ..RecHeader::new_zeroed() },
            ..BlockRec::new_zeroed()
        };
        let length = u8::try_from(words.len()).unwrap();
        let field = [&[0x40, 0x0c][..], b"grpc-message", &[length], words.as_bytes()].concat();
        rec.bytes[..field.len()].copy_from_slice(&field);
        rec.len = u32::try_from(field.len()).unwrap();
        rec
    }

    fn said(errors: &mut Errors) -> Vec<(String, u64, String)> {
        let fresh = errors.fresh().into_iter().flat_map(|fact| fact.errors);
        fresh.map(|error| (error.method, error.at_ns, error.words)).collect()
    }

    /// The last of each method, once.
    #[test]
    fn the_last_words() {
        let mut errors = Errors::default();
        errors.take("runtime.v1.RuntimeService/RunPodSandbox".into(), &failed(5, "no network"));
        errors.take("runtime.v1.RuntimeService/RunPodSandbox".into(), &failed(9, "no route"));
        errors.take("runtime.v1.RuntimeService/RunPodSandbox".into(), &failed(7, "too late"));
        errors
            .take("runtime.v1.RuntimeService/StopContainer".into(), &BlockRec { len: 600, ..failed(8, "x") });
        assert_eq!(said(&mut errors), [("RunPodSandbox".into(), 9, "no route".into())]);
        assert_eq!(said(&mut errors), []);
    }

    /// Kept until the method has a name, but not for ever.
    #[test]
    fn a_name_that_comes_later() {
        let mut errors = Errors::default();
        errors.take("unknown#7@1".into(), &failed(5, "no network"));
        errors.take(String::new(), &failed(6, "of nothing"));
        assert_eq!(said(&mut errors), []);
        let name = "runtime.v1.RuntimeService/RunPodSandbox".to_owned();
        errors.learn(&[Learnt { unknown: "unknown#7@1".into(), name }]);
        assert_eq!(said(&mut errors), [("RunPodSandbox".into(), 5, "no network".into())]);
        for n in 0..200 {
            errors.take(format!("unknown#{n}@1"), &failed(n, "again"));
        }
        assert_eq!(errors.last.len(), MAX_NAMES);
        assert!(errors.last.values().all(|last| last.at_ns >= 200 - MAX_NAMES as u64));
    }

    /// A method whose name is older than plegtrace: its handler ended just before.
    #[test]
    fn a_name_from_the_handler() {
        let mut errors = Errors::default();
        let path: Arc<str> = "/runtime.v1.RuntimeService/RunPodSandbox".into();
        let of_stream = |stream, pid, at_ns| {
            let rec = failed(at_ns, "no network");
            BlockRec { stream, header: RecHeader { tgid: pid, ..rec.header }, ..rec }
        };
        errors.failed(&path, 20, Some(7), 1000);
        for (stream, pid, at_ns) in [(9, 20, 1001), (7, 21, 1001), (7, 20, 999), (7, 20, 1001 + WRITTEN_NS)] {
            errors.take("unknown#1@1".into(), &of_stream(stream, pid, at_ns));
        }
        assert_eq!(said(&mut errors), []);
        errors.take("unknown#1@1".into(), &of_stream(7, 20, 1001));
        assert_eq!(said(&mut errors), [("RunPodSandbox".into(), 1001, "no network".into())]);
        // The request's own name is better: of a command nothing goes further, whoever failed at the same moment.
        errors.failed(&path, 22, None, 1000);
        errors.take("runtime.v1.RuntimeService/ExecSync".into(), &of_stream(7, 22, 1001));
        assert_eq!(said(&mut errors), []);
        // Without the number there must be only one.
        errors.failed(&path, 21, None, 1000);
        errors.take(String::new(), &of_stream(7, 21, 1001));
        assert_eq!(said(&mut errors), [("RunPodSandbox".into(), 1001, "no network".into())]);
        (0..2).for_each(|_| errors.failed(&path, 21, None, 1000));
        errors.take(String::new(), &of_stream(7, 21, 1001));
        assert_eq!(said(&mut errors), []);
        (0..100).for_each(|n| errors.failed(&path, 20, Some(n), 2000));
        assert_eq!(errors.handlers.len(), MAX_HANDLERS);
    }

    /// What a command is goes nowhere, nor what is no call of the API.
    #[test]
    fn what_is_not_told() {
        let mut errors = Errors::default();
        for method in ["ExecSync", "Exec", "Other"] {
            errors.take(format!("runtime.v1.RuntimeService/{method}"), &failed(5, "exec: \"secret\""));
        }
        assert_eq!(said(&mut errors), []);
        assert!(BLOCK > 64 && errors.last.is_empty());
    }
}
