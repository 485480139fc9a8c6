//! One input of the fuzzer → the memory of a made-up process, damaged, also while it is read → all its goroutines.
//!
//! The memory holds a sound list of goroutines with sound stacks. The first byte chooses the layout; then each ten
//! bytes are a damage: offset (two bytes, in words), which reading it comes before (one byte), how the value is made
//! (one byte), value (six bytes).

use std::cell::{Cell, RefCell};

use plegtrace::census::goroutines::{
    Code, Cycles, Kind, Limits, MAX_FRAMES, Picture, Place, Places, Return, TakeError, take,
};
use plegtrace::census::{Memory, MemoryError, Piece};
use plegtrace::target::GOffsets;

/// Where the memory is, and how much.
const BASE: u64 = 0xc000_0000;
const SIZE: usize = 64 << 10;
/// Offsets of the parts.
const ENTRIES: u64 = 0x100;
const GS: u64 = 0x1000;
const G_SIZE: u64 = 0x200;
const REASONS: u64 = 0x4000;
const STACKS: u64 = 0x8000;
const STACK: u64 = 0x400;
const COUNT: u64 = 20;
/// Code is at these addresses: 256 bytes for each function.
const CODE: u64 = 0x40_0000;
const FUNCTIONS: u64 = 64;
/// Readings of memory that the reader may make: 6 attempts with 15 more blocks for each of 200 goroutines, and some.
const MAX_READS: usize = 40_000;
const LIMIT: usize = 200;

/// Reads the goroutines; true when there is a picture. Panics on a broken promise.
pub(crate) fn run(input: &[u8]) -> bool {
    let Some((choice, damage)) = input.split_first() else { return false };
    let g = offsets(choice & 3);
    let returns = if choice & 4 == 0 { Return::Pushed } else { Return::Link };
    let process = Process {
        bytes: RefCell::new(healthy(&g)),
        damage: damage.chunks_exact(10).map(Damage::parse).collect(),
        reads: Cell::new(0),
    };
    let now = Cell::new(0u64);
    let clock = || {
        now.set(now.get() + 1000);
        now.get()
    };
    let until_ns = if choice & 8 == 0 { u64::MAX } else { 30_000 };
    let limits = Limits { goroutines: LIMIT, groups: 10, text_bytes: 2000, until_ns, fingerprints: true };
    let lists = [vec![BASE, BASE + 8, 8], vec![BASE + 16, BASE + 0x80]];
    let reasons = [BASE + REASONS, BASE + REASONS + 8];
    let places = Places { lists: &lists, reasons: &reasons, methods: Some(&[]) };
    match take(&process, &mut Toy { returns }, &g, &places, Cycles::default(), &limits, &clock) {
        Ok(picture) => {
            check(&picture);
            true
        }
        Err(TakeError::NoList(_) | TakeError::AmbiguousList(_) | TakeError::Memory(_)) => false,
    }
}

/// What is promised of every picture.
fn check(picture: &Picture) {
    let counted: u32 = picture.groups.iter().map(|group| group.count).sum();
    assert!(picture.unread <= picture.total && counted <= picture.total - picture.unread, "{picture:?}");
    assert!(picture.groups_left_out > 0 || counted == picture.total - picture.unread, "{picture:?}");
    assert!(picture.groups.len() <= 10);
    assert!(picture.groups.is_sorted_by(|a, b| a.count >= b.count));
    for group in &picture.groups {
        assert!(group.frames.len() <= MAX_FRAMES && group.goids.len() <= 32);
        assert!(group.goids.is_sorted() && group.goids.len() == group.count.min(32) as usize);
        assert!(!group.frames.is_empty() || group.broken.is_some() || group.state != "running");
        assert!(group.wait_reason.as_ref().is_none_or(|words| words.is_ascii() && words.len() <= 64));
    }
}

/// Offsets in `runtime.g`: Go 1.13 to 1.22, 1.23 and 1.24, 1.25 and later.
fn offsets(choice: u8) -> GOffsets {
    let (sched_bp, atomicstatus) = match choice {
        0 | 1 => (104, 144),
        2 => (104, 152),
        _ => (96, 144),
    };
    GOffsets {
        stack_lo: 0,
        stack_hi: 8,
        m: 48,
        sched_sp: 56,
        sched_pc: 64,
        sched_bp,
        sched_lr: sched_bp - 8,
        syscallsp: sched_bp + 8,
        atomicstatus,
        goid: atomicstatus + 8,
        waitsince: atomicstatus + 24,
        waitreason: atomicstatus + 32,
    }
}

/// A process whose goroutines wait on stacks of some frames each.
fn healthy(g: &GOffsets) -> Vec<u8> {
    let mut bytes = vec![0; SIZE];
    let mut put = |at: u64, value: u64| {
        let at = usize::try_from(at).expect("inside");
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    };
    for (at, value) in [(0, BASE + ENTRIES), (8, COUNT), (16, COUNT + 12)] {
        put(at, value);
    }
    for n in 0..COUNT {
        let (own, lo) = (GS + n * G_SIZE, STACKS + n * STACK);
        put(ENTRIES + 8 * n, BASE + own);
        put(own, BASE + lo);
        put(own + 8, BASE + lo + STACK);
        put(own + u64::from(g.sched_sp), BASE + lo + 0x100);
        put(own + u64::from(g.sched_pc), CODE + 0x100 * (1 + n % 3));
        put(own + u64::from(g.atomicstatus), [4, 4, 3, 1, 6, 2, 9][usize::try_from(n % 7).expect("small")]);
        put(own + u64::from(g.goid), n + 1);
        put(own + u64::from(g.waitreason), n % 5);
        for word in 0..STACK / 8 {
            put(lo + 8 * word, CODE + 0x100 * ((word + n) % FUNCTIONS));
        }
    }
    let texts = REASONS + 0x1000;
    for (n, len) in [(1, 17), (2, 7), (3, 5)] {
        put(REASONS + 16 * n, BASE + texts + 32 * n);
        put(REASONS + 16 * n + 8, len);
    }
    let at = usize::try_from(texts).expect("inside");
    bytes[at + 32..at + 49].copy_from_slice(b"GC assist marking");
    bytes[at + 64..at + 71].copy_from_slice(b"IO wait");
    bytes[at + 96..at + 101].copy_from_slice(b"sleep");
    bytes
}

/// One change of the memory.
struct Damage {
    at: usize,
    before_read: u8,
    value: u64,
}

impl Damage {
    fn parse(bytes: &[u8]) -> Self {
        let at = usize::from(u16::from_le_bytes([bytes[0], bytes[1]])) * 8 % SIZE;
        let small = u64::from(u16::from_le_bytes([bytes[4], bytes[5]]));
        let value = match bytes[3] % 5 {
            0 => small & 0x1f,
            1 => BASE + small,
            2 => CODE + small,
            3 => u64::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7], bytes[8], bytes[9], 0, 0]),
            _ => u64::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7], bytes[8], bytes[9], 0xff, 0xff]),
        };
        Self { at, before_read: bytes[2], value }
    }
}

/// Memory that changes while it is read.
struct Process {
    bytes: RefCell<Vec<u8>>,
    damage: Vec<Damage>,
    reads: Cell<usize>,
}

impl Memory for Process {
    fn read(&self, pieces: &mut [Piece<'_>]) -> Result<(), MemoryError> {
        let nth = self.reads.get();
        assert!(nth < MAX_READS, "it does not end");
        self.reads.set(nth + 1);
        let mut bytes = self.bytes.borrow_mut();
        for damage in self.damage.iter().filter(|damage| usize::from(damage.before_read) == nth % 256) {
            bytes[damage.at..damage.at + 8].copy_from_slice(&damage.value.to_le_bytes());
        }
        if self.damage.len() > 3 && nth == 255 {
            return Err(MemoryError::Gone);
        }
        for piece in pieces {
            let from = piece.addr.checked_sub(BASE).and_then(|at| usize::try_from(at).ok());
            let there = from.and_then(|from| bytes.get(from..from.checked_add(piece.into.len())?));
            piece.whole = there.is_some();
            if let Some(there) = there {
                piece.into.copy_from_slice(there);
            }
        }
        Ok(())
    }
}

/// Functions of all kinds; the address says how deep the stack is.
struct Toy {
    returns: Return,
}

impl Code for Toy {
    fn place(&mut self, pc: u64) -> Option<Place> {
        let function = u32::try_from(pc.checked_sub(CODE)? >> 8).ok()?;
        let kind = match u64::from(function) {
            FUNCTIONS.. => return None,
            60 | 61 => Kind::Bottom,
            62 => Kind::Injected,
            63 => Kind::Switch,
            _ => Kind::Ordinary,
        };
        let depth = match function % 16 {
            15 => None,
            14 => Some(u32::MAX - 7),
            depth => Some(8 * depth),
        };
        Some(Place { function, depth, kind })
    }

    fn returns(&self) -> Return {
        self.returns
    }

    fn name(&self, function: u32) -> Option<&str> {
        (!function.is_multiple_of(7)).then_some("main.f")
    }

    fn keeps_argument(&self, _function: u32, _n: usize) -> bool {
        false
    }
}
