//! A kubelet's memory, word by word.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::super::code::Place;
use super::super::unwind::Return;
use super::*;

const SECOND: u64 = 1_000_000_000;
const STARTED: u64 = 1000 * SECOND;
const NOW: u64 = 1300 * SECOND;
/// The clock of the process begins 3 ms after its start.
const START: u64 = STARTED + 3_000_000;

const CODE: u64 = 0x40_1000;
const CLOSURE: u64 = 0xc000_0100;
/// A closure that has caught it, and a channel.
const OUTER: u64 = 0xc000_0200;
const STOP: u64 = 0xc000_0300;
const RECEIVER: u64 = 0xc000_1000;
const FIELD: u64 = RECEIVER + 40;
const TIME: u64 = 0xc000_2000;
const TYPES: u64 = 0x80_0000;
const TIME_TYPE: u64 = TYPES + 0x4000;
const OTHER_TYPE: u64 = TYPES + 0x5000;
const NAME: u64 = TYPES + 0x900;
const MODULES: u64 = 0x90_0000;
const CLOCK: u64 = 0x91_0000;
const LOCATION: u64 = 0x91_0008;

/// Words at addresses; what has none cannot be read.
#[derive(Default)]
struct Words(RefCell<BTreeMap<u64, u64>>);

impl Words {
    fn put(&self, at: u64, words: &[u64]) {
        self.0.borrow_mut().extend((at..).step_by(8).zip(words.iter().copied()));
    }

    fn put_text(&self, at: u64, text: &[u8]) {
        let padded: Vec<u8> = text.iter().copied().chain([0; 16]).collect();
        let words: Vec<u64> = (0..3).filter_map(|index| word(&padded, 8 * index)).collect();
        self.put(at, &words[..2]);
    }

    /// A list that began so long after the start of the clock.
    fn list_at(&self, since_start: u64) {
        self.put(TIME, &[HAS_MONOTONIC | 77 << 30 | 500, since_start, LOCATION]);
    }
}

impl Memory for Words {
    fn read(&self, pieces: &mut [Piece<'_>]) -> Result<(), MemoryError> {
        let all = self.0.borrow();
        for piece in pieces {
            let at = piece.addr;
            let byte = |at: u64| Some(all.get(&(at & !7))?.to_le_bytes()[usize::try_from(at % 8).ok()?]);
            let bytes: Option<Vec<u8>> = (at..at + piece.into.len() as u64).map(byte).collect();
            if let Some(bytes) = bytes {
                piece.into.copy_from_slice(&bytes);
                piece.whole = true;
            }
        }
        Ok(())
    }
}

/// A kubelet that listed 200 s after its start.
fn kubelet() -> Words {
    let memory = Words::default();
    memory.put(CLOSURE, &[CODE, RECEIVER, 0, 0]);
    memory.put(OUTER, &[CODE + 64, STOP, CLOSURE, 0]);
    memory.put(STOP, &[0; 4]);
    memory.put(RECEIVER, &[SECOND, OTHER_TYPE, TIME, CLOSURE, 0, TIME_TYPE, TIME]);
    memory.put(RECEIVER + 56, &[0; 25]);
    memory.list_at(200 * SECOND);
    for time_type in [TIME_TYPE, OTHER_TYPE] {
        memory.put(time_type, &[TIME_SIZE, 24, 0x1908_0800_1234_5678, 0, 0, 0x900]);
    }
    // The other one is as large, and no struct.
    memory.put(OTHER_TYPE + 16, &[0x1708_0800_1234_5678]);
    memory.put_text(NAME, b"\x01\x09time.Time");
    memory.put(MODULES, &[0; MODULEDATA / 8]);
    memory.put(MODULES + 64, &[CODE, TYPES, MODULES]);
    memory.put(CLOCK, &[START, 0x1234]);
    memory
}

fn node(clocks: &[u64]) -> Node<'_> {
    Node { moduledata: MODULES, clocks, started_ns: STARTED, now_ns: NOW }
}

fn find(memory: &Words) -> Option<RelistTime> {
    RelistTime::find(memory, &BTreeSet::from([RECEIVER]), &node(&[CLOCK, LOCATION])).unwrap()
}

fn last_list(memory: &Words) -> Option<u64> {
    find(memory)?.read(memory, NOW).unwrap()
}

/// Loops of the package for waiting, and nothing else.
struct Loops;

impl Code for Loops {
    fn place(&mut self, _: u64) -> Option<Place> {
        None
    }
    fn returns(&self) -> Return {
        Return::Pushed
    }
    fn name(&self, function: u32) -> Option<&str> {
        (function == 1).then_some("k8s.io/kubernetes/vendor/k8s.io/apimachinery/pkg/util/wait.BackoffUntil")
    }
    fn keeps_argument(&self, _: u32, _: usize) -> bool {
        false
    }
}

fn receivers(frames: &[u32], stack: &[u64], code: &[u64]) -> Vec<u64> {
    let memory = kubelet();
    let bytes: Vec<u8> = stack.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut seek = Seek::new(code);
    seek.look(&memory, &Loops, frames, &bytes).unwrap();
    seek.receivers.into_iter().collect()
}

/// The closure is found on the stack of a loop, among words that are nothing, point nowhere or to something else; on no other
/// stack, and for no other code.
#[test]
fn receivers_on_stacks() {
    let stack = [0, 7, u64::MAX, CLOSURE, TIME, 0xdead_0000, CLOSURE];
    assert_eq!(receivers(&[3, 1], &stack, &[CODE]), [RECEIVER]);
    assert_eq!(receivers(&[3, 1], &[7, OUTER], &[CODE]), [RECEIVER]);
    assert!(receivers(&[3, 2], &stack, &[CODE]).is_empty());
    assert!(receivers(&[3, 1], &stack, &[CODE + 8]).is_empty());
    assert!(receivers(&[3, 1], &stack[..3], &[CODE]).is_empty());
    assert!(receivers(&[3, 1], &stack, &[]).is_empty());
}

/// The time of the list, on the clock of all records.
#[test]
fn the_last_list() {
    let memory = kubelet();
    assert_eq!(last_list(&memory), Some(START + 200 * SECOND));
    memory.put_text(NAME, b"\x01\x0a*time.Time");
    assert_eq!(last_list(&memory), Some(START + 200 * SECOND));
}

/// It may stay and grow; what goes back is no such time, and neither is what is not over.
#[test]
fn it_goes_on() {
    let memory = kubelet();
    let time = find(&memory).unwrap();
    let at = |since_start| {
        memory.list_at(since_start);
        time.read(&memory, NOW).unwrap()
    };
    assert_eq!(at(200 * SECOND), Some(START + 200 * SECOND));
    assert_eq!(at(200 * SECOND), Some(START + 200 * SECOND));
    assert_eq!(at(201 * SECOND), Some(START + 201 * SECOND));
    assert_eq!(at(200 * SECOND), None);
    assert_eq!(at(400 * SECOND), None, "later than now");
    assert_eq!(at(u64::MAX), None);
}

/// Whatever else is there gives no time.
#[test]
fn anything_else_is_refused() {
    let refused = |what: &str, at: u64, words: &[u64]| {
        let memory = kubelet();
        memory.put(at, words);
        assert_eq!(last_list(&memory), None, "{what}");
    };
    refused("no list yet", FIELD, &[0, 0]);
    refused("a second time in it", FIELD + 24, &[TIME_TYPE, TIME]);
    refused("a type of another size", TIME_TYPE, &[32]);
    refused("a type of another name", NAME, &[u64::from_le_bytes(*b"\x01\x09time.D")]);
    refused("no monotonic reading", TIME, &[77 << 30 | 500]);
    refused("more nanoseconds than a second has", TIME, &[HAS_MONOTONIC | 1_000_000_000]);
    refused("a clock that began before the process", CLOCK, &[STARTED - 50_000_000]);
    refused("a clock that began long after it", CLOCK, &[STARTED + 61 * SECOND]);
    refused("two clocks", LOCATION, &[START + 1]);
    refused("no beginning of types", MODULES + 72, &[0]);
}

/// Another value in the field, after it was found.
#[test]
fn another_type_later() {
    let memory = kubelet();
    let time = find(&memory).unwrap();
    memory.put(FIELD, &[OTHER_TYPE]);
    assert_eq!(time.read(&memory, NOW).unwrap(), None);
}
