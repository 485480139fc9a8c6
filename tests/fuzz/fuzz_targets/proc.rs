//! Hostile texts of /proc: every parser of the census. Run it with `cargo xtask fuzz proc`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    plegtrace::census::text::all(&String::from_utf8_lossy(input));
});
