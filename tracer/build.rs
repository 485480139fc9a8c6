//! Embeds the eBPF object named by `PLEGTRACE_BPF_OBJECT`; without it an empty one, which says so when it is run. Its
//! SHA-256 becomes `PLEGTRACE_BPF_SHA256` of the library, for `plegtrace --version`; empty without an object.
//!
//! `cargo xtask build` makes the object and sets the variable, so that plain `cargo check` needs no BPF toolchain.

use std::{env, fs, path::PathBuf};

use sha2::{Digest, Sha256};

const VARIABLE: &str = "PLEGTRACE_BPF_OBJECT";

fn main() {
    println!("cargo::rerun-if-env-changed={VARIABLE}");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("plegtrace.bpf.o");
    let bytes = match env::var_os(VARIABLE).map(PathBuf::from) {
        Some(object) => {
            println!("cargo::rerun-if-changed={}", object.display());
            fs::read(&object).unwrap_or_else(|e| {
                println!("cargo::error={VARIABLE}={}: {e}; run: cargo xtask build", object.display());
                Vec::new()
            })
        }
        None => Vec::new(),
    };
    fs::write(&out, &bytes).expect("OUT_DIR is writable");
    println!("cargo::rustc-env=PLEGTRACE_BPF_SHA256={}", sum(&bytes));
}

/// In hexadecimal digits; nothing has none.
fn sum(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return String::new();
    }
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
