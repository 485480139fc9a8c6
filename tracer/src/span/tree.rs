//! [`Tree`]: nests intervals by containment and stack depth.

use std::{cmp::Reverse, collections::HashMap};

use super::Span;
use super::SpanId;
use crate::decode::MonoNs;

/// Deepest tree; what would lie deeper is left out, so that walking a tree never exhausts the stack.
pub const MAX_LEVELS: usize = 32;

/// A root with everything inside it.
#[derive(Clone, Debug, PartialEq)]
pub struct Tree {
    /// The root.
    pub root: Span,
    /// Parts left out because they fit nowhere.
    pub misfits: u64,
}

impl Tree {
    /// Hangs `parts`, calls of the root's goroutine in any order, below `root`.
    #[must_use]
    pub fn build(root: Span, mut parts: Vec<Span>) -> Self {
        parts.sort_by_key(|part| {
            (part.id.start, part.depth, Reverse(part.end.unwrap_or(MonoNs(u64::MAX))), part.id)
        });
        parts.dedup_by_key(|part| part.id);
        let mut misfits = 0;
        let mut above: Vec<Span> = Vec::new();
        let mut top = root;
        for part in parts {
            while !above.is_empty() && top.end.is_some_and(|end| end <= part.id.start) {
                top = close(top, &mut above);
            }
            if fits(&top, &part) && above.len() + 1 < MAX_LEVELS {
                above.push(std::mem::replace(&mut top, part));
            } else {
                misfits += 1;
            }
        }
        while !above.is_empty() {
            top = close(top, &mut above);
        }
        Self { root: top, misfits }
    }

    /// Puts spans of another goroutine below the call that waits for them, where they lie inside it.
    pub fn graft(&mut self, answers: &mut HashMap<SpanId, Span>) {
        graft(&mut self.root, answers, 1);
    }
}

/// Hangs `top` below the span under it, which becomes the top.
fn close(top: Span, above: &mut Vec<Span>) -> Span {
    let mut parent = above.pop().expect("only called while spans are stacked");
    parent.children.push(top);
    parent
}

/// Can `part` lie directly below `top`? Deeper frames use more stack; a depth of 0 is not known.
fn fits(top: &Span, part: &Span) -> bool {
    let deeper = top.depth == 0 || part.depth == 0 || part.depth > top.depth;
    top.covers(part) && deeper && top.id != part.id
}

fn graft(span: &mut Span, answers: &mut HashMap<SpanId, Span>, level: usize) {
    if level >= MAX_LEVELS {
        return;
    }
    for child in &mut span.children {
        graft(child, answers, level + 1);
    }
    if span.children.is_empty()
        && let Some(answer) = answers.remove(&span.id)
        && span.covers(&answer)
    {
        span.children.push(answer);
    }
}

/// The first broken invariant of a tree, in words; `None` when it is sound.
#[must_use]
pub fn violation(root: &Span) -> Option<String> {
    for span in root.walk() {
        if span.end.is_some_and(|end| end < span.id.start) {
            return Some(format!("{} ends before it starts", span.operation()));
        }
        if let Some(child) = span.children.iter().find(|child| !span.covers(child)) {
            return Some(format!("{} is not inside {}", child.operation(), span.operation()));
        }
        let overlap =
            span.children.windows(2).find(|pair| pair[0].end.is_none_or(|end| end > pair[1].id.start));
        if let Some(pair) = overlap {
            return Some(format!("{} overlaps {}", pair[0].operation(), pair[1].operation()));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::span::sample::span;

    /// Calls nest by containment, whatever their order of arrival.
    #[test]
    fn nests_by_containment() {
        let parts = vec![
            span(40, Some(50), 30),
            span(10, Some(60), 20),
            span(70, Some(80), 20),
            span(20, Some(30), 30),
        ];
        let tree = Tree::build(span(0, Some(100), 10), parts);
        assert_eq!((tree.root.children.len(), tree.misfits), (2, 0));
        assert_eq!(tree.root.children[0].children.len(), 2);
        assert_eq!(violation(&tree.root), None);
    }

    /// What sticks out of its parent, or claims to be inside a deeper frame, is left out and counted.
    #[test]
    fn contradictions_are_left_out() {
        let outside = Tree::build(span(0, Some(100), 10), vec![span(90, Some(110), 20)]);
        assert_eq!((outside.root.children.len(), outside.misfits), (0, 1));
        let shallow = Tree::build(span(0, Some(100), 10), vec![span(20, Some(30), 5)]);
        assert_eq!((shallow.root.children.len(), shallow.misfits), (0, 1));
    }

    /// An open call lies only in open calls.
    #[test]
    fn open_in_open_only() {
        let parts = vec![span(10, None, 20), span(20, None, 30)];
        let open = Tree::build(span(0, None, 10), parts.clone());
        assert_eq!(open.root.children[0].children.len(), 1);
        assert_eq!(Tree::build(span(0, Some(100), 10), parts).misfits, 2);
    }

    /// Nesting stops at the limit.
    #[test]
    fn depth_is_bounded() {
        let parts = (1..1000).map(|n| span(n.into(), Some(10_000 - u64::from(n)), 10 + n)).collect();
        let tree = Tree::build(span(0, Some(10_000), 10), parts);
        assert_eq!(tree.root.walk().count(), MAX_LEVELS);
        assert_eq!(tree.misfits, 999 + 1 - MAX_LEVELS as u64);
    }

    /// An answer from another process hangs below the call that waits for it.
    #[test]
    fn answers_are_grafted() {
        let client = span(10, Some(60), 20);
        let id = client.id;
        let mut tree = Tree::build(span(0, Some(100), 10), vec![client]);
        let mut answer = span(20, Some(50), 999);
        answer.id.tgid = 2;
        tree.graft(&mut HashMap::from([(id, answer)]));
        assert_eq!(tree.root.children[0].children[0].id.tgid, 2);
        assert_eq!(violation(&tree.root), None);
    }
}
