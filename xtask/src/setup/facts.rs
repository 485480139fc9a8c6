//! Looks at the machine: rustup toolchains, a linker on the PATH, and what apt offers.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::decide::{Facts, Nightly, Pair};
use crate::{apt, cmd};

/// Collects what [`super::decide::decide`] needs to know.
///
/// # Errors
/// When apt is there but cannot be asked.
pub(crate) fn collect() -> Result<Facts> {
    let mut facts = Facts {
        nightlies: nightlies(),
        linker_on_path: cmd::which("bpf-linker"),
        apt: apt::present(),
        ..Facts::default()
    };
    if facts.apt {
        facts.pairs = pairs()?;
        facts.llvm_dev = llvm_dev()?;
    }
    Ok(facts)
}

fn nightlies() -> Vec<Nightly> {
    let Ok(list) = cmd::output(Command::new("rustup").args(["toolchain", "list"])) else { return Vec::new() };
    let names = list.lines().filter_map(|line| line.split_whitespace().next());
    names.filter(|name| name.starts_with("nightly")).filter_map(nightly).collect()
}

fn nightly(name: &str) -> Option<Nightly> {
    let rustc =
        |argument: &[&str]| cmd::output(Command::new("rustup").args(["run", name, "rustc"]).args(argument));
    let sysroot = rustc(&["--print", "sysroot"]).ok()?;
    let llvm = llvm_version(&rustc(&["-vV"]).ok()?)?;
    let has_rust_src =
        Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library/core/src/lib.rs").exists();
    Some(Nightly { name: name.to_owned(), has_rust_src, llvm })
}

/// The major version of LLVM in the output of `rustc -vV`.
pub(crate) fn llvm_version(verbose: &str) -> Option<u32> {
    let line = verbose.lines().find_map(|line| line.strip_prefix("LLVM version: "))?;
    line.split('.').next()?.parse().ok()
}

fn pairs() -> Result<Vec<Pair>> {
    let compilers: Vec<String> = apt::names("rustc")?.into_iter().filter(|name| is_compiler(name)).collect();
    let mut pairs = Vec::new();
    for rustc in compilers {
        let [cargo, src, clippy] = companions(&rustc);
        let versions = apt::candidates(&[rustc.clone(), cargo.clone(), src.clone(), clippy.clone()])?;
        let complete = versions.contains_key(&cargo) && versions.contains_key(&src);
        let version = versions.get(&rustc).and_then(|text| language_version(text));
        let (true, Some(version)) = (complete, version) else { continue };
        let Some(llvm) = apt::llvm_of(&rustc)? else { continue };
        let clippy = Some(clippy).filter(|name| versions.contains_key(name));
        pairs.push(Pair { rustc, cargo, src, clippy, version, llvm });
    }
    Ok(pairs)
}

/// `rustc`, `rustc-web` (Debian's up-to-date one for browsers) and `rustc-1.93` (Ubuntu) are compilers, `rustc-doc`
/// is not.
fn is_compiler(name: &str) -> bool {
    match name.strip_prefix("rustc") {
        Some("" | "-web") => true,
        Some(rest) => rest.starts_with("-1.") && rest[3..].bytes().all(|b| b.is_ascii_digit()),
        None => false,
    }
}

/// Packages of cargo, the library sources and clippy that belong to a compiler's package.
fn companions(rustc: &str) -> [String; 3] {
    let suffix = rustc.strip_prefix("rustc").unwrap_or_default();
    [format!("cargo{suffix}"), format!("rust{suffix}-src"), format!("rust{suffix}-clippy")]
}

fn language_version(package_version: &str) -> Option<(u32, u32)> {
    let mut numbers = package_version.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn llvm_dev() -> Result<std::collections::BTreeMap<u32, String>> {
    let number = |name: &str| name.strip_prefix("llvm-")?.strip_suffix("-dev")?.parse::<u32>().ok();
    let names: Vec<String> = apt::names("llvm-")?.into_iter().filter(|name| number(name).is_some()).collect();
    let found = apt::candidates(&names)?;
    Ok(found.into_iter().filter_map(|(name, version)| Some((number(&name)?, version))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compilers are told apart from what merely begins with the same letters.
    #[test]
    fn compilers_are_recognised() {
        let yes = ["rustc", "rustc-web", "rustc-1.93"];
        let no = ["rustc-doc", "rustc-1.93-doc", "rustcat"];
        assert!(yes.iter().all(|name| is_compiler(name)));
        assert!(!no.iter().any(|name| is_compiler(name)));
    }

    /// The other packages are named after the compiler's.
    #[test]
    fn companions_follow_the_compiler() {
        assert_eq!(companions("rustc"), ["cargo", "rust-src", "rust-clippy"]);
        assert_eq!(companions("rustc-web"), ["cargo-web", "rust-web-src", "rust-web-clippy"]);
        assert_eq!(companions("rustc-1.93"), ["cargo-1.93", "rust-1.93-src", "rust-1.93-clippy"]);
    }

    /// Versions are read from what dpkg and rustc print.
    #[test]
    fn versions_are_read() {
        assert_eq!(language_version("1.96.0+dfsg1-1~deb12u2"), Some((1, 96)));
        assert_eq!(language_version("x"), None);
        assert_eq!(llvm_version("rustc 1.96.0\nLLVM version: 22.1.8\n"), Some(22));
    }
}
