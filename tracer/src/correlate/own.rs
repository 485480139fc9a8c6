//! [`OwnCalls`]: the calls that the census made. They are handlers like all others, but no sign of a problem.

use std::collections::VecDeque;

use crate::{input::OwnCall, span::Span};

/// Calls that are kept; a round makes two.
const MAX_CALLS: usize = 256;
/// A call without an answer was given up after this time at most.
const GIVEN_UP_NS: u64 = 2_000_000_000;
/// A handler can end a little after its answer is there.
const AFTER_NS: u64 = 5_000_000;

/// The last calls.
#[derive(Clone, Debug, Default)]
pub(super) struct OwnCalls {
    calls: VecDeque<OwnCall>,
}

impl OwnCalls {
    /// Those of one more round.
    pub(super) fn add(&mut self, calls: &[OwnCall]) {
        self.calls.extend(calls.iter().cloned());
        let too_many = self.calls.len().saturating_sub(MAX_CALLS);
        self.calls.drain(..too_many);
    }

    /// Is this handler the answer to one of them? Each answers for one handler.
    pub(super) fn take(&mut self, handler: &Span) -> bool {
        let place = self.calls.iter().position(|call| made(call, handler));
        place.and_then(|place| self.calls.remove(place)).is_some()
    }

    /// Could one of them have caused this handler?
    pub(super) fn made(&self, handler: &Span) -> bool {
        self.calls.iter().any(|call| made(call, handler))
    }
}

fn made(call: &OwnCall, handler: &Span) -> bool {
    let given_up = call.began_ns.saturating_add(GIVEN_UP_NS);
    let ended = call.ended_ns.map(|ended| ended.saturating_add(AFTER_NS));
    let inside = (call.began_ns..=ended.unwrap_or(given_up)).contains(&handler.start().0);
    // Of a call that was answered the handler has ended; one that was given up may go on forever.
    let ends = ended.is_none_or(|ended| handler.end.is_some_and(|end| end.0 <= ended));
    inside && ends && handler.operation() == call.operation
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::span::SpanKind;

    fn handler(operation: &str, start: u64, end: Option<u64>) -> Span {
        let mut span = crate::span::sample::span(start, end, 10);
        let SpanKind::Call(hook) = &span.kind else { unreachable!() };
        let mut hook = (**hook).clone();
        hook.operation = operation.into();
        span.kind = SpanKind::Call(hook.into());
        span
    }

    fn call(began_ns: u64, ended_ns: Option<u64>) -> OwnCall {
        OwnCall { operation: "ListContainers".into(), began_ns, ended_ns, error: None }
    }

    /// Operation and time must fit; one call has one handler, and one that was given up may have an open one.
    #[test]
    fn ours_and_others() {
        const MS: u64 = 1_000_000;
        let mut own = OwnCalls::default();
        own.add(&[call(100 * MS, Some(110 * MS)), call(9000 * MS, None)]);
        let list =
            |start: u64, end: Option<u64>| handler("ListContainers", start * MS, end.map(|end| end * MS));
        let others = [
            list(99, Some(109)),
            list(101, Some(200)),
            list(101, None),
            list(12_000, None),
            handler("ListPodSandbox", 101 * MS, Some(109 * MS)),
        ];
        assert!(!others.iter().any(|other| own.made(other)));
        assert!(own.made(&list(9001, None)) && own.made(&list(9001, Some(60_000))));
        assert!(own.take(&list(101, Some(109))));
        assert!(!own.take(&list(102, Some(108))), "another one was somebody else's");
    }

    /// Old ones are forgotten.
    #[test]
    fn bounded() {
        let mut own = OwnCalls::default();
        (0..300).for_each(|_| own.add(&[call(1, None), call(2, None)]));
        assert_eq!(own.calls.len(), MAX_CALLS);
    }
}
