//! Intervals of one request → a tree of [`Span`]s, some of them still open.
//!
//! Pure data structure: it knows calls and components, not how they were collected (that is `correlate`) nor how they
//! are drawn (that is `render`). A tree keeps its invariants whatever it is built from: one root, a child lies inside
//! its parent, siblings of one goroutine do not overlap and are in the order of their starts; what contradicts this is
//! left out and counted.

mod critical_path;
mod id;
mod leaf;
mod node;
#[cfg(test)]
pub(crate) mod sample;
mod self_time;
mod tree;

pub use critical_path::critical_path;
pub use id::{Carried, JoinKey, Label, SpanId, SpanKind, SpanSource};
pub use leaf::{Account, Leaf, LeafKind, Leg, account, leaves};
pub use node::{GoroutinePark, Span};
pub use self_time::self_time_ns;
pub use tree::{MAX_LEVELS, Tree, violation};
