//! A decision → an installed toolchain: packages by apt, bpf-linker by cargo into the cache.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::decide::{BPF_LINKER, Choice, Decision, Linker};
use super::facts::llvm_version;
use super::toolchain::{Compiler, Toolchain};
use crate::progress::step;
use crate::{apt, cmd, paths};

/// Installs what the decision lacks and returns the finished toolchain.
///
/// # Errors
/// When a package or bpf-linker cannot be installed; the message holds the command.
pub(crate) fn apply(decision: &Decision) -> Result<Toolchain> {
    apt::install(&decision.packages)?;
    let compiler = compiler(&decision.compiler)?;
    let linker = match &decision.linker {
        Linker::Existing(path) => path.clone(),
        Linker::Build { llvm } => {
            ensure_readable(&compiler, *llvm)?;
            build_linker(*llvm)?
        }
    };
    Toolchain::new(compiler, linker)
}

fn compiler(choice: &Choice) -> Result<Compiler> {
    match choice {
        Choice::Rustup { toolchain } => {
            let sysroot =
                cmd::output(Command::new("rustup").args(["run", toolchain, "rustc", "--print", "sysroot"]))?;
            let rustc = Path::new(sysroot.trim()).join("bin/rustc");
            Ok(Compiler::Rustup { toolchain: toolchain.clone(), rustc })
        }
        Choice::Distro { suffix, clippy } => {
            let program = |name: &str| PathBuf::from(format!("/usr/bin/{name}{suffix}"));
            let clippy = clippy.then(|| program("clippy-driver")).filter(|path| path.is_file());
            Ok(Compiler::Distro { rustc: program("rustc"), cargo: program("cargo"), clippy })
        }
    }
}

/// The decision rests on what apt says; the installed compiler has the last word.
fn ensure_readable(compiler: &Compiler, linker_llvm: u32) -> Result<()> {
    let Compiler::Distro { rustc, .. } = compiler else { return Ok(()) };
    let verbose = cmd::output(Command::new(rustc).arg("-vV"))?;
    let llvm =
        llvm_version(&verbose).with_context(|| format!("{} names no LLVM version", rustc.display()))?;
    ensure!(
        llvm <= linker_llvm,
        "{} writes LLVM {llvm}, bpf-linker would read LLVM {linker_llvm}: run `apt-get install llvm-{llvm}-dev libpolly-{llvm}-dev`",
        rustc.display()
    );
    Ok(())
}

/// Builds bpf-linker into the cache, beside its place and then renamed, so that an interrupted build is never used.
fn build_linker(llvm: u32) -> Result<PathBuf> {
    let _lock = paths::Lock::take("bpf-linker")?;
    let home = paths::cache()?.join(format!("bpf-linker-{BPF_LINKER}"));
    let linker = home.join("bin/bpf-linker");
    if works(&linker) {
        return Ok(linker);
    }
    step("setup", &format!("building bpf-linker {BPF_LINKER} for LLVM {llvm} (about a minute)"));
    let half = home.with_extension("half");
    remove(&half)?;
    let log = paths::target().join("setup-logs/bpf-linker.log");
    cmd::run_logged(&mut install_command(llvm, &half), &log)?;
    remove(&home)?;
    fs::rename(&half, &home).with_context(|| format!("cannot move bpf-linker to {}", home.display()))?;
    ensure!(
        works(&linker),
        "{} does not run: remove its directory and run `cargo xtask setup`",
        linker.display()
    );
    Ok(linker)
}

fn install_command(llvm: u32, root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .env_remove("CARGO_TARGET_DIR")
        .env_remove("RUSTFLAGS")
        .env("LLVM_PREFIX", format!("/usr/lib/llvm-{llvm}"))
        .args(["install", "bpf-linker", "--version", BPF_LINKER, "--locked", "--no-default-features"])
        .args(["--features", &format!("llvm-{llvm}"), "--root"])
        .arg(root);
    command
}

/// It runs: its LLVM library is there as well.
fn works(linker: &Path) -> bool {
    linker.is_file() && cmd::output(Command::new(linker).arg("--version")).is_ok()
}

fn remove(dir: &Path) -> Result<()> {
    if dir.exists() {
        fs::remove_dir_all(dir).with_context(|| format!("cannot remove {}", dir.display()))?;
    }
    Ok(())
}
