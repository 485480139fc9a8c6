//! What the tests of `plegtrace::target` share: binutils as an independent witness, and the wanted functions.

pub(crate) mod forge;
pub(crate) mod torture;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use plegtrace::target::{GoBinary, Match, Pattern, Price};
use plegtrace_lab::{host, packages};

/// `tests/golden/target`.
pub(crate) fn golden_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/target")
}

/// A package tree, or `None` with a counted line when it has left the archive.
pub(crate) fn available<T>(what: &str, result: anyhow::Result<T>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) if packages::Error::is_gone(&error) => {
            host::declare_skip(what, &error);
            None
        }
        Err(error) => panic!("cannot get {what}: {error:#}"),
    }
}

/// Standard output of a program that must succeed.
pub(crate) fn output(command: &mut Command) -> String {
    let output = command.env("LC_ALL", "C").output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Address → mnemonic of one function, by objdump.
pub(crate) fn disassembly(path: &Path, function: &Match) -> BTreeMap<u64, String> {
    host::ensure(&["binutils"]).expect("binutils");
    let (start, stop) = (function.entry_vaddr, function.entry_vaddr + function.size);
    let mut objdump = Command::new("objdump");
    objdump.args(["-d", "--no-show-raw-insn", "-M", "intel"]);
    objdump.arg(format!("--start-address={start:#x}")).arg(format!("--stop-address={stop:#x}")).arg(path);
    let text = output(&mut objdump);
    let lines = text.lines().filter_map(|line| line.trim_start().split_once(":\t"));
    lines
        .filter_map(|(address, rest)| {
            let mnemonic = rest.split_whitespace().next().unwrap_or("").to_owned();
            Some((u64::from_str_radix(address, 16).ok()?, mnemonic))
        })
        .collect()
}

/// Sites of the function agree with objdump: same returns, the start on an instruction of the right kind.
pub(crate) fn check_against_objdump(path: &Path, binary: &GoBinary, function: &Match) {
    let name = &function.name;
    let theirs = disassembly(path, function);
    assert!(!theirs.is_empty(), "{name}: objdump found no code in {}", path.display());
    let want: BTreeSet<u64> =
        theirs.iter().filter(|(_, mnemonic)| mnemonic.starts_with("ret")).map(|(at, _)| *at).collect();
    let sites = binary.ret_sites(function).unwrap_or_else(|why| panic!("{name}: {why}"));
    let ours: BTreeSet<u64> = sites.iter().map(|site| site.vaddr).collect();
    assert_eq!(ours, want, "returns of {name} in {}", path.display());
    assert!(sites.iter().all(|site| site.bytes == [0xc3]), "{name}");
    let start = binary.start_site(function).unwrap_or_else(|why| panic!("{name}: {why}"));
    let mnemonic = theirs.get(&start.vaddr).unwrap_or_else(|| panic!("{name}: start inside an instruction"));
    if start.price == Price::Emulated {
        assert!(["jbe", "push"].contains(&mnemonic.as_str()), "{name}: start at {mnemonic}");
    }
    for site in sites.iter().chain([&start]) {
        binary.file().verify(&site.check()).unwrap_or_else(|why| panic!("{name}: {why}"));
        assert_eq!(site.ip_minus_start_code + binary.start_code_offset(), site.vaddr, "{name}");
    }
}

/// Function symbols of an unstripped binary: name → addresses, by nm.
pub(crate) fn symbols(path: &Path) -> BTreeMap<String, BTreeSet<u64>> {
    let mut found: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
    for line in output(Command::new("nm").arg(path)).lines() {
        let mut fields = line.splitn(3, ' ');
        if let (Some(address), Some(_kind), Some(name)) = (fields.next(), fields.next(), fields.next())
            && let Ok(address) = u64::from_str_radix(address, 16)
        {
            found.entry(name.to_owned()).or_default().insert(address);
        }
    }
    found
}

/// Resolves patterns; each of them must be found.
pub(crate) fn resolve_all(binary: &GoBinary, wanted: &[&str]) -> Vec<Match> {
    // Alternatives of one row, as names changed between versions, are separated by a bar.
    let rows: Vec<(usize, Pattern)> = wanted
        .iter()
        .enumerate()
        .flat_map(|(row, names)| names.split('|').map(move |name| (row, Pattern::new(name))))
        .collect();
    let patterns: Vec<Pattern> = rows.iter().map(|(_, pattern)| pattern.clone()).collect();
    let mut matches = binary.resolve(&patterns);
    for found in &mut matches {
        found.pattern = rows[found.pattern].0;
    }
    matches.sort_by(|a, b| a.name.cmp(&b.name));
    matches.dedup_by(|a, b| a.name == b.name);
    for (row, name) in wanted.iter().enumerate() {
        assert!(matches.iter().any(|found| found.pattern == row), "no function {name}");
    }
    matches
}
