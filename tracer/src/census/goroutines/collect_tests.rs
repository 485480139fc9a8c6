//! One goroutine that changes while it is read.

use std::cell::{Cell, RefCell};

use super::super::code::{Kind, Place};
use super::super::reasons::Reasons;
use super::super::unwind::Return;
use super::*;

const BASE: u64 = 0xc000_0000;
const STACK: u64 = BASE + 0x1000;
const G: GOffsets = GOffsets {
    stack_lo: 0,
    stack_hi: 8,
    m: 48,
    sched_sp: 56,
    sched_pc: 64,
    sched_bp: 104,
    sched_lr: 96,
    syscallsp: 112,
    atomicstatus: 144,
    goid: 152,
    waitsince: 168,
    waitreason: 176,
};

/// Memory in which one word of the `g` takes another value with each reading, so many times.
struct Moving {
    bytes: RefCell<Vec<u8>>,
    at: usize,
    values: Vec<u64>,
    reads: Cell<usize>,
}

impl Moving {
    /// A waiting goroutine on a stack of two functions; `values` for the word at `at`.
    fn new(at: u32, values: Vec<u64>) -> Self {
        let mut bytes = vec![0; 0x3000];
        let mut put = |at: u64, value: u64| {
            let at = usize::try_from(at).unwrap();
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        };
        for (field, value) in [
            (G.stack_lo, STACK),
            (G.stack_hi, STACK + 0x1000),
            (G.sched_sp, STACK + 0xf00),
            (G.sched_pc, 0x101),
            (G.atomicstatus, 4),
            (G.goid, 7),
            (G.waitsince, 5),
        ] {
            put(field.into(), value);
        }
        put(0x1f00, 0x201);
        put(0x1f08, 0x901);
        Self { bytes: RefCell::new(bytes), at: at as usize, values, reads: Cell::new(0) }
    }
}

impl Memory for Moving {
    fn read(&self, pieces: &mut [Piece<'_>]) -> Result<(), MemoryError> {
        let mut bytes = self.bytes.borrow_mut();
        if let Some(value) = self.values.get(self.reads.get()) {
            bytes[self.at..self.at + 8].copy_from_slice(&value.to_le_bytes());
        }
        self.reads.set(self.reads.get() + 1);
        for piece in pieces {
            let from = usize::try_from(piece.addr - BASE).unwrap();
            let len = piece.into.len();
            piece.into.copy_from_slice(&bytes[from..from + len]);
            piece.whole = true;
        }
        Ok(())
    }
}

/// Functions 1 and 2 without frames, 9 at the bottom.
struct Toy;

impl Code for Toy {
    fn place(&mut self, pc: u64) -> Option<Place> {
        let kind = if pc >> 8 == 9 { Kind::Bottom } else { Kind::Ordinary };
        Some(Place { function: u32::try_from(pc >> 8).ok()?, depth: Some(0), kind })
    }

    fn returns(&self) -> Return {
        Return::Pushed
    }

    fn name(&self, function: u32) -> Option<&str> {
        ["", "main.f", "main.g"].get(function as usize).copied()
    }

    fn keeps_argument(&self, _function: u32, _n: usize) -> bool {
        false
    }
}

/// Total, unread, and the frames of what was read.
fn read(memory: &Moving) -> (u64, u64, Vec<Vec<String>>) {
    read_with(memory, u64::MAX, &|_| {})
}

fn read_with(memory: &Moving, until_ns: u64, pause: &dyn Fn(Duration)) -> (u64, u64, Vec<Vec<String>>) {
    let mut collector = Collector {
        memory,
        code: &mut Toy,
        g: &G,
        groups: Groups::new(10),
        about: About::default(),
        seek: Seek::default(),
        counts: Counts::default(),
        cycles: Cycles::default(),
        until_ns,
        fingerprints: false,
        clock: &|| 100,
        pause,
    };
    collector.run(&[BASE]).unwrap();
    let counts = collector.counts;
    let (groups, _) = collector.groups.finish(&Toy, &Reasons::default(), &Cycles::default(), 1 << 20);
    (counts.total, counts.unread, groups.into_iter().map(|group| group.frames).collect())
}

fn whole() -> (u64, u64, Vec<Vec<String>>) {
    (1, 0, vec![vec!["main.f".to_owned(), "main.g".to_owned()]])
}

/// It stands still: read at once. Only the garbage collector was there: the same.
#[test]
fn still() {
    let memory = Moving::new(G.waitsince, vec![]);
    assert_eq!(read(&memory), whole());
    assert_eq!(memory.reads.get(), 4, "to see that it lives, header, stack, header");
    let scanned = Moving::new(G.atomicstatus, vec![4, 4, 4, 0x1004]);
    assert_eq!((read(&scanned), scanned.reads.get()), (whole(), 4));
    let seen_waiting = Moving::new(G.waitsince, vec![0, 0, 0, 9]);
    assert_eq!((read(&seen_waiting), seen_waiting.reads.get()), (whole(), 4));
}

/// It moved once, or its stack did: read again, and what was read first does not count.
#[test]
fn moved_once() {
    for field in [G.sched_sp, G.sched_pc, G.stack_hi, G.goid] {
        let memory = Moving::new(field, vec![]);
        let at = field as usize;
        let right = u64::from_le_bytes(memory.bytes.borrow()[at..at + 8].try_into().unwrap());
        let memory = Moving::new(field, vec![right, right + 8, right + 8, right]);
        assert_eq!((read(&memory), memory.reads.get()), (whole(), 7), "field {field}");
    }
}

/// It ended in between: it is not there, and not missed. One that moves all the time is counted as unread.
#[test]
fn ended_or_restless() {
    assert_eq!(read(&Moving::new(G.atomicstatus, vec![4, 6])), (0, 0, vec![]));
    let restless = Moving::new(G.sched_pc, (0x101..0x1000).collect());
    let (total, unread, groups) = read(&restless);
    assert_eq!((total, unread, groups), (1, 1, vec![]));
    let copied = Moving::new(G.atomicstatus, vec![4, 8]);
    assert_eq!(read(&copied), (1, 1, vec![]), "its stack is being moved and never gets anywhere");
}

/// Its thread was interrupted while it changed it: it holds still after a pause, unless there is no time for one.
#[test]
fn held_still_later() {
    let interrupted = || {
        let memory = Moving::new(G.atomicstatus, vec![]);
        memory.bytes.borrow_mut()[G.atomicstatus as usize] = 8;
        memory
    };
    let paused = Cell::new(Duration::ZERO);
    let goes_on_after = |memory: &Moving, after: Duration, until_ns: u64| {
        paused.set(Duration::ZERO);
        read_with(memory, until_ns, &|pause| {
            paused.set(paused.get() + pause);
            if paused.get() >= after {
                memory.bytes.borrow_mut()[G.atomicstatus as usize] = 4;
            }
        })
    };
    let sum = |pauses: &[Duration]| pauses.iter().sum::<Duration>();
    assert_eq!(goes_on_after(&interrupted(), PAUSES[0], u64::MAX), whole());
    assert_eq!(paused.get(), PAUSES[0], "one was enough");
    assert_eq!(goes_on_after(&interrupted(), sum(&PAUSES), u64::MAX), whole());
    let never = Duration::MAX;
    assert_eq!(goes_on_after(&interrupted(), never, u64::MAX), (1, 1, vec![]), "it is counted once");
    assert_eq!(paused.get(), sum(&PAUSES), "pauses have an end");
    assert_eq!(goes_on_after(&interrupted(), PAUSES[0], 4_000_000), (1, 1, vec![]));
    assert_eq!(paused.get(), Duration::ZERO, "no pause goes beyond the time there is");
}
