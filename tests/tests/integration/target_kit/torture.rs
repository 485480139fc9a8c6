//! One input of the fuzzer → one made-up, damaged executable → every question the tracer asks of an executable.
//!
//! The first byte chooses the executable of [`forge`](super::forge); the rest is damage to it, as offset (two bytes)
//! and replacement (one byte, or eight when the choice says so). From 0xf0 on the rest is a whole file.

use plegtrace::target::{GoBinary, Pattern};

use super::forge::KINDS;

/// Analyses the input; true when it was understood as a Go executable. Panics on a broken promise.
pub(crate) fn run(input: &[u8]) -> bool {
    let Some((choice, rest)) = input.split_first() else { return false };
    let bytes = match choice {
        0xf0.. => rest.to_vec(),
        choice => damaged(usize::from(*choice), rest),
    };
    let Ok(binary) = GoBinary::from_bytes(bytes) else { return false };
    let (file, kept) = (binary.file(), binary.kept());
    let wanted = ["main.main", "runtime.*", "*"].map(Pattern::new);
    for function in binary.resolve(&wanted) {
        let sites = binary.ret_sites(&function).unwrap_or_default();
        for site in sites.iter().chain(&binary.start_site(&function).ok()) {
            let end = function.entry_vaddr + function.size;
            assert!((function.entry_vaddr..end).contains(&site.vaddr), "a site lies in its function");
            file.verify(&site.check()).expect("the bytes are those of the file");
        }
        if function.size > 0 {
            let found = binary.function_at(function.entry_vaddr).expect("an entry is inside a function");
            assert_eq!(found.entry, function.entry_vaddr);
            let last = function.entry_vaddr + function.size - 1;
            for at in [function.entry_vaddr, last] {
                assert!(binary.stack_depth_at(at).is_none_or(|depth| depth.is_multiple_of(8)));
                assert_eq!(kept.index_at(at), binary.function_index_at(at));
                assert_eq!(kept.stack_depth_at(at), binary.stack_depth_at(at));
                let name = kept.index_at(at).and_then(|index| kept.name(index));
                assert!(name.is_none_or(|name| name.len() <= 2048));
            }
            assert!(binary.data_references(&function.name).len() <= 256);
        }
    }
    true
}

fn damaged(choice: usize, mut damage: &[u8]) -> Vec<u8> {
    let mut bytes = KINDS[choice % KINDS.len()].build();
    let width = if (choice / KINDS.len()).is_multiple_of(2) { 1 } else { 8 };
    while damage.len() >= 2 + width {
        let at = usize::from(u16::from_le_bytes([damage[0], damage[1]])) % (bytes.len() - 8);
        bytes[at..at + width].copy_from_slice(&damage[2..2 + width]);
        damage = &damage[2 + width..];
    }
    bytes
}
