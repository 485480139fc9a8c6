//! [`Span`]: one interval with its children.

use std::sync::Arc;

use super::{Carried, SpanId, SpanKind};
use crate::{
    cri::Method,
    decode::{CallResult, MonoNs, Parked},
    input::{Component, Layer, Liveness},
};

/// One interval of a request: a Go call, a message, a program or a system call. While it is open it has no end and its result is not known.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Which one it is.
    pub id: SpanId,
    /// What it is an interval of; names are escaped where they are rendered.
    pub kind: SpanKind,
    /// Stream of HTTP/2 as which it was sent, or came in; `None` when not known.
    pub stream: Option<u32>,
    /// Of a handler, the request that brought it here; `None` when the wire is not followed, or it is not certain which.
    pub carried: Option<Carried>,
    /// End; `None` while it is open.
    pub end: Option<MonoNs>,
    /// How it came out.
    pub result: CallResult,
    /// Bytes of goroutine stack in use at the start; 0 when not known.
    pub depth: u32,
    /// Is its goroutine still there? Asked of open calls only.
    pub liveness: Option<Liveness>,
    /// Its start fired twice (stack growth); it is one call.
    pub restarted: bool,
    /// How long its goroutine was parked inside it, its children included; `None` when that was not measured. While
    /// it is open: until [`Self::known_to`], without the park that lasts.
    pub parked: Option<Parked>,
    /// While it is open: when its goroutine was looked at last.
    pub known_to: Option<MonoNs>,
    /// Long parks of its goroutine that lie in it and in no child on the same goroutine, by start.
    pub parks: Vec<GoroutinePark>,
    /// What happened inside it, by start.
    pub children: Vec<Span>,
}

/// An interval in which a goroutine was parked.
#[derive(Clone, Debug, PartialEq)]
pub struct GoroutinePark {
    /// When it parked.
    pub start: MonoNs,
    /// When it ran again; while it lasts, when it was looked at last.
    pub end: MonoNs,
    /// It lasts.
    pub open: bool,
    /// The runtime's number of the wait reason.
    pub reason: u32,
    /// Where: names of functions, innermost first, as addresses where they are not known. Hostile text.
    pub stack: Arc<[String]>,
}

impl Span {
    /// Component it ran in.
    #[must_use]
    pub fn component(&self) -> Component {
        match &self.kind {
            SpanKind::Call(hook) => hook.component,
            SpanKind::Message(label) | SpanKind::Process(label) | SpanKind::Syscall(label) => label.component,
        }
    }

    /// Place in the chain.
    #[must_use]
    pub fn layer(&self) -> Layer {
        match &self.kind {
            SpanKind::Call(hook) => hook.layer,
            SpanKind::Message(_) => Layer::KubeletClient,
            SpanKind::Process(_) | SpanKind::Syscall(_) => Layer::Process,
        }
    }

    /// What it is called as the root of a tree.
    #[must_use]
    pub fn root_name(&self) -> &str {
        match self.layer() {
            Layer::Relist => "relist",
            Layer::PodRelist => "relist of one pod",
            _ => self.operation(),
        }
    }

    /// Does a relist run in it, of all pods or of one?
    #[must_use]
    pub fn is_any_relist(&self) -> bool {
        matches!(self.layer(), Layer::Relist | Layer::PodRelist)
    }

    /// CRI method, function, or program.
    #[must_use]
    pub fn operation(&self) -> &str {
        match &self.kind {
            SpanKind::Call(hook) => &hook.operation,
            SpanKind::Message(label) | SpanKind::Process(label) | SpanKind::Syscall(label) => {
                &label.operation
            }
        }
    }

    /// Is it open by design, and never stuck by its age alone?
    #[must_use]
    pub fn is_long_lived(&self) -> bool {
        matches!(&self.kind, SpanKind::Call(hook) if hook.long_lived)
    }

    /// CRI method, when it is one.
    #[must_use]
    pub fn method(&self) -> Option<Method> {
        Method::from_name(self.operation())
    }

    /// Start.
    #[must_use]
    pub fn start(&self) -> MonoNs {
        self.id.start
    }

    /// It has not ended.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.end.is_none()
    }

    /// Its length; up to `now` while it is open.
    #[must_use]
    pub fn duration_ns(&self, now: MonoNs) -> u64 {
        self.end.unwrap_or(now).since(self.id.start)
    }

    /// Does the interval of `other` lie in this one? An open interval fits into an open one only.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        self.id.start <= other.id.start
            && match (self.end, other.end) {
                (None, _) => true,
                (Some(_), None) => false,
                (Some(mine), Some(other)) => other <= mine,
            }
    }

    /// Do both run on the same goroutine?
    #[must_use]
    pub fn same_goroutine(&self, other: &Self) -> bool {
        (self.id.tgid, self.id.goid) == (other.id.tgid, other.id.goid)
    }

    /// This span and everything below it, parents before children.
    pub fn walk(&self) -> impl Iterator<Item = &Self> {
        let mut rest = vec![self];
        std::iter::from_fn(move || {
            let span = rest.pop()?;
            rest.extend(span.children.iter().rev());
            Some(span)
        })
    }
}
