//! Hostile executables: ELF headers, function table, moduledata, build info and code.
//!
//! The first byte of the input chooses a made-up executable and the rest is damage to it, as (offset, byte) triples or
//! (offset, word) groups of ten; so the fuzzer starts behind the first checks. From 0xf0 on the rest is a whole file.
//! Run it with `cargo +nightly fuzz run elf --fuzz-dir tests/fuzz -- -rss_limit_mb=512 -malloc_limit_mb=256`.

#![no_main]

#[path = "../../tests/target_kit/forge.rs"]
mod forge;

use libfuzzer_sys::fuzz_target;
use plegtrace::target::{GoBinary, Pattern};

fuzz_target!(|input: &[u8]| {
    let Some((choice, rest)) = input.split_first() else { return };
    let bytes = match choice {
        0xf0.. => rest.to_vec(),
        choice => damaged(usize::from(*choice), rest),
    };
    let Ok(binary) = GoBinary::from_bytes(bytes) else { return };
    let wanted = ["main.main", "runtime.*", "*"].map(Pattern::new);
    for function in binary.resolve(&wanted) {
        let sites = binary.ret_sites(&function).unwrap_or_default();
        for site in sites.iter().chain(&binary.start_site(&function).ok()) {
            let end = function.entry_vaddr + function.size;
            assert!((function.entry_vaddr..end).contains(&site.vaddr), "a site lies in its function");
            binary.verify(site).expect("the bytes are those of the file");
        }
        let _name = binary.function_at(function.entry_vaddr).expect("an entry is inside a function").name;
    }
});

fn damaged(choice: usize, mut damage: &[u8]) -> Vec<u8> {
    let mut bytes = forge::KINDS[choice % forge::KINDS.len()].build();
    // Odd choices damage words, even ones bytes.
    let width = if choice / forge::KINDS.len() % 2 == 0 { 1 } else { 8 };
    while damage.len() >= 2 + width {
        let at = usize::from(u16::from_le_bytes([damage[0], damage[1]])) % (bytes.len() - 8);
        bytes[at..at + width].copy_from_slice(&damage[2..2 + width]);
        damage = &damage[2 + width..];
    }
    bytes
}
