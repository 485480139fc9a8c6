//! [`Place`]: where a part of a relist or request went, as far as its interval was measured.

use std::sync::Arc;

use crate::{
    correlate::go,
    input::{Component, Layer},
    span::{GoroutinePark, Leaf, LeafKind, Leg, Span},
};

/// Where time went.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// In which component; `None` between two of them, or when that is not known.
    pub component: Option<Component>,
    /// What happened there.
    pub doing: Doing,
    /// The program that ran, as the node calls it. Hostile text.
    pub program: Option<Arc<str>>,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Doing {
    /// The goroutine was not parked: on a processor, ready to run, or in a system call.
    Runs,
    /// It waited for a lock.
    Lock,
    /// It waited for something else.
    Waits,
    /// It was in a call of this component; what it did there was not measured.
    Inside,
    /// Between the kubelet's call and the handler that answered it.
    Transport(Leg),
    /// In a call of the kubelet whose handler was not seen, or is not certain.
    Unanswered,
    /// A program ran.
    Program,
    /// Not measured.
    Unexplained,
}

impl Doing {
    /// Stable name for JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Runs => "runs",
            Self::Lock => "lock",
            Self::Waits => "waits",
            Self::Inside => "inside",
            Self::Transport(Leg::Whole) => "transport",
            Self::Transport(Leg::Send) => "transport_send",
            Self::Transport(Leg::Accept) => "transport_accept",
            Self::Transport(Leg::Answer) => "transport_answer",
            Self::Transport(Leg::Receive) => "transport_receive",
            Self::Unanswered => "unanswered",
            Self::Program => "program",
            Self::Unexplained => "unexplained",
        }
    }
}

impl Place {
    pub(super) const UNEXPLAINED: Self = Self { component: None, doing: Doing::Unexplained, program: None };

    fn between(doing: Doing) -> Self {
        Self { component: None, doing, program: None }
    }

    /// The place of a leaf of this span.
    pub(super) fn of(span: &Span, leaf: &Leaf<'_>) -> Self {
        let component = span.component();
        let here = |doing| Self { component: Some(component), doing, program: None };
        if span.layer() == Layer::Process {
            return match leaf.kind {
                LeafKind::Process => Self { program: Some(span.operation().into()), ..here(Doing::Program) },
                _ => Self::UNEXPLAINED,
            };
        }
        let call = Call::of(span);
        match (leaf.kind, call) {
            (LeafKind::NotParked, _) => here(Doing::Runs),
            (LeafKind::Parked(park), _) if waits_for_lock(park) => here(Doing::Lock),
            (LeafKind::Parked(park), _) if waits_for_shim(park) => {
                Self { component: Some(Component::Shim), ..here(Doing::Inside) }
            }
            (LeafKind::Transport(_, leg), _) => Self::between(Doing::Transport(leg)),
            (LeafKind::ShortParks | LeafKind::Unexplained, Call::Answered) => {
                Self::between(Doing::Transport(Leg::Whole))
            }
            (LeafKind::Parked(_), Call::Answered)
            | (LeafKind::Parked(_) | LeafKind::ShortParks, Call::None) => here(Doing::Waits),
            (_, Call::Unanswered) => Self::between(Doing::Unanswered),
            (LeafKind::Unexplained, Call::None) if span.parked.is_none() => here(Doing::Inside),
            (LeafKind::Unexplained | LeafKind::Process, _) => Self::UNEXPLAINED,
        }
    }
}

/// Does a span wait for the runtime?
#[derive(Clone, Copy, PartialEq, Eq)]
enum Call {
    /// It is no call to the runtime, or another one inside it is.
    None,
    Answered,
    Unanswered,
}

impl Call {
    fn of(span: &Span) -> Self {
        let is_call = |span: &Span| matches!(span.layer(), Layer::KubeletCall | Layer::KubeletClient);
        if !is_call(span) || span.children.iter().any(is_call) {
            Self::None
        } else if span.children.iter().any(|child| child.layer() == Layer::Handler) {
            Self::Answered
        } else {
            Self::Unanswered
        }
    }
}

fn waits_for_lock(park: &GoroutinePark) -> bool {
    park.stack.iter().any(|name| go::is_lock(name))
}

/// The runtime calls its shims over ttrpc, and newer ones over gRPC too, which cannot be told from other uses.
fn waits_for_shim(park: &GoroutinePark) -> bool {
    park.stack.iter().any(|name| name.contains("containerd/ttrpc.(*Client)"))
}
