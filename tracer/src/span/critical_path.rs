//! The chain of spans that decided how long a request took.

use super::Span;
use crate::decode::MonoNs;

/// From the root downwards: at each level the child that is still open, else the longest one, as long as a child
/// takes at least half of its parent (below that the parent itself is what took the time).
#[must_use]
pub fn critical_path(root: &Span, now: MonoNs) -> Vec<&Span> {
    let mut path = vec![root];
    let mut at = root;
    while let Some(next) = at.children.iter().max_by_key(|child| (child.is_open(), child.duration_ns(now))) {
        if !next.is_open() && next.duration_ns(now) < at.duration_ns(now) / 2 {
            break;
        }
        path.push(next);
        at = next;
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::span::{Tree, sample::span};

    /// What is open now decides, even when something finished took longer before.
    #[test]
    fn open_goes_first() {
        let tree = Tree::build(span(0, None, 10), vec![span(10, Some(90), 20), span(95, None, 20)]);
        let path = critical_path(&tree.root, MonoNs(100));
        assert_eq!(path.iter().map(|span| span.start().0).collect::<Vec<_>>(), [0, 95]);
    }

    /// A parent whose children are all short is itself the end of the path.
    #[test]
    fn stops_where_time_is_spent() {
        let tree = Tree::build(span(0, Some(100), 10), vec![span(10, Some(20), 20), span(30, Some(45), 20)]);
        assert_eq!(critical_path(&tree.root, MonoNs(100)).len(), 1);
    }
}
