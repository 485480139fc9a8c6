//! [`SpanId`]: what tells one interval from every other; [`SpanKind`]: what it is an interval of.

use std::sync::Arc;

use crate::{
    decode::{CallId, MonoNs},
    input::{Component, HookFact},
};

/// What tells one interval from every other: stable over snapshots, for as long as the interval is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpanId {
    /// Process.
    pub tgid: u32,
    /// Goroutine; 0 of what runs on none.
    pub goid: u64,
    /// Which of the intervals that may begin there at the same moment.
    pub source: SpanSource,
    /// Start.
    pub start: MonoNs,
}

/// What began an interval, as a part of its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SpanSource {
    /// A Go call, by the index of its hook.
    Call(u32),
    /// A message on a connection.
    Message(JoinKey),
    /// A program.
    Process,
    /// A system call of a thread.
    Syscall(u32),
}

/// Where on the wire a request travels: both ends of a connection see the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JoinKey {
    /// Inode of the socket on the side of the client.
    pub socket: u64,
    /// Stream on that connection.
    pub stream: u32,
}

/// The request that carried a call to its handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carried {
    /// Where it travelled.
    pub key: JoinKey,
    /// When the client wrote it.
    pub sent: MonoNs,
    /// When the server wrote the end of the answer.
    pub answered: MonoNs,
}

/// What an interval is an interval of.
#[derive(Clone, Debug, PartialEq)]
pub enum SpanKind {
    /// A call of a Go function.
    Call(Arc<HookFact>),
    /// A request on the wire, from its first byte to the last one of its answer.
    Message(Label),
    /// A program, from its `execve` to the next one or to its end.
    Process(Label),
    /// A system call of a thread.
    Syscall(Label),
}

/// Where an interval without a hook belongs, and what it is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// Component it runs in.
    pub component: Component,
    /// What it does. Hostile text.
    pub operation: Arc<str>,
}

impl From<CallId> for SpanId {
    fn from(id: CallId) -> Self {
        Self { tgid: id.tgid, goid: id.goid, source: SpanSource::Call(id.hook), start: id.start }
    }
}

impl SpanId {
    /// Of a program.
    #[must_use]
    pub fn of_process(pid: u32, start: MonoNs) -> Self {
        Self { tgid: pid, goid: 0, source: SpanSource::Process, start }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls sort as they did by themselves; a program has no hook and is never taken for a call.
    #[test]
    fn ids_keep_the_order_of_calls() {
        let call = |goid, hook, start| CallId { tgid: 1, goid, hook, start: MonoNs(start) };
        let mut calls = [call(2, 1, 5), call(1, 9, 7), call(1, 2, 9), call(1, 2, 3)];
        let mut ids = calls.map(SpanId::from);
        calls.sort();
        ids.sort();
        assert_eq!(ids, calls.map(SpanId::from));
        assert_ne!(SpanId::of_process(1, MonoNs(3)), call(0, u32::MAX, 3).into());
    }
}
