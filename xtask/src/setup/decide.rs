//! Facts about the machine → which compiler and which LLVM, and what is to be installed for them. Pure.
//!
//! The rule that governs everything: bpf-linker reads the bitcode that rustc wrote, so its LLVM must be the same
//! or newer. bpf-linker 0.13.0 can be built for LLVM 21 to 23 (its Cargo features).

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Result, bail};

/// The release of bpf-linker we build when there is none.
pub(crate) const BPF_LINKER: &str = "0.13.0";

/// The LLVM versions that release has a Cargo feature for, in the order we would take them.
const LINKER_LLVM: [u32; 3] = [21, 22, 23];

/// The oldest Rust that compiles our programs (`rust-version` of the workspace).
const OLDEST_RUST: (u32, u32) = (1, 88);

/// What `facts` found out.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    /// rustup toolchains named nightly.
    pub(crate) nightlies: Vec<Nightly>,
    /// A bpf-linker on the PATH; trusted to match whatever compiler its owner uses.
    pub(crate) linker_on_path: Option<PathBuf>,
    /// Pairs of compiler and library sources that apt can give, installed or not.
    pub(crate) pairs: Vec<Pair>,
    /// Candidate version of each `llvm-N-dev`, by N.
    pub(crate) llvm_dev: BTreeMap<u32, String>,
    /// Whether there is a package manager that we can drive at all.
    pub(crate) apt: bool,
}

/// A rustup toolchain that could build the eBPF programs.
#[derive(Debug, Clone)]
pub(crate) struct Nightly {
    pub(crate) name: String,
    pub(crate) has_rust_src: bool,
    pub(crate) llvm: u32,
}

/// A distribution's compiler with its library sources.
#[derive(Debug, Clone)]
pub(crate) struct Pair {
    /// Package of the compiler, such as `rustc-web`.
    pub(crate) rustc: String,
    pub(crate) cargo: String,
    pub(crate) src: String,
    /// Package of clippy, where there is one.
    pub(crate) clippy: Option<String>,
    /// Version of the language, from the package's version.
    pub(crate) version: (u32, u32),
    /// The LLVM that the compiler's library depends on.
    pub(crate) llvm: u32,
}

/// What is to be used, and what has to be installed for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) compiler: Choice,
    pub(crate) linker: Linker,
    /// Packages that must be there, installed already or not.
    pub(crate) packages: Vec<String>,
}

/// The compiler that was chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Choice {
    Rustup {
        toolchain: String,
    },
    /// Suffix of the programs in /usr/bin: empty, or `-1.93` for versioned packages.
    Distro {
        suffix: String,
        clippy: bool,
    },
}

/// The linker that was chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Linker {
    Existing(PathBuf),
    Build { llvm: u32 },
}

/// Chooses the toolchain.
///
/// # Errors
/// When no combination works; the message says what to do.
pub(crate) fn decide(facts: &Facts) -> Result<Decision> {
    rustup(facts).or_else(|| distro(facts)).map_or_else(|| bail!("{}", advice(facts)), Ok)
}

fn rustup(facts: &Facts) -> Option<Decision> {
    let nightly = facts.nightlies.iter().find(|n| n.has_rust_src)?;
    let (linker, packages) = match &facts.linker_on_path {
        Some(path) => (Linker::Existing(path.clone()), Vec::new()),
        None => {
            let llvm = matching_llvm(facts, nightly.llvm)?;
            (Linker::Build { llvm }, llvm_packages(llvm))
        }
    };
    Some(Decision { compiler: Choice::Rustup { toolchain: nightly.name.clone() }, linker, packages })
}

fn distro(facts: &Facts) -> Option<Decision> {
    let mut pairs: Vec<&Pair> = facts.pairs.iter().filter(|p| p.version >= OLDEST_RUST).collect();
    pairs.sort_by_key(|p| std::cmp::Reverse(p.version));
    pairs.into_iter().find_map(|pair| {
        let llvm = matching_llvm(facts, pair.llvm)?;
        let mut packages = vec![pair.rustc.clone(), pair.cargo.clone(), pair.src.clone()];
        packages.extend(pair.clippy.clone());
        packages.extend(llvm_packages(llvm));
        let suffix = program_suffix(&pair.rustc);
        Some(Decision {
            compiler: Choice::Distro { suffix, clippy: pair.clippy.is_some() },
            linker: Linker::Build { llvm },
            packages,
        })
    })
}

/// The smallest LLVM that can read what `needed` writes, that apt has and that bpf-linker can be built for.
fn matching_llvm(facts: &Facts, needed: u32) -> Option<u32> {
    LINKER_LLVM.into_iter().find(|v| *v >= needed && facts.llvm_dev.contains_key(v))
}

/// What bpf-linker links against, found out by building it: polly, zstd, zlib and the C++ library are not pulled in by
/// llvm-dev.
fn llvm_packages(llvm: u32) -> Vec<String> {
    vec![
        format!("llvm-{llvm}-dev"),
        format!("libpolly-{llvm}-dev"),
        "libzstd-dev".to_owned(),
        "zlib1g-dev".to_owned(),
        "g++".to_owned(),
    ]
}

/// `rustc-1.93` installs `/usr/bin/rustc-1.93`; `rustc` and `rustc-web` install `/usr/bin/rustc`.
fn program_suffix(package: &str) -> String {
    match package.strip_prefix("rustc-") {
        Some(version) if version.starts_with(|c: char| c.is_ascii_digit()) => format!("-{version}"),
        _ => String::new(),
    }
}

fn advice(facts: &Facts) -> String {
    let head = "no compiler for the eBPF programs";
    if facts.nightlies.iter().any(|n| !n.has_rust_src) && !facts.apt {
        return format!(
            "{head}: run `rustup component add rust-src --toolchain nightly && cargo install bpf-linker`"
        );
    }
    if !facts.apt {
        return format!(
            "{head}: run `rustup toolchain install nightly --component rust-src && cargo install bpf-linker`"
        );
    }
    let seen: Vec<String> = facts
        .pairs
        .iter()
        .map(|p| format!("{} {}.{} (LLVM {})", p.rustc, p.version.0, p.version.1, p.llvm))
        .collect();
    let seen = if seen.is_empty() { "none".to_owned() } else { seen.join(", ") };
    let (major, minor) = OLDEST_RUST;
    format!(
        "{head}: apt offers {seen}, needed is Rust {major}.{minor} or newer with an llvm-{}-dev to llvm-{}-dev to match; \
         run `rustup toolchain install nightly --component rust-src && cargo install bpf-linker`",
        LINKER_LLVM[0],
        LINKER_LLVM[LINKER_LLVM.len() - 1]
    )
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
