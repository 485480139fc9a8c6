//! Hostile recordings: their blocks, their records, and all that the pipeline and the renderers make of them. An input is
//! a file as it is, or, so that checksums do not keep everything out, records that are put into a sound one. Run it with
//! `cargo xtask fuzz recording`.

#![no_main]

use plegtrace::{
    recording::Encoder,
    render::{json, text},
    session,
};

/// Records in a sound file, each as long as it says.
fn sound(input: &[u8]) -> Vec<u8> {
    let mut encoder = Encoder::new();
    let mut file = Encoder::header();
    let mut rest = input;
    while !rest.is_empty() {
        let length = rest.get(8..12).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes);
        let (record, behind) = rest.split_at((length as usize).clamp(24, 1 << 16).min(rest.len()));
        file.extend(encoder.push(record).unwrap_or_default());
        rest = behind;
    }
    file.extend(encoder.block().unwrap_or_default());
    file.extend(encoder.end());
    file
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Some((first, rest)) = input.split_first() else { return };
    let file = if first % 2 == 0 { rest.to_vec() } else { sound(rest) };
    let Ok(replayed) = session::replay(file.as_slice()) else { return };
    let options = text::TextOptions { verbose: true, ..text::TextOptions::default() };
    text::report(&replayed.snapshot, &options, &mut std::io::sink()).expect("a sink takes all");
    json::report(&replayed.snapshot, &mut std::io::sink()).expect("a sink takes all");
    let _ = replayed.damage.sentences();
});
