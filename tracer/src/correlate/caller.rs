//! [`Caller`]: who waits for an open handler.

use crate::decode::MonoNs;

/// Who waits for an open handler?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// It is no handler.
    NotAsked,
    /// A call of the kubelet that could be its caller is open.
    Waiting,
    /// The kubelet gave up at this moment: the handler is abandoned.
    Gone(MonoNs),
    /// No call of the kubelet fits: somebody else called.
    Foreign,
    /// The census of plegtrace itself.
    Own,
    /// The client side of this operation is not seen.
    Unknown,
}
