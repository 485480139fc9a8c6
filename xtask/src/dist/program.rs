//! The program as it is shipped: without symbols, and only if it runs without anything else.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use object::elf;
use object::read::elf::{FileHeader as _, ProgramHeader as _};

use crate::{cmd, paths};

/// Strips a copy of `program` and returns it.
///
/// # Errors
/// When it is of another version, needs a loader, has no eBPF programs, or cannot be stripped.
pub(crate) fn stripped(program: &Path, version: &str) -> Result<Vec<u8>> {
    let said = cmd::output(Command::new(program).arg("--version"))?;
    ensure!(
        said.split_whitespace().nth(1) == Some(version),
        "{} is {}, not plegtrace {version}",
        program.display(),
        said.trim()
    );
    let Some(strip) = cmd::which("strip") else { bail!("no `strip`: apt-get install binutils") };
    let copy = paths::target().join("dist-plegtrace");
    cmd::run(Command::new(strip).arg("--strip-all").arg("-o").arg(&copy).arg(program))?;
    let bytes = fs::read(&copy).with_context(|| format!("cannot read {}", copy.display()))?;
    fs::remove_file(&copy).with_context(|| format!("cannot remove {}", copy.display()))?;
    let faults = faults(&bytes)?;
    ensure!(faults.is_empty(), "{} cannot be shipped: {}", program.display(), faults.join(", "));
    Ok(bytes)
}

/// The commit that the program says it was built of; `None` when it names none.
///
/// # Errors
/// When it cannot be run.
pub(crate) fn commit(program: &Path) -> Result<Option<String>> {
    let said = cmd::output(Command::new(program).arg("--version"))?;
    Ok(named(&said).map(str::to_owned))
}

fn named(said: &str) -> Option<&str> {
    let commit = said.lines().find_map(|line| line.strip_prefix("commit "))?.trim();
    Some(commit).filter(|commit| *commit != "unknown")
}

/// What forbids shipping these bytes.
fn faults(program: &[u8]) -> Result<Vec<&'static str>> {
    let header = elf::FileHeader64::<object::LittleEndian>::parse(program).context("no 64-bit ELF file")?;
    let endian = header.endian()?;
    let loader = header
        .program_headers(endian, program)?
        .iter()
        .any(|segment| segment.p_type(endian) == elf::PT_INTERP);
    let mut faults = Vec::new();
    if header.e_machine(endian) != elf::EM_X86_64 {
        faults.push("it is not for x86-64");
    }
    if loader {
        faults.push("it is not static (cargo xtask build --release makes it so)");
    }
    if !embeds_ebpf(program) {
        faults.push("it has no eBPF programs (cargo xtask build embeds them)");
    }
    Ok(faults)
}

/// Is there an ELF file for the machine eBPF inside?
fn embeds_ebpf(program: &[u8]) -> bool {
    /// Offset of the machine in the header of an ELF file.
    const MACHINE: usize = 18;
    memchr::memmem::find_iter(program, b"\x7fELF\x02\x01\x01")
        .any(|at| program.get(at + MACHINE..at + MACHINE + 2) == Some(&elf::EM_BPF.to_le_bytes()[..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF header with one program header of this type.
    fn elf_of(machine: u16, segment: u32) -> Vec<u8> {
        let mut file = vec![0; 120];
        file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        file[18..20].copy_from_slice(&machine.to_le_bytes());
        file[20] = 1;
        file[32] = 64; // e_phoff
        file[52] = 64; // e_ehsize
        file[54] = 56; // e_phentsize
        file[56] = 1; // e_phnum
        file[64..68].copy_from_slice(&segment.to_le_bytes());
        file
    }

    /// A program names its commit, or none.
    #[test]
    fn a_program_names_its_commit() {
        assert_eq!(named("plegtrace 1.2.3\ncommit       c0ffee+\nABI version  3\n"), Some("c0ffee+"));
        assert_eq!(named("plegtrace 1.2.3\ncommit       unknown\n"), None);
        assert_eq!(named("plegtrace 1.2.3\n"), None);
    }

    /// A static program with eBPF programs inside is fine; one that needs a loader, or has none, is not.
    #[test]
    fn only_what_runs_alone_is_shipped() {
        let with_ebpf = |mut program: Vec<u8>| {
            program.extend(elf_of(elf::EM_BPF, elf::PT_NULL));
            program
        };
        let fine = with_ebpf(elf_of(elf::EM_X86_64, elf::PT_LOAD));
        assert_eq!(faults(&fine).unwrap(), [""; 0]);
        let dynamic = with_ebpf(elf_of(elf::EM_X86_64, elf::PT_INTERP));
        assert_eq!(faults(&dynamic).unwrap(), ["it is not static (cargo xtask build --release makes it so)"]);
        let bare = elf_of(elf::EM_X86_64, elf::PT_LOAD);
        assert_eq!(faults(&bare).unwrap(), ["it has no eBPF programs (cargo xtask build embeds them)"]);
        let other = with_ebpf(elf_of(elf::EM_AARCH64, elf::PT_LOAD));
        assert_eq!(faults(&other).unwrap(), ["it is not for x86-64"]);
        assert!(faults(b"#!/bin/sh").is_err());
    }
}
