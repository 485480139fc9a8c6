//! Hostile bytes on a connection: frames, header blocks, messages. See `torture.rs` for what an input means. Run it with
//! `cargo xtask fuzz wire`.

#![no_main]

#[path = "../../tests/integration/wire_kit/torture.rs"]
mod torture;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    torture::connection(input);
});
