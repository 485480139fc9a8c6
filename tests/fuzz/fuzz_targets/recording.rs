//! Hostile recordings: their blocks, their records, and all that the pipeline and the renderers make of them. An input is
//! a file as it is; or, so that checksums do not keep everything out, records that are put into a sound one; or a list of
//! changes to the records of a real recording, so that they reach what only a whole stall does. Run it with
//! `cargo xtask fuzz recording`.

#![no_main]

use std::{io, sync::LazyLock};

use plegtrace::{
    commands,
    diagnose::diagnose,
    recording::{Encoder, Recording},
    render::{json, text},
};

/// Real stalls, one of each kind that there is a golden of.
const GOLDENS: [&[u8]; 6] = [
    include_bytes!("../../golden/recordings/cni.plegtrace"),
    include_bytes!("../../golden/recordings/containerd-stopped.plegtrace"),
    include_bytes!("../../golden/recordings/hook.plegtrace"),
    include_bytes!("../../golden/recordings/kubelet-stopped.plegtrace"),
    include_bytes!("../../golden/recordings/lock-hostage.plegtrace"),
    include_bytes!("../../golden/recordings/shim-stopped.plegtrace"),
];

/// Their records.
static RECORDS: LazyLock<Vec<Vec<Vec<u8>>>> = LazyLock::new(|| {
    let records = |file: &[u8]| {
        let mut records = Vec::new();
        let mut recording = Recording::open(file).expect("a golden is a recording");
        while recording.next_block(&mut |frame| records.push(frame.bytes.to_vec())) {}
        records
    };
    GOLDENS.into_iter().map(records).collect()
});

/// Bytes of one change: what to do, which record, where in it, what with.
const CHANGE: usize = 8;

/// Records in a sound file, each as long as it says.
fn sound(input: &[u8]) -> Vec<u8> {
    let mut records = Vec::new();
    let mut rest = input;
    while !rest.is_empty() {
        let length = rest.get(8..12).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes);
        let (record, behind) = rest.split_at((length as usize).clamp(24, 1 << 16).min(rest.len()));
        records.push(record.to_vec());
        rest = behind;
    }
    file_of(&records)
}

fn file_of(records: &[Vec<u8>]) -> Vec<u8> {
    let mut encoder = Encoder::new();
    let mut file = Encoder::header();
    for record in records {
        file.extend(encoder.push(record).unwrap_or_default());
    }
    file.extend(encoder.block().unwrap_or_default());
    file.extend(encoder.end());
    file
}

/// A golden after some changes.
fn changed(input: &[u8]) -> Vec<u8> {
    let Some((golden, changes)) = input.split_first() else { return Vec::new() };
    let mut records = RECORDS[*golden as usize % RECORDS.len()].clone();
    for change in changes.chunks_exact(CHANGE) {
        apply(&mut records, change.try_into().expect("as long as a change"));
    }
    file_of(&records)
}

fn apply(records: &mut Vec<Vec<u8>>, [what, number, page, at, v0, v1, v2, v3]: [u8; CHANGE]) {
    if records.is_empty() {
        return;
    }
    let index = (usize::from(page) << 8 | usize::from(number)) % records.len();
    let other = (usize::from(v1) << 8 | usize::from(v0)) % records.len();
    let record = &mut records[index];
    let from = usize::from(at) % record.len().max(1);
    match what % 7 {
        0 => record[from..].iter_mut().zip([v0]).for_each(|(byte, value)| *byte = value),
        1 => record[from..].iter_mut().zip([v0, v1, v2, v3]).for_each(|(byte, value)| *byte = value),
        2 => record[from..].iter_mut().take(8).for_each(|byte| *byte = v0),
        3 => drop(records.remove(index)),
        4 => records.insert(other, records[index].clone()),
        5 => records.swap(index, other),
        // Cut, and honest about its length.
        _ => {
            record.truncate(from.max(24));
            let length = u32::try_from(record.len()).unwrap_or(u32::MAX).to_le_bytes();
            record.iter_mut().skip(8).zip(length).for_each(|(byte, value)| *byte = value);
        }
    }
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Some((first, rest)) = input.split_first() else { return };
    let file = match first % 4 {
        0 => rest.to_vec(),
        1 => sound(rest),
        _ => changed(rest),
    };
    let Ok(replayed) = commands::replay(file.as_slice()) else { return };
    let options = text::TextOptions { verbose: true, ..text::TextOptions::default() };
    let diagnosis = diagnose(&replayed.snapshot);
    text::report(&replayed.snapshot, &diagnosis, &options, &mut io::sink()).expect("a sink takes all");
    json::report(&replayed.snapshot, &diagnosis, &mut io::sink()).expect("a sink takes all");
    let _ = replayed.damage.sentences();
});
