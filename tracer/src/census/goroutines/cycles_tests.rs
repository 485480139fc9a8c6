//! Made-up processes that collect garbage.

use proptest::prelude::*;

use super::*;

const S: u64 = 1_000_000_000;
/// Monotonic time begins here; the wall clock is this much ahead.
const OFFSET: i64 = 1_700_000_000_000_000_000;
const GC: GcOffsets = GcOffsets { pause_ns: 16, pause_end: 2064, numgc: 4112, last_gc_nanotime: 4128 };

impl Cycles {
    /// Collections that ended at these moments, all confirmed.
    pub(in super::super) fn of_ends(ends: impl Iterator<Item = u64>) -> Self {
        Self { known: ends.map(|end_ns| Cycle { end_ns, pause_ns: 0 }).collect(), confirmed: 0 }
    }
}

/// What the runtime writes down.
struct Runtime {
    bytes: Vec<u8>,
    count: u64,
    offset: i64,
}

impl Runtime {
    fn new() -> Self {
        Self { bytes: vec![0; GC.size()], count: 0, offset: OFFSET }
    }

    fn put(&mut self, at: u32, value: u64) {
        self.bytes[at as usize..at as usize + 8].copy_from_slice(&value.to_le_bytes());
    }

    /// A collection whose last pause began and ended then. `late`: how long after that the wall clock was asked.
    fn collect(&mut self, began: u64, ended: u64, late: u64) {
        let unix = (ended + late).cast_signed().wrapping_add(self.offset).cast_unsigned();
        let slot = 8 * u32::try_from(self.count % 256).unwrap();
        self.count += 1;
        for (at, value) in [
            (0, unix),
            (GC.pause_ns + slot, ended - began),
            (GC.pause_end + slot, unix),
            (GC.numgc, self.count | 0x77 << 32),
            (GC.last_gc_nanotime, ended),
        ] {
            self.put(at, value);
        }
    }

    fn read(&self) -> Cycles {
        Cycles::parse(&self.bytes, GC, self.offset).unwrap_or_default()
    }
}

/// The mark of a goroutine is the end of the collection before the one that found it; the end of that one counts.
#[test]
fn the_collection_after_the_mark() {
    let mut runtime = Runtime::new();
    assert_eq!(runtime.read(), Cycles::default(), "none so far");
    for second in 1..=10 {
        runtime.collect(second * S, second * S + 1_000, 200);
    }
    let mut cycles = runtime.read();
    cycles.confirm(S);
    assert_eq!(cycles.parked_by(4 * S), Some(5 * S + 1_200 + SLICE_NS));
    assert_eq!(cycles.parked_by(9 * S), Some(10 * S + 1_200 + SLICE_NS));
    assert_eq!(cycles.parked_by(10 * S), None, "found by one that has not ended");
    assert_eq!(cycles.parked_by(11 * S), None);
}

/// Older than what is kept: the oldest that is confirmed counts.
#[test]
fn a_ring() {
    let mut runtime = Runtime::new();
    for second in 1..=1_000 {
        runtime.collect(second * S, second * S, 0);
    }
    let mut cycles = runtime.read();
    assert_eq!(cycles.known.len(), 256);
    assert_eq!(cycles.parked_by(S), Some(1_000 * S + SLICE_NS), "only the last one is known by both clocks");
    cycles.confirm(900 * S);
    assert_eq!(cycles.parked_by(S), Some(900 * S + SLICE_NS));
    cycles.confirm(745 * S);
    assert_eq!(cycles.parked_by(S), Some(746 * S + SLICE_NS));
    assert_eq!(cycles.parked_by(990 * S), Some(991 * S + SLICE_NS));
}

/// The wall clock was set: what ended before that cannot be told any more, and is not.
#[test]
fn the_wall_clock_was_set() {
    for step in [3_600 * S.cast_signed(), -1_800 * S.cast_signed(), S.cast_signed()] {
        let mut runtime = Runtime::new();
        for second in 1..=20 {
            if second == 11 {
                runtime.offset += step;
            }
            runtime.collect(60 * second * S, 60 * second * S, 0);
        }
        let mut cycles = runtime.read();
        for second in 1..=19 {
            cycles.confirm(60 * second * S);
        }
        for second in 1..=19 {
            let by = cycles.parked_by(60 * second * S).unwrap();
            assert!(by >= 60 * (second + 1) * S, "{step} {second} {by}");
            assert!(by <= 60 * (second + 1).max(12) * S + SLICE_NS, "{step} {second} {by}");
        }
        // Since the last collection: nothing fits any more.
        runtime.offset += step;
        assert_eq!(runtime.read(), Cycles::default());
    }
}

/// A clock that was set back by almost the time between two collections makes the first one look like the second. The second counts.
#[test]
fn the_wall_clock_was_set_to_the_collection_before() {
    for between in [S, 120 * S] {
        let mut runtime = Runtime::new();
        runtime.collect(1_000 * S, 1_000 * S + 100_000, 0);
        runtime.offset -= between.cast_signed() - 1_000;
        let mark = 1_000 * S + between;
        runtime.collect(mark, mark + 100_000, 0);
        // Whoever parks now is found by the third one.
        runtime.collect(mark + 60 * S, mark + 60 * S, 0);
        let mut cycles = runtime.read();
        cycles.confirm(mark);
        assert_eq!(cycles.parked_by(mark), Some(mark + 60 * S + SLICE_NS));
    }
}

/// Anything else at that place is taken for nothing.
#[test]
fn nonsense() {
    let mut runtime = Runtime::new();
    runtime.collect(5 * S, 5 * S, 0);
    let sound = runtime.bytes.clone();
    for at in [0, GC.pause_end, GC.numgc, GC.last_gc_nanotime] {
        runtime.bytes.clone_from(&sound);
        runtime.put(at, 12_345);
        assert_eq!(runtime.read(), Cycles::default(), "field {at}");
    }
    assert_eq!(Cycles::parse(&[0xff; 4136], GC, OFFSET), None);
    assert_eq!(Cycles::parse(&sound[..4000], GC, OFFSET), None);
}

/// One step of a made-up process.
#[derive(Clone, Debug)]
enum Event {
    /// It runs for so long, and parks.
    Park(u64),
    /// So long nothing.
    Rest(u64),
    /// A collection; the runtime asks the wall clock so late.
    Collect(u64),
    /// The clock is set.
    Set(i64),
}

fn event() -> impl Strategy<Value = Event> {
    let long = 0..300 * S;
    prop_oneof![
        2 => (0..2 * S).prop_map(Event::Park),
        4 => long.prop_map(Event::Rest),
        8 => (0..BETWEEN_CLOCKS_NS / 2).prop_map(Event::Collect),
        1 => (0..7200i64).prop_map(|seconds| Event::Set(seconds * 500_000_000)),
    ]
}

/// The collection that was taken for confirmed only looks like another one: after both, the clock was set by just the time between them.
/// `seen`: when each began, and its end by the wall clock. `confirmed`: the place of that collection there.
fn hidden(seen: &[(u64, i64)], confirmed: usize, offset: i64) -> bool {
    let was_set = |(began, wall): &(u64, i64)| (wall - offset).abs_diff(began.cast_signed()) > S / 4;
    let looks = seen[confirmed].1 - offset;
    let same = |began: u64| {
        let late = looks - began.cast_signed();
        (-JITTER_NS.cast_signed()..=BETWEEN_CLOCKS_NS.cast_signed() + 100_000).contains(&late)
    };
    was_set(&seen[confirmed]) && seen.iter().any(|other| was_set(other) && same(other.0))
}

proptest! {
    /// Whatever happens in whatever order: no goroutine is parked for longer than it is; and where the clock was not set,
    /// the bound is at most a collection short. Two things nobody can see. The clock is set one way only: back and forth by the same
    /// time between two collections is the one. And see [`hidden`].
    #[test]
    fn no_bound_exceeds_the_truth(
        events in prop::collection::vec(event(), 1..600),
        others in any::<bool>(),
        forward in any::<bool>(),
    ) {
        let mut runtime = Runtime::new();
        let (mut now, mut parked, mut mark, mut begin) = (1_000 * S, 1_000 * S, 0, 0);
        let (mut ends, mut marks, mut set, mut seen) = (Vec::new(), Vec::new(), false, Vec::new());
        for event in events {
            match event {
                Event::Park(ns) => {
                    now += ns;
                    (parked, mark) = (now, 0);
                }
                Event::Rest(ns) => now += ns,
                Event::Collect(late) => {
                    if mark == 0 {
                        mark = begin;
                    }
                    marks.push(begin);
                    now += S;
                    begin = now;
                    runtime.collect(begin, now + 100_000, late);
                    now += 100_000;
                    ends.push(now);
                    now += late;
                    seen.push((begin, now.cast_signed() + runtime.offset));
                }
                Event::Set(ns) => {
                    runtime.offset += if forward { ns } else { -ns };
                    set |= ns != 0;
                }
            }
        }
        let mut cycles = runtime.read();
        for mark in marks.iter().filter(|_| others).chain([&mark]).filter(|mark| **mark != 0) {
            cycles.confirm(*mark);
        }
        let by = Some(mark).filter(|mark| *mark != 0).and_then(|mark| cycles.parked_by(mark));
        let confirmed = seen.len() - cycles.known.len() + cycles.confirmed;
        let sound = by.is_none_or(|by| by >= parked) || hidden(&seen, confirmed, runtime.offset);
        prop_assert!(sound, "{by:?} {parked}");
        let kept = &ends[ends.len().saturating_sub(256)..];
        let second = kept.iter().filter(|end| **end >= parked).nth(1);
        if let Some(second) = second.filter(|_| !set && others && mark != 0) {
            prop_assert!(by.is_some_and(|by| by <= second + SLICE_NS + BETWEEN_CLOCKS_NS), "{by:?} {second}");
        }
    }
}
