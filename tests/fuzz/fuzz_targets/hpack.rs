//! Hostile header blocks, one after the other on one table. See `torture.rs` for what an input means. Run it with
//! `cargo xtask fuzz hpack`.

#![no_main]

#[path = "../../tests/integration/wire_kit/torture.rs"]
mod torture;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    torture::blocks(input);
});
