//! A kubelet's memory, word by word.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::super::code::{Code, Place};
use super::super::receivers::{Seek, Stack};
use super::super::unwind::Return;
use super::*;
use crate::census::memory::Piece;

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

/// Where stacks are.
const STACK: u64 = 0xc00f_0000;

/// Loops of the package for waiting, methods of the receiver, and nothing else.
struct Loops;

impl Code for Loops {
    fn place(&mut self, _: u64) -> Option<Place> {
        None
    }
    fn returns(&self) -> Return {
        Return::Pushed
    }
    fn name(&self, function: u32) -> Option<&str> {
        match function {
            1 => Some("k8s.io/kubernetes/vendor/k8s.io/apimachinery/pkg/util/wait.BackoffUntil"),
            4 => Some("k8s.io/kubernetes/pkg/kubelet/pleg.(*GenericPLEG).workerLoopIteration"),
            5 => Some("k8s.io/kubernetes/pkg/kubelet/pleg.(*GenericPLEG).Start.func1"),
            _ => None,
        }
    }
    fn keeps_argument(&self, _: u32, _: usize) -> bool {
        false
    }
}

fn sought(frames: &[u32], ends: &[u64], stack: &[u64], code: Option<&[u64]>) -> Vec<u64> {
    let memory = kubelet();
    let bytes: Vec<u8> = stack.iter().flat_map(|word| word.to_le_bytes()).collect();
    let ends: Vec<u64> = ends.iter().map(|words| STACK + 8 * words).collect();
    let whole = STACK - 64..STACK + bytes.len() as u64;
    let stack = Stack { frames, ends: &ends, whole, at: STACK, bytes: &bytes };
    let mut seek = Seek::new(code);
    seek.look(&memory, &Loops, &stack).unwrap();
    seek.found().into_iter().collect()
}

fn receivers(frames: &[u32], stack: &[u64], code: &[u64]) -> Vec<u64> {
    sought(frames, &[], stack, Some(code))
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

/// Since Kubernetes 1.36 no method value relists, but a loop of its own: whatever the frames of its methods point to is a candidate,
/// also what the outermost keeps above its return address. Frames of others are no place for it, and neither is the stack.
#[test]
fn receivers_in_frames() {
    let stack = [STOP, 7, 0x40_2000, TIME, STACK + 8, RECEIVER, 0x40_3000, 0, 0x40_4000, CLOSURE];
    let of = |frames: &[u32], ends: &[u64]| sought(frames, ends, &stack, Some(&[]));
    assert_eq!(of(&[3, 4, 5], &[3, 7, 9]), [0x40_3000, 0x40_4000, CLOSURE, RECEIVER, TIME]);
    assert_eq!(of(&[3, 3, 5], &[3, 7, 9]), [0x40_4000, CLOSURE]);
    assert!(of(&[3, 3, 3], &[3, 7, 9]).is_empty());
    assert!(of(&[3, 4, 5], &[3]).is_empty(), "where a walk ended early, nothing is guessed");
    assert!(sought(&[3, 4, 5], &[3, 7, 9], &stack, None).is_empty(), "it is known already");
    let with_value = sought(&[3, 4, 1], &[3, 7, 9], &stack, Some(&[CODE]));
    assert_eq!(with_value, [RECEIVER], "a method value is certain");
}

/// Among all that frames point to, one has the time.
#[test]
fn one_candidate_decides() {
    let memory = kubelet();
    let all = BTreeSet::from([STOP, CLOSURE, RECEIVER, TIME, RECEIVER + 8, 0xdead_0000]);
    let time = RelistTime::find(&memory, &all, &node(&[CLOCK])).unwrap().unwrap();
    assert_eq!(time.read(&memory, NOW).unwrap(), Some(START + 200 * SECOND));
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
