//! Hostile HTTP on Docker's socket: request lines and status lines, cut anywhere. Run it with `cargo xtask fuzz docker`.

#![no_main]

#[path = "../../tests/integration/wire_kit/docker.rs"]
mod torture;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let _read = torture::run(input);
});
