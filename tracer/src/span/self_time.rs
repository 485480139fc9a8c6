//! Time a span spent outside its children.

use super::Span;
use crate::decode::MonoNs;

/// Nanoseconds of `span` that lie in none of its children; open spans last until `now`.
#[must_use]
pub fn self_time_ns(span: &Span, now: MonoNs) -> u64 {
    let inside: u64 = span.children.iter().map(|child| child.duration_ns(now)).sum();
    span.duration_ns(now).saturating_sub(inside)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::span::{Tree, sample::span};

    /// Self times of a tree add up to the length of its root.
    #[test]
    fn adds_up() {
        let parts = vec![span(10, Some(60), 20), span(20, Some(30), 30), span(70, None, 20)];
        let tree = Tree::build(span(0, None, 10), parts);
        let now = MonoNs(100);
        let total: u64 = tree.root.walk().map(|span| self_time_ns(span, now)).sum();
        assert_eq!(total, tree.root.duration_ns(now));
        assert_eq!(self_time_ns(&tree.root, now), 20);
    }
}
