//! Embeds the eBPF object named by `PLEGTRACE_BPF_OBJECT`; without it an empty one, which says so when it is run.
//!
//! `cargo xtask build` makes the object and sets the variable, so that plain `cargo check` needs no BPF toolchain.

use std::{env, fs, path::PathBuf};

const VARIABLE: &str = "PLEGTRACE_BPF_OBJECT";

fn main() {
    println!("cargo::rerun-if-env-changed={VARIABLE}");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("plegtrace.bpf.o");
    match env::var_os(VARIABLE).map(PathBuf::from) {
        Some(object) => {
            println!("cargo::rerun-if-changed={}", object.display());
            if let Err(e) = fs::copy(&object, &out) {
                println!("cargo::error={VARIABLE}={}: {e}; run: cargo xtask build", object.display());
            }
        }
        None => fs::write(&out, []).expect("OUT_DIR is writable"),
    }
}
