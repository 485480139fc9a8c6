//! Hostile ttrpc: frames and names, cut into writes anywhere. See `wire_kit/ttrpc.rs` for what an input means. Run it
//! with `cargo xtask fuzz ttrpc`.

#![no_main]

#[path = "../../tests/integration/wire_kit/ttrpc.rs"]
mod torture;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let _read = torture::run(input);
});
