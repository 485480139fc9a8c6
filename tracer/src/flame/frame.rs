//! [`Frame`]: one line of a folded stack, and what kind of time it stands for.

use std::sync::Arc;

use crate::{
    input::{Component, Layer},
    span::Span,
    words::short_function,
};

/// What a frame stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A relist or a CRI request as a whole.
    Root,
    /// A call in the kubelet.
    Kubelet,
    /// A call in the container runtime.
    Runtime,
    /// A program that ran for the request; what is not in its children it spent itself, running or waiting.
    Program,
    /// A phase of runc that lasts.
    Phase,
    /// A program that has not ended was in the kernel when it was last looked at; where follows.
    Kernel,
    /// A goroutine ran, was ready to run, or was in a system call.
    Runs,
    /// A goroutine waited, each time for long enough to be told apart; its stack follows.
    Waits,
    /// A goroutine waited, each time too shortly to be told apart.
    WaitsShortly,
    /// A function in the stack of a goroutine that waited, or of the kernel.
    Function,
    /// Between a client and the handler that answered it.
    Transport,
    /// Not measured.
    Unexplained,
    /// What had no room of its own.
    Other,
}

/// One line of a folded stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Frame {
    /// What it stands for.
    pub kind: Kind,
    /// Its name. Hostile text, except for kinds with a name of their own ([`Kind::own_name`]).
    pub text: Arc<str>,
}

impl Kind {
    /// The name of a frame that is named after its kind.
    #[must_use]
    pub fn own_name(self) -> Option<&'static str> {
        Some(match self {
            Self::Kernel => "[in the kernel, as last seen]",
            Self::Runs => "[running, ready or in a syscall]",
            Self::Waits => "[waiting]",
            Self::WaitsShortly => "[waiting, shortly]",
            Self::Transport => "[between client and handler]",
            Self::Unexplained => "[unexplained]",
            Self::Other => "(other)",
            Self::Root | Self::Kubelet | Self::Runtime | Self::Program | Self::Phase | Self::Function => {
                return None;
            }
        })
    }
}

impl Frame {
    pub(super) fn of_kind(kind: Kind) -> Self {
        Self { kind, text: kind.own_name().unwrap_or_default().into() }
    }

    pub(super) fn named(kind: Kind, text: impl Into<Arc<str>>) -> Self {
        Self { kind, text: text.into() }
    }

    /// Of what was asked for. What has not ended stands apart: it is in no metric yet.
    pub(super) fn of_root(root: &Span) -> Self {
        let name = root.root_name();
        Self::named(Kind::Root, if root.is_open() { format!("{name}, open") } else { name.to_owned() })
    }

    /// Of a call or program.
    pub(super) fn of_span(span: &Span) -> Self {
        let operation = span.operation();
        match span.layer() {
            Layer::Process => Self::named(Kind::Program, operation),
            Layer::ListPhase => Self::of_call(span.component(), &format!("{operation}, list phase")),
            Layer::StatusPhase => Self::of_call(span.component(), &format!("{operation}, status phase")),
            _ => Self::of_call(span.component(), operation),
        }
    }

    /// Of a call in a component.
    pub(super) fn of_call(component: Component, operation: &str) -> Self {
        let kind = if component == Component::Kubelet { Kind::Kubelet } else { Kind::Runtime };
        Self::named(kind, format!("{} {operation}", component.name()))
    }

    /// Of what was in flight before the probes, of which nobody saw the beginning.
    pub(super) fn of_early(operation: &str) -> Self {
        Self::named(Kind::Root, format!("{operation}, open since before the probes"))
    }

    pub(super) fn of_function(name: &str) -> Self {
        Self::named(Kind::Function, short_function(name))
    }
}
