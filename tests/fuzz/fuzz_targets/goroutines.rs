//! Hostile memory of a Go process, damaged while it is read. See `torture.rs` for what an input means. Run it with
//! `cargo xtask fuzz goroutines`.

#![no_main]

#[path = "../../tests/integration/goroutine_kit/torture.rs"]
mod torture;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let _picture = torture::run(input);
});
