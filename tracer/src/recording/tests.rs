//! Recordings that are whole, cut, damaged, forged; disks that are full and readers that are not there.

use std::{
    fs::{self, File, OpenOptions},
    io,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

use plegtrace_common::{header::RecHeader, kind::RecKind};
use zerocopy::IntoBytes;

use super::{
    block::{BLOCK_HEADER, BlockHeader, FILE_HEADER, FileHeader, Kind},
    *,
};
use crate::input::{Fact, Frame, Start, Stop, StopWhy, TargetGone, frame_fact};

/// A record that tells its number.
fn record(number: u64) -> Frame {
    let how = format!("gone {number}");
    frame_fact(
        number,
        &Fact::TargetGone(TargetGone { component: crate::input::Component::Shim, pid: 1, how }),
    )
}

/// `blocks` blocks of `each` records, with an end.
fn file(blocks: u64, each: u64) -> Vec<u8> {
    let mut encoder = Encoder::new();
    let mut bytes = Encoder::header();
    for block in 0..blocks {
        for number in 0..each {
            assert_eq!(encoder.push(&record(block * each + number).bytes), None);
        }
        bytes.extend(encoder.block().unwrap());
    }
    bytes.extend(encoder.end());
    bytes
}

/// The numbers of the records that can be read, and what cannot.
fn read(bytes: &[u8]) -> Result<(Vec<u64>, Damage), RecordingError> {
    let mut recording = Recording::open(bytes)?;
    let mut numbers = Vec::new();
    while recording.next_block(&mut |frame| {
        assert_eq!(frame.bytes, record(frame.header.ts_ns).bytes, "a record is whole or not there");
        numbers.push(frame.header.ts_ns);
    }) {}
    Ok((numbers, recording.damage().clone()))
}

fn upto(end: u64) -> Vec<u64> {
    (0..end).collect()
}

/// Everything comes back, in order, and nothing is wrong.
#[test]
fn round_trip() {
    for (blocks, each) in [(1, 1), (3, 7), (20, 200)] {
        let (numbers, damage) = read(&file(blocks, each)).unwrap();
        assert_eq!((numbers, damage), (upto(blocks * each), Damage::default()));
    }
}

/// Blocks close by themselves, and one record may be longer than a block.
#[test]
fn blocks_are_closed() {
    let long = Fact::Start(Start { node: "n".repeat(1 << 20), ..Start::default() });
    let long = frame_fact(1, &long);
    let mut encoder = Encoder::new();
    let mut bytes = Encoder::header();
    for _ in 0..3 {
        bytes.extend(encoder.push(&record(0).bytes).unwrap_or_default());
        bytes.extend(encoder.push(&long.bytes).unwrap_or_default());
    }
    bytes.extend(encoder.block().unwrap());
    bytes.extend(encoder.end());
    let mut recording = Recording::open(bytes.as_slice()).unwrap();
    let (mut blocks, mut lengths) = (0, Vec::new());
    while recording.next_block(&mut |frame| lengths.push(frame.bytes.len())) {
        blocks += 1;
    }
    assert_eq!(blocks, 6);
    assert_eq!(lengths, [record(0).bytes.len(), long.bytes.len()].repeat(3));
    assert_eq!(*recording.damage(), Damage::default());
}

/// Wherever a file is cut: what was there before is there, the cut is told, and it is never taken for whole.
#[test]
fn cut_anywhere() {
    let (blocks, each) = (4, 3);
    let whole = file(blocks, each);
    for length in 0..whole.len() {
        match read(&whole[..length]) {
            Err(error) => {
                assert!(matches!(error, RecordingError::Foreign), "{error}");
                assert!(length < FILE_HEADER, "at {length}");
            }
            Ok((numbers, damage)) => {
                assert!(damage.cut && (numbers.len() as u64).is_multiple_of(each), "at {length}: {damage:?}");
                assert_eq!(numbers, upto(numbers.len() as u64), "at {length}");
                assert_eq!(damage.beheaded, numbers.is_empty());
                assert!(!damage.losses().is_empty() && !damage.sentences().is_empty());
            }
        }
    }
    let end = whole.len() - file(0, 0).len() + FILE_HEADER;
    assert_eq!(read(&whole[..end]).unwrap().0, upto(blocks * each), "all but the end");
}

/// Whatever bit is wrong costs one block at most, and the number of records it cost is known.
#[test]
fn flipped_bits() {
    let (blocks, each) = (3, 2);
    let whole = file(blocks, each);
    for bit in 0..whole.len() * 8 {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let (numbers, damage) = read(&bytes).unwrap_or_else(|error| panic!("bit {bit}: {error}"));
        assert!(damage.places == 1 || damage.cut, "bit {bit}: {damage:?}");
        let lost = blocks * each - numbers.len() as u64;
        assert!(lost == 0 || lost == each, "bit {bit}: {numbers:?}");
        assert_eq!(lost, damage.missing, "bit {bit}: {damage:?}");
        assert!(numbers.is_sorted());
    }
}

/// Bytes that are missing, or too many, cost the block they are in.
#[test]
fn shifted_bytes() {
    let (blocks, each) = (5, 3);
    let whole = file(blocks, each);
    for at in FILE_HEADER..whole.len() {
        for bytes in [
            [&whole[..at], &whole[at + 1..]].concat(),
            [&whole[..at], b"PL".as_slice(), &whole[at..]].concat(),
        ] {
            let (numbers, damage) = read(&bytes).unwrap();
            let lost = blocks * each - numbers.len() as u64;
            assert!(lost <= each && damage.missing == lost, "at {at}: {numbers:?} {damage:?}");
        }
    }
}

/// A piece from the middle of a recording gives its blocks, and says what it is.
#[test]
fn a_piece_without_its_beginning() {
    let whole = file(5, 3);
    let (numbers, damage) = read(&whole[FILE_HEADER + 10..]).unwrap();
    assert_eq!(numbers, (3..15).collect::<Vec<_>>());
    assert!(damage.beheaded && damage.missing == 3 && !damage.cut, "{damage:?}");
}

/// One recording behind another, or a block twice, does not repeat the stream.
#[test]
fn copies_are_left_out() {
    let whole = file(2, 3);
    let (numbers, damage) = read(&[whole.clone(), whole.clone()].concat()).unwrap();
    assert_eq!(numbers, upto(6));
    assert!(damage.trailing && damage.losses().is_empty() && !damage.sentences().is_empty());
    let end = file(0, 0).len() - FILE_HEADER;
    let doubled = [&whole[..whole.len() - end], &whole[FILE_HEADER..]].concat();
    let (numbers, damage) = read(&doubled).unwrap();
    assert_eq!((numbers, damage.places), (upto(6), 2));
}

/// What is no recording is refused, and so is what a later version has written.
#[test]
fn foreign_files() {
    let noise: Vec<u8> = (0..100_000_u64).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for bytes in [b"".as_slice(), b"x", b"#!/bin/sh\nexit 0\n# and a comment\n", &noise, &[0; 70_000]] {
        assert!(matches!(read(bytes), Err(RecordingError::Foreign)));
    }
    let mut later = file(1, 1);
    later[8] = 2;
    let crc = crc32fast::hash(&later[..12]);
    later[12..16].copy_from_slice(&crc.to_le_bytes());
    assert!(matches!(read(&later), Err(RecordingError::Newer { found: 2 })));
}

/// Facts of another version of the layouts are read; other records of it are counted.
#[test]
fn other_layouts() {
    let mut fact = record(0).bytes.to_vec();
    let mut call = RecHeader { ts_ns: 1, len: 24, kind: RecKind::Call as u16, abi: 999, tgid: 0, tid: 0 };
    fact[14..16].copy_from_slice(&999_u16.to_le_bytes());
    let mut encoder = Encoder::new();
    encoder.push(&fact);
    encoder.push(call.as_bytes());
    call.kind = 0x7777;
    encoder.push(call.as_bytes());
    let bytes = [Encoder::header(), encoder.block().unwrap(), encoder.end()].concat();
    let (numbers, damage) = read(&bytes).unwrap();
    assert_eq!((numbers, damage.foreign, damage.missing), (vec![0], 2, 0));
}

/// A block as a forger makes it: everything right but what he wants.
fn forged(first: u64, records: u32, raw_len: u32, raw: &[u8]) -> Vec<u8> {
    let mut stored = Vec::new();
    let mut packer = flate2::write::DeflateEncoder::new(&mut stored, flate2::Compression::best());
    io::Write::write_all(&mut packer, raw).unwrap();
    packer.finish().unwrap();
    [BlockHeader::new(Kind::Records, first, records, raw_len, &stored).as_bytes(), &stored].concat()
}

/// Lengths that lie: payloads that unpack to more than announced or to less, records that end behind their block.
#[test]
fn forged_lengths() {
    let zeros = vec![0; 20 << 20];
    let mut lying = record(0).bytes.to_vec();
    lying[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
    let short = record(0).bytes;
    let blocks = [
        forged(0, 1, 16 << 20, &zeros),
        forged(0, 1, 3, &zeros),
        forged(0, 1, 16 << 20, &short),
        forged(0, 1, lying.len() as u32, &lying),
        forged(0, u32::MAX, short.len() as u32, &short),
        forged(u64::MAX, u32::MAX, short.len() as u32, &short),
    ];
    for (number, block) in blocks.iter().enumerate() {
        let bytes = [Encoder::header(), block.clone()].concat();
        let mut recording = Recording::open(bytes.as_slice()).unwrap();
        while recording.next_block(&mut |_| {}) {}
        assert!(recording.damage().missing > 0 && recording.damage().cut, "block {number}");
    }
}

/// Reads slowly what it is given, and counts.
struct Counting<'a>(&'a [u8], &'a AtomicU64);

impl io::Read for Counting<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let length = to.len().min(self.0.len()).min(4096);
        to[..length].copy_from_slice(&self.0[..length]);
        self.0 = &self.0[length..];
        self.1.fetch_add(length as u64, Ordering::Relaxed);
        Ok(length)
    }
}

/// Thousands of overlapping blocks whose payloads are wrong are passed over in the time of a few.
#[test]
fn forged_overlaps() {
    let header = BlockHeader::new(Kind::Records, 0, 1, 16 << 20, &vec![0; 16 << 20]);
    let bytes = [Encoder::header(), header.as_bytes().repeat((20 << 20) / BLOCK_HEADER)].concat();
    let read = AtomicU64::new(0);
    let mut recording = Recording::open(Counting(&bytes, &read)).unwrap();
    assert!(!recording.next_block(&mut |_| {}));
    assert!(recording.damage().cut && recording.patience_left() < 64 << 20);
    assert_eq!(read.into_inner(), bytes.len() as u64);
}

/// Reading errors end a recording, and are told.
#[test]
fn reading_errors() {
    struct Broken<'a>(&'a [u8]);
    impl io::Read for Broken<'_> {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() {
                return Err(io::Error::from_raw_os_error(libc::EIO));
            }
            self.0.read(to)
        }
    }
    let whole = file(3, 3);
    let mut recording = Recording::open(Broken(&whole[..whole.len() - 60])).unwrap();
    let mut count = 0;
    while recording.next_block(&mut |_| count += 1) {}
    assert_eq!(count, 6);
    assert!(recording.damage().cut && recording.damage().unread.is_some(), "{:?}", recording.damage());
    assert!(matches!(Recording::open(Broken(b"")), Err(RecordingError::Read(_))));
}

/// A recorder's file, once it has ended as told.
fn recorded(frames: &[Frame], max: u64, whole: bool) -> (Option<Vec<u8>>, Result<Recorded, RecordError>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r");
    let recorder = Recorder::start(Destination::create(&path, false).unwrap(), max).unwrap();
    frames.iter().for_each(|frame| recorder.push(frame));
    let result = if whole { recorder.finish() } else { Err(RecordError::Hangs(0)) };
    if !whole {
        recorder.abandon();
    }
    (fs::read(&path).ok(), result)
}

/// The thread writes what it was given, and the end.
#[test]
fn recorders_write() {
    let frames: Vec<Frame> = upto(5000).into_iter().map(record).collect();
    let (bytes, result) = recorded(&frames, 1 << 20, true);
    let (bytes, result) = (bytes.unwrap(), result.unwrap());
    assert_eq!(result, Recorded { bytes: bytes.len() as u64, records: 5000, left_out: 0, full: false });
    assert_eq!(read(&bytes).unwrap(), (upto(5000), Damage::default()));
}

/// Without an end nobody takes it for whole; without a record there is no file.
#[test]
fn recorders_that_are_given_up() {
    let (bytes, _) = recorded(&[record(0)], 1 << 20, false);
    let (numbers, damage) = read(&bytes.unwrap()).unwrap();
    assert!(numbers == [0] && damage.cut);
    assert_eq!(recorded(&[], 1 << 20, false).0, None);
}

/// Records that cannot be packed well, 60 KiB each.
fn noise(count: usize) -> Vec<Frame> {
    let mut state = 1_u64;
    let mut letter = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        char::from(b' ' + (state >> 58) as u8)
    };
    let mut record = || {
        let node = (0..60_000).map(|_| letter()).collect();
        frame_fact(1, &Fact::Start(Start { node, ..Start::default() }))
    };
    (0..count).map(|_| record()).collect()
}

/// A file never gets longer than it may; what is missing is known, to the writer and to the reader.
#[test]
fn recorders_stop_at_the_limit() {
    let frames = noise(60);
    let (bytes, result) = recorded(&frames, 1 << 20, true);
    let (bytes, result) = (bytes.unwrap(), result.unwrap());
    assert!(bytes.len() <= 1 << 20 && bytes.len() > 1 << 19, "{}", bytes.len());
    assert!(result.full && result.left_out > 0, "{result:?}");
    let mut recording = Recording::open(bytes.as_slice()).unwrap();
    let mut count = 0;
    while recording.next_block(&mut |_| count += 1) {}
    assert_eq!(count, result.records);
    assert_eq!(count + recording.damage().left_out, 60);
    assert!(recording.damage().missing == 0 && !recording.damage().losses().is_empty());
}

/// A full disk is an error with its reason, and the recorder knows that it is over.
#[test]
fn full_disks() {
    let full = || Destination::Stdout(OpenOptions::new().write(true).open("/dev/full").unwrap());
    let Err(RecordError::Write(error)) = Recorder::start(full(), 1 << 20) else { panic!("it is full") };
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
}

/// A reader that goes away is an error, not a signal.
#[test]
fn broken_pipes() {
    let (reader, writer) = io::pipe().unwrap();
    let recorder =
        Recorder::start(Destination::Stdout(File::from(std::os::fd::OwnedFd::from(writer))), 1 << 20)
            .unwrap();
    drop(reader);
    recorder.push(&frame_fact(0, &Fact::Stop(Stop { why: StopWhy::Enough })));
    assert!(matches!(recorder.finish(), Err(RecordError::Write(_))));
    assert!(recorder.is_over());
}

/// A disk that hangs holds up nobody, and what waits for it is bounded. When it goes on, what did not fit is counted.
#[test]
fn disks_that_hang() {
    let (mut reader, writer) = io::pipe().unwrap();
    let target = Destination::Stdout(File::from(std::os::fd::OwnedFd::from(writer)));
    let recorder = Recorder::start(target, 1 << 30).unwrap();
    let some = noise(20);
    let pushed = 400;
    // Nobody reads: 24 MB, of which a pipe takes 64 KiB.
    some.iter().cycle().take(pushed).for_each(|frame| recorder.push(frame));
    let hangs = recorder.wait(true, Duration::from_millis(50));
    assert!(matches!(hangs, Err(RecordError::Hangs(0))), "{hangs:?}");
    let rest = thread::spawn(move || {
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut reader, &mut bytes).map(|_| bytes)
    });
    let recorded = recorder.wait(true, Duration::from_secs(60)).unwrap();
    drop(recorder);
    let bytes = rest.join().unwrap().unwrap();
    assert!(recorded.left_out > 100 && recorded.records > 50, "{recorded:?}");
    let mut recording = Recording::open(bytes.as_slice()).unwrap();
    let mut count = 0;
    while recording.next_block(&mut |_| count += 1) {}
    assert_eq!((count, recording.damage().left_out), (recorded.records, recorded.left_out));
    assert_eq!((count + recorded.left_out, recording.damage().missing), (pushed as u64, 0));
}

/// Headers say which version wrote them.
#[test]
fn headers_have_versions() {
    let header = FileHeader::read(&Encoder::header()).unwrap();
    assert_eq!((header.format.get(), header.abi.get()), (1, plegtrace_common::ABI_VERSION));
}
