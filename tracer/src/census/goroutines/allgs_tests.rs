//! Lists in our own memory.

use super::*;
use crate::census::memory::ProcessMemory;
use crate::target::GOffsets;

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

type Words = [u64; 24];

/// A waiting goroutine.
fn g(goid: u64) -> Words {
    let mut words = [0; 24];
    (words[0], words[1]) = (0xc000_1000, 0xc000_3000);
    (words[7], words[8]) = (0xc000_2000, 0x40_1000);
    (words[18], words[19]) = (4, goid);
    words
}

/// Is a list of these entries one of goroutines, when the slice says (length, capacity)?
fn judged(gs: &[Words], slice: (u64, u64), change: impl FnOnce(&mut Vec<u64>)) -> bool {
    let me = ProcessMemory { pid: std::process::id() };
    let mut entries: Vec<u64> = gs.iter().map(|g| g.as_ptr() as u64).collect();
    change(&mut entries);
    let header = [entries.as_ptr() as u64, slice.0, slice.1];
    is_list(&me, &G, header.as_ptr() as u64).unwrap()
}

/// A sound list, also with dead and running ones in it.
#[test]
fn sound_lists() {
    let mut gs = [g(1), g(2), g(3), g(4)];
    assert!(judged(&gs, (4, 4), |_| {}));
    assert!(judged(&gs, (2, 4), |_| {}));
    gs[1] = [0; 24];
    gs[1][18] = 6;
    gs[2][18] = 0x1000 | 2;
    assert!(judged(&gs, (4, 1024), |_| {}));
}

/// One thing wrong, and it is none.
#[test]
fn unsound_lists() {
    let gs = [g(1), g(2), g(3), g(4)];
    assert!(!judged(&gs, (0, 4), |_| {}), "empty");
    assert!(!judged(&gs, (4, 3), |_| {}), "longer than it has room");
    assert!(!judged(&gs, (4, 1 << 27), |_| {}), "too large");
    assert!(!judged(&gs, (4, 4), |entries| entries[2] = 0), "a null pointer");
    assert!(!judged(&gs, (4, 4), |entries| entries[2] += 4), "not aligned");
    assert!(!judged(&gs, (4, 4), |entries| entries[2] = entries[1]), "twice the same");
    assert!(!judged(&gs, (4, 4), |entries| entries[2] = 8), "not readable");
    let with = |at: usize, value: u64| {
        let mut gs = gs;
        gs[3][at] = value;
        judged(&gs, (4, 4), |_| {})
    };
    assert!(!with(0, 0xc000_3000), "empty stack");
    assert!(!with(1, 0xc000_3001), "odd stack");
    assert!(!with(7, 0xc000_4000), "waits outside of its stack");
    assert!(!with(18, 12) && !with(18, 0x2004) && !with(18, 5), "no such state");
    assert!(!with(19, 0) && !with(19, 2) && !with(19, 1 << 50), "impossible id");
    let mut dead = [g(1), g(2)];
    (dead[0][18], dead[1][18]) = (6, 6);
    assert!(!judged(&dead, (2, 2), |_| {}), "nobody lives");
}

/// No more entries than asked for are read; the others are counted.
#[test]
fn long_lists() {
    let me = ProcessMemory { pid: std::process::id() };
    let entries: Vec<u64> = (0..1000).map(|n| 8 * n).collect();
    let header = [entries.as_ptr() as u64, 1000, 1024];
    let list = read(&me, header.as_ptr() as u64, 10).unwrap().unwrap();
    assert_eq!((list.entries.as_slice(), list.left_out), (&entries[..10], 990));
    assert!(read(&me, 8, 10).unwrap().is_none());
}
