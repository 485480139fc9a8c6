//! Leaves of spans as they are shown: those of one kind and place together, and short words for a place.

use super::{escape, human};
use crate::{
    correlate::Snapshot,
    decode::MonoNs,
    span::{GoroutinePark, LeafKind, Leg, Span, leaves},
};

/// Functions named of a stack.
const SHOWN: usize = 3;

/// Kind of a leaf, without its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    NotParked,
    Parked,
    Transport(Leg),
    ShortParks,
    Process,
    Unexplained,
}

impl Kind {
    /// Stable name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::NotParked => "not_parked",
            Self::Parked => "parked",
            Self::Transport(Leg::Whole) => "transport",
            Self::Transport(Leg::Send) => "transport_send",
            Self::Transport(Leg::Accept) => "transport_accept",
            Self::Transport(Leg::Answer) => "transport_answer",
            Self::Transport(Leg::Receive) => "transport_receive",
            Self::ShortParks => "short_parks",
            Self::Process => "process",
            Self::Unexplained => "unexplained",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::NotParked => "running, ready or in a syscall",
            Self::Parked => "parked",
            Self::Transport(leg) => way(leg),
            Self::ShortParks => "short parks",
            Self::Process => "the process itself",
            Self::Unexplained => "unexplained",
        }
    }
}

/// A part of the way between a call and its handler, in words.
pub(super) fn way(leg: Leg) -> &'static str {
    match leg {
        Leg::Send => "request not written yet by the client",
        Leg::Accept => "request not taken yet by the server",
        Leg::Answer => "answer not written yet by the server",
        Leg::Receive => "answer not taken yet by the client",
        Leg::Whole => "between client and handler",
    }
}

/// Leaves of one kind and place.
#[derive(Clone, Debug)]
pub(super) struct Group<'a> {
    pub(super) kind: Kind,
    /// One of its parks.
    pub(super) park: Option<&'a GoroutinePark>,
    pub(super) ns: u64,
    pub(super) count: u64,
    /// One of its parks lasts.
    pub(super) open: bool,
}

impl Group<'_> {
    /// What it is, how often, and where, in harmless words.
    pub(super) fn words(&self) -> String {
        let times = if self.count > 1 && self.park.is_some() {
            format!(" {}×", human::count(self.count))
        } else {
            String::new()
        };
        // Where a caller waits for its answer is always the same place.
        let parked = self.park.filter(|_| self.kind == Kind::Parked);
        let place = parked.map_or_else(String::new, |park| format!(" {}", place(&park.stack)));
        format!("{}{times}{place}", self.kind.words())
    }

    fn same(&self, kind: Kind, park: Option<&GoroutinePark>) -> bool {
        let stack = |park: Option<&GoroutinePark>| park.map(|park| park.stack.clone());
        self.kind == kind && stack(self.park) == stack(park)
    }
}

/// Is it known where goroutines wait? Without it every leaf would be unexplained.
pub(super) fn follows_parks(snapshot: &Snapshot) -> bool {
    snapshot.hooks.iter().any(|state| state.hook.symbol == "runtime.gopark")
}

/// The leaves of these spans, their children's left out, the longest group first.
pub(super) fn groups<'a>(spans: &[&'a Span], now: MonoNs) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    for leaf in spans.iter().flat_map(|span| leaves(span, now)) {
        let (kind, park) = match leaf.kind {
            LeafKind::NotParked => (Kind::NotParked, None),
            LeafKind::Parked(park) => (Kind::Parked, Some(park)),
            LeafKind::Transport(park, leg) => (Kind::Transport(leg), Some(park)),
            LeafKind::ShortParks => (Kind::ShortParks, None),
            LeafKind::Process => (Kind::Process, None),
            LeafKind::Unexplained => (Kind::Unexplained, None),
        };
        let open = park.is_some_and(|park| park.open);
        match groups.iter_mut().find(|group| group.same(kind, park)) {
            Some(group) => {
                group.ns += leaf.ns;
                group.count += 1;
                group.open |= open;
            }
            None => groups.push(Group { kind, park, ns: leaf.ns, count: 1, open }),
        }
    }
    groups.sort_by_key(|group| std::cmp::Reverse(group.ns));
    groups
}

/// Where a stack waits: its innermost functions that are not the runtime's own, harmless and short.
pub(super) fn place(stack: &[String]) -> String {
    let own = |name: &&String| !name.starts_with("runtime.") && !name.contains(".runtime_");
    let mut names: Vec<&String> = stack.iter().filter(own).take(SHOWN).collect();
    if names.is_empty() {
        names.extend(stack.first());
    }
    if names.is_empty() {
        return "at an unknown place".to_owned();
    }
    let short = |name: &&String| escape::text_to(name.rsplit('/').next().unwrap_or(name), 60);
    format!("in {}", names.iter().map(short).collect::<Vec<_>>().join(" < "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(stack: &[&str]) -> String {
        place(&stack.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
    }

    /// The runtime's own functions say nothing, packages are shortened, and an unknown place is called so.
    #[test]
    fn places() {
        let stack = [
            "runtime.goparkunlock",
            "sync.runtime_SemacquireMutex",
            "sync.(*RWMutex).RLock",
            "example.com/store/container.(*statusStorage).Get",
        ];
        assert_eq!(words(&stack), "in sync.(*RWMutex).RLock < container.(*statusStorage).Get");
        assert_eq!(words(&stack[..1]), "in runtime.goparkunlock");
        assert_eq!(words(&[]), "at an unknown place");
        assert_eq!(words(&["main.\u{1b}[31m"]), "in main.\\x1b[31m");
    }
}
