//! [`Parks`]: where goroutines inside calls were parked, by goroutine, and the names of the places.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque},
    sync::Arc,
};

use plegtrace_common::rec::{CALL_PARKS, CALL_REPLIED, PARK_FRAMES};

use super::{inflight::Goroutine, limits::Limits, needed::Needed};
use crate::{
    decode::{MonoNs, ParkEvent, Parked},
    input::{InFlight, OpenCallFact, ParkerFact, SymbolsFact, Weight},
    span::{self, Span},
};

/// Characters kept of a name.
const MAX_NAME: usize = 512;

/// A stack of an executable, by the hook that tells which.
type Stack = (u32, Arc<[u64]>);

/// A park that is over.
#[derive(Clone, Copy, Debug)]
struct Kept {
    start: MonoNs,
    end: MonoNs,
    reason: u32,
    stack: Option<u32>,
}

/// Parks that are over, those that last, stacks and names.
#[derive(Debug, Default)]
pub(super) struct Parks {
    kept: HashMap<Goroutine, VecDeque<Kept>>,
    /// Whose park came when.
    order: VecDeque<Goroutine>,
    /// The last reading of goroutines inside calls.
    parkers: HashMap<Goroutine, ParkerFact>,
    /// When that was.
    pub(super) read_at: Option<MonoNs>,
    stacks: Vec<Stack>,
    numbers: HashMap<Stack, u32>,
    names: HashMap<(u32, u64), Arc<str>>,
    /// Addresses without a name, by executable.
    unnamed: BTreeMap<u32, BTreeSet<u64>>,
    /// Parks that made room for younger ones.
    pub(super) evicted: u64,
    /// Stacks and names that did not fit.
    pub(super) dropped: u64,
}

impl Parks {
    /// A park is over.
    pub(super) fn park(&mut self, park: &ParkEvent, limits: &Limits) {
        let goroutine = (park.tgid, park.goid);
        let stack = self.stack(park.hook, &park.stack, limits);
        let kept = self.kept.entry(goroutine).or_default();
        // Records of one goroutine come from one processor after the other.
        let at = kept.partition_point(|other| other.start <= park.start);
        kept.insert(at, Kept { start: park.start, end: park.end, reason: park.reason, stack });
        self.order.push_back(goroutine);
        while self.order.len() > limits.parks {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let Some(goroutine) = self.order.pop_front() else { return };
        self.evicted += 1;
        if let Some(kept) = self.kept.get_mut(&goroutine) {
            kept.pop_front();
            if kept.is_empty() {
                self.kept.remove(&goroutine);
            }
        }
    }

    /// Gives up parks that are not needed.
    pub(super) fn age(&mut self, needed: &Needed) {
        let mut left: HashMap<Goroutine, usize> = HashMap::new();
        self.kept.retain(|goroutine, kept| {
            let before = kept.len();
            kept.retain(|park| needed.wants(park.start, park.end));
            if kept.len() < before {
                left.insert(*goroutine, before - kept.len());
            }
            !kept.is_empty()
        });
        self.order.retain(|goroutine| {
            let left = left.get_mut(goroutine).filter(|left| **left > 0);
            left.map(|left| *left -= 1).is_none()
        });
    }

    /// What names and the last reading take, bytes.
    pub(super) fn bytes(&self) -> usize {
        self.names.values().map(|name| name.len()).sum::<usize>() + Weight::sum(self.parkers.values())
    }

    /// How many parks are kept.
    pub(super) fn kept(&self) -> usize {
        self.order.len()
    }

    /// The kernel's maps were read; an older reading is ignored.
    pub(super) fn reading(&mut self, fact: &mut InFlight, limits: &Limits) {
        let at = MonoNs(fact.at_ns);
        if self.read_at.is_some_and(|last| last > at) {
            return;
        }
        self.read_at = Some(at);
        self.parkers.clear();
        for parker in fact.parkers.drain(..).take(limits.open_calls) {
            self.stack(parker.hook, &parker.stack, limits);
            self.parkers.insert((parker.tgid, parker.goid), parker);
        }
    }

    /// The numbers of the stacks with a function whose name contains this.
    pub(super) fn stacks_in(&self, part: &str) -> HashSet<u32> {
        let is_in = |(hook, stack): &Stack| {
            stack.iter().any(|at| self.names.get(&(*hook, *at)).is_some_and(|name| name.contains(part)))
        };
        let numbered = self.stacks.iter().zip(0..);
        numbered.filter(|(stack, _)| is_in(stack)).map(|(_, number)| number).collect()
    }

    /// When a goroutine was parked with one of these stacks, inside an interval, by start.
    pub(super) fn intervals(
        &self,
        goroutine: Goroutine,
        from: MonoNs,
        to: MonoNs,
        stacks: &HashSet<u32>,
    ) -> Vec<(MonoNs, MonoNs)> {
        let kept = self.kept.get(&goroutine).into_iter().flatten();
        let inside = kept.filter(|park| from <= park.start && park.end <= to);
        let wanted = inside.filter(|park| park.stack.is_some_and(|stack| stacks.contains(&stack)));
        wanted.map(|park| (park.start, park.end)).collect()
    }

    /// Names came.
    pub(super) fn symbols(&mut self, fact: SymbolsFact, limits: &Limits) {
        for symbol in fact.names {
            if self.names.len() >= limits.symbols {
                self.dropped += 1;
                continue;
            }
            if let Some(unnamed) = self.unnamed.get_mut(&fact.hook) {
                unnamed.remove(&symbol.offset);
            }
            let name: String = symbol.name.chars().take(MAX_NAME).collect();
            self.names.insert((fact.hook, symbol.offset), name.into());
        }
    }

    /// Addresses that have no name yet, by the hook that tells the executable.
    pub(super) fn unnamed(&self) -> impl Iterator<Item = (u32, Vec<u64>)> {
        let some = self.unnamed.iter().filter(|(_, offsets)| !offsets.is_empty());
        some.map(|(hook, offsets)| (*hook, offsets.iter().copied().collect()))
    }

    /// Every name that is known: the hook that tells the executable, the address, the name.
    pub(super) fn names(&self) -> impl Iterator<Item = (u32, u64, &str)> {
        self.names.iter().map(|((hook, offset), name)| (*hook, *offset, &**name))
    }

    /// Goroutines inside calls, as they were read last.
    pub(super) fn parkers(&self) -> impl Iterator<Item = &ParkerFact> {
        self.parkers.values()
    }

    /// The number of a stack; `None` for an empty one, or when there are too many.
    fn stack(&mut self, hook: u32, stack: &[u64], limits: &Limits) -> Option<u32> {
        let stack = &stack[..stack.len().min(PARK_FRAMES + 1)];
        if stack.is_empty() {
            return None;
        }
        let key = (hook, Arc::from(stack));
        if let Some(number) = self.numbers.get(&key) {
            return Some(*number);
        }
        if self.stacks.len() >= limits.stacks && !self.make_room(limits) {
            self.dropped += 1;
            return None;
        }
        let number = u32::try_from(self.stacks.len()).ok()?;
        for offset in stack {
            if !self.names.contains_key(&(hook, *offset)) && self.names.len() < limits.symbols {
                self.unnamed.entry(hook).or_default().insert(*offset);
            }
        }
        self.stacks.push(key.clone());
        self.numbers.insert(key, number);
        Some(number)
    }

    /// A hook stands for another executable from now on: its stacks, and their names, are of no use.
    pub(super) fn forget_hook(&mut self, hook: u32) {
        self.names.retain(|(of, _), _| *of != hook);
        self.unnamed.remove(&hook);
        self.keep_stacks(|(of, _)| *of != hook);
    }

    /// Forgets stacks that no park has any more, with their names. Too little room is none: looking through all is dear.
    fn make_room(&mut self, limits: &Limits) -> bool {
        let used: BTreeSet<u32> = self.kept.values().flatten().filter_map(|kept| kept.stack).collect();
        if used.len() > limits.stacks / 4 * 3 {
            return false;
        }
        let used: HashSet<Stack> =
            used.into_iter().filter_map(|number| self.stacks.get(number as usize).cloned()).collect();
        self.keep_stacks(|stack| used.contains(stack));
        let places: HashSet<(u32, u64)> =
            self.stacks.iter().flat_map(|(hook, stack)| stack.iter().map(|at| (*hook, *at))).collect();
        self.names.retain(|place, _| places.contains(place));
        for (hook, offsets) in &mut self.unnamed {
            offsets.retain(|offset| places.contains(&(*hook, *offset)));
        }
        true
    }

    /// Keeps these stacks alone and gives them new numbers.
    fn keep_stacks(&mut self, wanted: impl Fn(&Stack) -> bool) {
        let old = std::mem::take(&mut self.stacks);
        self.stacks = old.iter().filter(|stack| wanted(stack)).cloned().collect();
        let numbered = self.stacks.iter().zip(0..).map(|(stack, number)| (stack.clone(), number));
        self.numbers = numbered.collect();
        for kept in self.kept.values_mut().flatten() {
            let stack = kept.stack.and_then(|number| old.get(number as usize));
            kept.stack = stack.and_then(|stack| self.numbers.get(stack).copied());
        }
    }

    /// How long the goroutine of an open call has been parked since its start; `None` when that is not known.
    pub(super) fn so_far(&self, call: &OpenCallFact) -> Option<Parked> {
        // What is kept of one that has replied ends with the reply.
        let measured = call.flags & (CALL_PARKS | CALL_REPLIED) == CALL_PARKS;
        let parker = self.parkers.get(&(call.tgid, call.goid)).filter(|_| measured)?;
        Some(Parked {
            ns: parker.parked_ns.saturating_sub(call.parked_ns),
            short_ns: parker.short_ns.saturating_sub(call.short_ns),
            count: parker.parks.saturating_sub(call.parks),
        })
    }

    /// Hands every span of a tree the parks that are its own. `names` is shared by the trees of one snapshot.
    pub(super) fn attach(&self, span: &mut Span, names: &mut Names) {
        let goroutine = (span.id.tgid, span.id.goid);
        let end = span.end.unwrap_or(MonoNs(u64::MAX));
        let mut parks = Vec::new();
        if let Some(kept) = self.kept.get(&goroutine) {
            let first = kept.partition_point(|park| park.start < span.start());
            let inside = kept.range(first..).take_while(|park| park.start < end);
            parks.extend(inside.filter(|park| park.end <= end).map(|park| self.over(park, names)));
        }
        if let (true, Some(lasts)) = (span.is_open(), self.lasts(goroutine, span.start(), names)) {
            // Its end may have come after the reading.
            if parks.iter().all(|park| park.start != lasts.start) {
                parks.push(lasts);
            }
        }
        let inner: Vec<&Span> =
            span.children.iter().filter(|child| (child.id.tgid, child.id.goid) == goroutine).collect();
        let mut next = 0;
        parks.retain(|park| {
            while inner.get(next).is_some_and(|child| child.end.is_some_and(|end| end <= park.start)) {
                next += 1;
            }
            inner.get(next).is_none_or(|child| child.start() > park.start)
        });
        span.parks = parks;
        span.children.iter_mut().for_each(|child| self.attach(child, names));
    }

    fn over(&self, park: &Kept, names: &mut Names) -> span::GoroutinePark {
        let stack = self.named(park.stack, names);
        span::GoroutinePark { start: park.start, end: park.end, open: false, reason: park.reason, stack }
    }

    /// The park that lasts, if it began at `since` or later.
    fn lasts(&self, goroutine: Goroutine, since: MonoNs, names: &mut Names) -> Option<span::GoroutinePark> {
        let parker = self.parkers.get(&goroutine).filter(|parker| parker.since_ns != 0)?;
        let (start, end) = (MonoNs(parker.since_ns), self.read_at?);
        if start < since || end <= start {
            return None;
        }
        let key = (parker.hook, Arc::from(&parker.stack[..parker.stack.len().min(PARK_FRAMES + 1)]));
        let stack = self.named(self.numbers.get(&key).copied(), names);
        Some(span::GoroutinePark { start, end, open: true, reason: parker.reason, stack })
    }

    /// The names of a stack; none when it is not known.
    fn named(&self, number: Option<u32>, names: &mut Names) -> Arc<[String]> {
        let name = |hook: u32, offset: u64| match self.names.get(&(hook, offset)) {
            Some(name) if !name.is_empty() => name.to_string(),
            _ => format!("+{offset:#x}"),
        };
        let one = || {
            let known = number.and_then(|number| self.stacks.get(number as usize));
            let frames = known.into_iter().flat_map(|(hook, stack)| stack.iter().map(|at| (*hook, *at)));
            frames.map(|(hook, offset)| name(hook, offset)).collect()
        };
        Arc::clone(names.stacks.entry(number).or_insert_with(one))
    }
}

/// Stacks that have their names, so that each is made once per snapshot.
#[derive(Debug, Default)]
pub(super) struct Names {
    stacks: HashMap<Option<u32>, Arc<[String]>>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        input::{Liveness, SymbolFact},
        span::{Tree, sample},
    };

    fn park(goid: u64, start: u64, end: u64, stack: &[u64]) -> ParkEvent {
        let (start, end) = (MonoNs(start), MonoNs(end));
        ParkEvent { tgid: 1, goid, hook: 9, reason: 0, start, end, stack: stack.to_vec() }
    }

    fn attached(parks: &Parks, mut tree: Tree) -> Span {
        parks.attach(&mut tree.root, &mut Names::default());
        tree.root
    }

    /// A park belongs to the innermost call of its goroutine around it, and only to that.
    #[test]
    fn the_innermost_call_has_it() {
        let mut parks = Parks::default();
        for (goid, start, end) in [(1, 1, 4), (1, 5, 8), (1, 20, 30), (1, 70, 80), (2, 40, 50), (1, 95, 120)]
        {
            parks.park(&park(goid, start, end, &[7]), &Limits::default());
        }
        let tree = Tree::build(sample::span(3, Some(100), 1), vec![sample::span(10, Some(60), 2)]);
        let root = attached(&parks, tree);
        let starts = |span: &Span| span.parks.iter().map(|park| park.start.0).collect::<Vec<_>>();
        assert_eq!((starts(&root), starts(&root.children[0])), (vec![5, 70], vec![20]));
    }

    /// Names are asked for once, are shown when they come, and an address without one stays an address.
    #[test]
    fn names_come_later() {
        let (mut parks, limits) = (Parks::default(), Limits::default());
        parks.park(&park(1, 5, 8, &[7, 0x20]), &limits);
        assert_eq!(parks.unnamed().collect::<Vec<_>>(), [(9, vec![7, 0x20])]);
        let name = |offset, name: &str| SymbolFact { offset, name: name.to_owned() };
        parks.symbols(SymbolsFact { hook: 9, names: vec![name(7, "main.wait"), name(0x20, "")] }, &limits);
        parks.park(&park(1, 15, 18, &[7, 0x20]), &limits);
        assert_eq!(parks.unnamed().count(), 0);
        let root = attached(&parks, Tree::build(sample::span(0, Some(100), 1), Vec::new()));
        assert_eq!(*root.parks[1].stack, ["main.wait".to_owned(), "+0x20".to_owned()]);
    }

    /// A park that lasts belongs to the open call, until its end arrives.
    #[test]
    fn a_park_that_lasts() {
        let (mut parks, limits) = (Parks::default(), Limits::default());
        let parker = ParkerFact { tgid: 1, goid: 1, since_ns: 40, hook: 9, parked_ns: 12, ..<_>::default() };
        let mut fact = InFlight { at_ns: 90, parkers: vec![parker], ..InFlight::default() };
        parks.reading(&mut fact, &limits);
        let tree = || Tree::build(sample::span(0, None, 1), Vec::new());
        let root = attached(&parks, tree());
        assert_eq!((root.parks[0].start, root.parks[0].end), (MonoNs(40), MonoNs(90)));
        assert!(root.parks[0].open);
        parks.park(&park(1, 40, 95, &[7]), &limits);
        let root = attached(&parks, tree());
        assert_eq!((root.parks.len(), root.parks[0].end), (1, MonoNs(95)));
    }

    /// What an open call was parked is what the sums have grown by since its start, when the kernel side says so.
    #[test]
    fn sums_since_the_start() {
        let mut parks = Parks::default();
        let parker = ParkerFact { tgid: 1, goid: 1, parked_ns: 12, short_ns: 5, parks: 3, ..<_>::default() };
        let mut fact = InFlight { at_ns: 90, parkers: vec![parker], ..InFlight::default() };
        parks.reading(&mut fact, &Limits::default());
        let liveness = Liveness::Alive;
        let mut call = OpenCallFact {
            tgid: 1,
            goid: 1,
            hook: 0,
            start_ns: 1,
            mark_ns: 0,
            depth: 0,
            flags: CALL_PARKS,
            liveness,
            parked_ns: 2,
            short_ns: 1,
            parks: 1,
            stream: 0,
        };
        assert_eq!(parks.so_far(&call), Some(Parked { ns: 10, short_ns: 4, count: 2 }));
        call.flags |= CALL_REPLIED;
        assert_eq!(parks.so_far(&call), None);
    }

    /// When there are too many stacks, those that no park has any more make room, with their names; what a park has keeps
    /// its name.
    #[test]
    fn stacks_make_room() {
        let mut parks = Parks::default();
        let limits = Limits { parks: 2, stacks: 4, ..Limits::default() };
        for n in 0..9 {
            parks.park(&park(1, n * 10, n * 10 + 5, &[n]), &limits);
            let name = SymbolFact { offset: n, name: format!("main.f{n}") };
            parks.symbols(SymbolsFact { hook: 9, names: vec![name] }, &limits);
        }
        assert_eq!(parks.dropped, 0);
        assert!(parks.stacks.len() <= 4 && parks.names.len() <= 5, "{:?}", parks.names);
        let root = attached(&parks, Tree::build(sample::span(0, Some(100), 1), Vec::new()));
        let named: Vec<&str> = root.parks.iter().map(|park| park.stack[0].as_str()).collect();
        assert_eq!(named, ["main.f7", "main.f8"]);
    }

    /// Nothing is named after an executable whose hook has become another's.
    #[test]
    fn a_hook_becomes_another() {
        let (mut parks, limits) = (Parks::default(), Limits::default());
        parks.park(&park(1, 5, 8, &[7]), &limits);
        let name = |name: &str| SymbolsFact {
            hook: 9,
            names: vec![SymbolFact { offset: 7, name: name.to_owned() }],
        };
        parks.symbols(name("main.old"), &limits);
        parks.forget_hook(9);
        assert!(parks.names.is_empty() && parks.stacks.is_empty());
        parks.park(&park(1, 15, 18, &[7]), &limits);
        assert_eq!(parks.unnamed().collect::<Vec<_>>(), [(9, vec![7])]);
        parks.symbols(name("main.new"), &limits);
        let root = attached(&parks, Tree::build(sample::span(0, Some(100), 1), Vec::new()));
        assert_eq!((root.parks[0].stack.len(), root.parks[1].stack[0].as_str()), (0, "main.new"));
    }

    /// The oldest parks make room, and stacks beyond the bound are counted.
    #[test]
    fn everything_is_bounded() {
        let mut parks = Parks::default();
        let limits = Limits { parks: 3, stacks: 2, ..Limits::default() };
        for n in 0..5 {
            parks.park(&park(n % 2, n * 10, n * 10 + 5, &[n]), &limits);
        }
        assert_eq!((parks.order.len(), parks.evicted, parks.dropped), (3, 2, 3));
        assert_eq!(parks.kept.values().map(VecDeque::len).sum::<usize>(), 3);
    }
}
