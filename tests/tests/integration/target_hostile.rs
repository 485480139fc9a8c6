//! Damaged and hostile executables: whatever the bytes, the analysis ends in a result or a reason, never in a panic,
//! and never allocates more than the file can justify.
//!
//! A real small Go program is cut at many lengths and has bytes flipped in the places that decide: headers, tables,
//! moduledata, build info, code. The seed of the damage is fixed, so a failure can be repeated.

use std::path::PathBuf;

use crate::allocations::largest;
use crate::target_kit::available;
use plegtrace::target::{GoBinary, Pattern, RefuseReason};
use plegtrace_lab::packages::{self, Suite};

const LARGEST_ALLOWED: usize = 128 << 20;

/// Analyses the bytes like the tracer would and asks for every kind of answer.
fn exercise(bytes: Vec<u8>) -> Result<usize, RefuseReason> {
    let binary = GoBinary::from_bytes(bytes)?;
    let wanted = ["main.main", "runtime.*", "os.(*File).*"].map(Pattern::new);
    let mut sites = 0;
    for function in binary.resolve(&wanted).iter().step_by(16) {
        sites += usize::from(binary.start_site(function).is_ok());
        sites += binary.ret_sites(function).map_or(0, |returns| returns.len());
    }
    Ok(sites)
}

/// The smallest Go programs of the archive: old layout (Go 1.15), new layout (Go 1.24).
fn victims() -> Vec<Vec<u8>> {
    let trees = [Suite::Bullseye, Suite::Trixie].map(|suite| {
        let tree = available(&format!("containerd of {suite}"), packages::containerd(suite))?;
        tree.path("usr/bin/containerd-shim").ok()
    });
    let paths: Vec<PathBuf> = trees.into_iter().flatten().collect();
    paths.iter().map(|path| std::fs::read(path).expect("readable")).collect()
}

/// xorshift64*: repeatable damage.
struct Noise(u64);

impl Noise {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % below
    }
}

/// Offsets of the places that decide: found by their magic in the undamaged file.
fn decisive_places(bytes: &[u8]) -> Vec<(usize, usize)> {
    let find = |needle: &[u8]| bytes.windows(needle.len()).position(|window| window == needle);
    let mut places = vec![(0, 64), (64, 800)];
    let magics: [&[u8]; 3] =
        [b"\xfb\xff\xff\xff\0\0\x01\x08", b"\xf1\xff\xff\xff\0\0\x01\x08", b"\xff Go buildinf:"];
    for at in magics.iter().filter_map(|magic| find(magic)) {
        places.push((at, 256));
        places.push((at, 64 << 10));
    }
    // Section headers are at the end of the file.
    places.push((bytes.len() - 3000, 3000));
    places
}

/// A file cut anywhere is refused or still understood.
#[test]
fn truncated_files() {
    for bytes in victims() {
        assert!(exercise(bytes.clone()).expect("undamaged") > 100);
        let mut refused = 0;
        for cut in (0..64).map(|step| bytes.len() * step / 64).chain(0..130) {
            refused += usize::from(exercise(bytes[..cut].to_vec()).is_err());
        }
        assert!(refused > 150, "{refused}");
    }
    assert!(largest() < LARGEST_ALLOWED);
}

/// Flipped bytes and planted extreme words where it hurts.
#[test]
fn damaged_files() {
    let extremes = [0u64, 1, u64::MAX, 1 << 63, 0x7fff_ffff_ffff_ffff, 0xffff_ffff, 0x4000_0000];
    for (seed, bytes) in victims().into_iter().enumerate() {
        let places = decisive_places(&bytes);
        assert!(places.len() >= 5, "magics are found");
        let mut noise = Noise(0x9e37_79b9_7f4a_7c15 + seed as u64);
        let mut refused = 0;
        for round in 0..250 {
            let mut damaged = bytes.clone();
            for _ in 0..=noise.next(4) {
                let (start, len) = places[noise.next(places.len())];
                let at = (start + noise.next(len)).min(damaged.len() - 8);
                if round % 2 == 0 {
                    damaged[at] ^= 1 << noise.next(8);
                } else {
                    let at = at & !7;
                    damaged[at..at + 8].copy_from_slice(&extremes[noise.next(extremes.len())].to_le_bytes());
                }
            }
            refused += usize::from(exercise(damaged).is_err());
        }
        assert!(refused > 10, "damage is noticed: {refused}");
    }
    assert!(largest() < LARGEST_ALLOWED);
}

/// Files that are no Go executables, each with its own sentence.
#[test]
fn reasons() {
    let why = |bytes: &[u8]| GoBinary::from_bytes(bytes.to_vec()).expect_err("refused").to_string();
    assert_eq!(why(b""), "not an ELF file");
    assert_eq!(why(b"#!/bin/sh\n"), "not an ELF file");
    assert_eq!(
        why(b"\x7fELF\x02\x01\x01"),
        "ELF file is truncated: the ELF header lies behind the end of the file"
    );
    let mut header = [0u8; 64];
    header[..6].copy_from_slice(b"\x7fELF\x01\x01");
    assert_eq!(why(&header), "not a 64-bit little-endian ELF executable");
    header[4] = 2;
    header[16] = 2;
    header[18] = 243;
    assert_eq!(why(&header), "machine type 243 is neither x86-64 nor arm64");
    header[18] = 62;
    header[54] = 56;
    assert_eq!(why(&header), "malformed ELF: no loadable segment");
    let shell = std::fs::read("/bin/sh").expect("a shell");
    assert_eq!(why(&shell), "not a Go binary");
    let missing = GoBinary::open("/nonexistent/kubelet".as_ref()).expect_err("no such file");
    assert_eq!(missing.to_string(), "cannot read the executable");
    assert_eq!(GoBinary::open("/proc".as_ref()).expect_err("directory").to_string(), "not a regular file");
}

/// A file that changes after it was analysed is noticed at its sites and in its identity.
#[test]
fn replaced_files() {
    let Some(bytes) = victims().pop() else { return };
    let dir = tempfile::tempdir().expect("scratch directory");
    let path = dir.path().join("shim");
    std::fs::write(&path, &bytes).expect("scratch file");
    let binary = GoBinary::open(&path).expect("a Go binary");
    assert!(binary.file().still_same(&path).unwrap());
    let main = &binary.find_suffix("main.main")[0];
    let site = binary.start_site(main).expect("main has a start");
    binary.file().verify(&site.check()).expect("unchanged");
    // Overwritten in place: same inode.
    let mut changed = bytes.clone();
    changed[usize::try_from(site.file_offset).expect("small")] ^= 0xff;
    std::fs::write(&path, &changed).expect("scratch file");
    assert!(binary.file().verify(&site.check()).is_err());
    assert!(!binary.file().still_same(&path).unwrap());
    // Replaced by rename, as package managers do.
    std::fs::write(dir.path().join("new"), &bytes).expect("scratch file");
    std::fs::rename(dir.path().join("new"), &path).expect("scratch file");
    assert!(!binary.file().still_same(&path).unwrap());
    // Cut short while it is open.
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("scratch file");
    let binary = GoBinary::open(&path).expect("a Go binary");
    file.set_len(4096).expect("scratch file");
    assert!(binary.file().verify(&site.check()).is_err() && binary.start_site(main).is_err());
}
