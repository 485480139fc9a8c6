//! Every layout of the function table and of moduledata, in made-up executables: the ones that no archived toolchain
//! writes any more (Go 1.13, 1.14, 1.16 to 1.18, 1.20), arm64, and contradictions that must be refused.

use crate::target_kit::forge::{BASE, ETEXT, Forge, KINDS, MAIN, MODULEDATA, STACKCHECK, TEXT, TWIN};
use crate::target_kit::torture;
use plegtrace::target::{GSource, GoBinary, Machine, Price};

fn open(bytes: &[u8]) -> Result<GoBinary, String> {
    GoBinary::from_bytes(bytes.to_vec()).map_err(|why| why.to_string())
}

/// The bytes of this kind with a word replaced.
fn with_word(kind: &Forge, vaddr: u64, value: u64) -> Vec<u8> {
    let mut bytes = kind.build();
    let at = (vaddr - BASE) as usize;
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    bytes
}

fn kind(version: &str) -> &'static Forge {
    KINDS.iter().find(|kind| kind.go_version.starts_with(version)).expect("listed")
}

/// Functions, text base and sites of every kind.
#[test]
fn every_layout_is_understood() {
    for kind in &KINDS {
        let binary = open(&kind.build()).unwrap_or_else(|why| panic!("{kind:?}: {why}"));
        assert_eq!(binary.text(), TEXT..ETEXT, "{kind:?}");
        assert_eq!(binary.moduledata(), MODULEDATA, "{kind:?}");
        assert_eq!(binary.start_code_offset(), BASE);
        assert_eq!(binary.machine() == Machine::Aarch64, kind.arm64);
        let functions: Vec<_> = binary.functions().map(|f| (f.name, f.entry, f.size)).collect();
        let want = [("main.main", MAIN, 64), ("runtime.stackcheck", STACKCHECK, 64), ("main.main", TWIN, 32)];
        assert_eq!(functions, want, "{kind:?}");
        // The larger twin wins.
        let found = binary.find_suffix("main.main");
        assert_eq!(found.iter().map(|f| f.entry_vaddr).collect::<Vec<_>>(), [MAIN], "{kind:?}");
        let start = binary.start_site(&found[0]).expect("start");
        let returns = binary.ret_sites(&found[0]).expect("returns");
        assert_eq!((start.price, returns.len()), (Price::Emulated, 1), "{kind:?}");
        assert_eq!(start.file_offset, start.vaddr - BASE);
        assert_eq!(binary.function_at(MAIN + 63).map(|f| f.entry), Some(MAIN));
        assert_eq!(binary.function_at(ETEXT).map(|f| f.entry), None);
        assert_eq!(binary.function_at(TEXT - 1).map(|f| f.entry), None);
    }
}

/// Where g is: in a register, in RCX at the stack check, in thread-local storage at the returns of the old ABI.
#[test]
fn goroutine_sources() {
    for (version, start, ret) in [
        ("go1.13", GSource::Rcx, GSource::Tls(-8)),
        ("go1.14", GSource::Register, GSource::Register),
        ("go1.16", GSource::Rcx, GSource::Tls(-8)),
        ("go1.17", GSource::Register, GSource::Register),
        ("go1.18.1 X:noregabi", GSource::Rcx, GSource::Tls(-8)),
        ("go1.27", GSource::Register, GSource::Register),
    ] {
        let binary = open(&kind(version).build()).expect("understood");
        let main = &binary.find_suffix("main.main")[0];
        assert_eq!(binary.start_site(main).expect("start").g_source, start, "{version}");
        assert_eq!(binary.ret_sites(main).expect("returns")[0].g_source, ret, "{version}");
    }
}

/// A text base that cannot be is refused, whatever else is right.
#[test]
fn contradictions_are_refused() {
    let new = kind("go1.26");
    let text = MODULEDATA + 176;
    let why = |bytes: Vec<u8>| open(&bytes).expect_err("refused");
    let outside = "moduledata is inconsistent: its text is not inside an executable segment";
    assert_eq!(why(with_word(new, text, MODULEDATA)), outside);
    assert_eq!(why(with_word(new, text, ETEXT)), outside);
    let elsewhere = "moduledata is inconsistent: its functions are not those of the function table";
    assert_eq!(why(with_word(new, text, TEXT - 0x100)), elsewhere);
    assert_eq!(why(with_word(new, text - 8, ETEXT - 4)), elsewhere);
    assert_eq!(
        why(with_word(new, text - 16, TEXT - 4)),
        "moduledata is inconsistent: its functions are not inside its text"
    );
    assert_eq!(
        why(with_word(kind("go1.18"), text, TEXT - 16)),
        "moduledata is inconsistent: its text is not where the function table says"
    );
    assert_eq!(
        why(with_word(new, MODULEDATA, 0)),
        "no moduledata points to the function table, so the text base is unknown"
    );
    assert_eq!(
        why(with_word(new, MODULEDATA + 104, 0)),
        "moduledata is inconsistent: it does not belong to the function table"
    );
}

/// Versions outside the tables, and a version that contradicts the table, are refused.
#[test]
fn versions_are_checked() {
    let with = |go_version, magic| Forge { go_version, magic, ..*kind("go1.26") }.build();
    let why = |bytes: Vec<u8>| open(&bytes).expect_err("refused");
    assert_eq!(
        why(with("go1.28", kind("go1.26").magic)),
        "unsupported Go version go1.28 (supported: 1.13 to 1.27)"
    );
    assert_eq!(why(with("weird", kind("go1.26").magic)), "Go version is unknown: no usable build info");
    assert_eq!(
        why(with("go1.19", kind("go1.26").magic)),
        "Go version go1.19 does not write function tables of magic 0xfffffff1"
    );
    let stripped_info = with_word(kind("go1.26"), BASE + 0x2200, 0);
    assert_eq!(why(stripped_info), "Go version is unknown: no usable build info");
}

/// Repeatable noise in the places where headers, tables and code are; the fuzzer continues where this ends.
#[test]
fn damage_never_panics() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_be_bytes()
    };
    // Headers, code, moduledata and build info, function table, relocations.
    let places = [(0u16, 0x100u16), (0x1100, 0xa0), (0x2000, 0x300), (0x2400, 0x280), (0x2c00, 0x230)];
    let (mut understood, rounds) = (0, 6000);
    for _ in 0..rounds {
        let [choice, count, ..] = next();
        let mut input = vec![choice % 0xf0];
        let width = if (usize::from(input[0]) / KINDS.len()).is_multiple_of(2) { 1 } else { 8 };
        for _ in 0..=count % 4 {
            let noise = next();
            let (start, len) = places[usize::from(noise[0]) % places.len()];
            let at = start + u16::from_be_bytes([noise[1], noise[2]]) % len;
            input.extend_from_slice(&at.to_le_bytes());
            let word = if noise[3] & 1 == 0 { next() } else { [0xff; 8] };
            input.extend_from_slice(&word[..width]);
        }
        understood += usize::from(torture::run(&input));
    }
    assert!(understood > rounds / 10 && understood < rounds * 9 / 10, "{understood} of {rounds}");
}
