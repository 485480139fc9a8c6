//! Hostile D-Bus: preambles, headers and fields, cut anywhere. See `wire_kit/dbus.rs` for what an input means. Run it
//! with `cargo xtask fuzz dbus`.

#![no_main]

#[path = "../../tests/integration/wire_kit/dbus.rs"]
mod torture;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let _read = torture::run(input);
});
