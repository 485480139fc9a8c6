//! Hostile executables: ELF headers, function table, moduledata, build info and code. See `torture.rs` for what an
//! input means. Run it with `cargo xtask fuzz elf`.

#![no_main]

#[path = "../../tests/integration/target_kit/forge.rs"]
mod forge;
#[path = "../../tests/integration/target_kit/torture.rs"]
mod torture;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let _understood = torture::run(input);
});
