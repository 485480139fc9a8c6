//! `cargo xtask fuzz TARGET`: runs one fuzz target of `tests/fuzz` for a time. Without a cargo-fuzz on the
//! PATH, one is built into the cache.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use clap::Args;

use crate::build::host_cargo;
use crate::progress::step;
use crate::{cmd, paths};

/// The release of cargo-fuzz we build.
const CARGO_FUZZ: &str = "0.13.1";

/// Options of `cargo xtask fuzz`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The target; without one, the targets are listed
    target: Option<String>,
    /// How long
    #[arg(long, default_value_t = 600, value_name = "SECONDS")]
    seconds: u64,
}

/// Fuzzes.
///
/// # Errors
/// When an input is found that crashes the target; it is kept in `tests/fuzz/artifacts`.
pub(crate) fn run(options: &Options) -> Result<()> {
    let dir = paths::workspace().join("tests/fuzz");
    let Some(target) = &options.target else {
        return list(&dir.join("Cargo.toml"));
    };
    let mut command = Command::new(cargo_fuzz()?);
    command
        .current_dir(&dir)
        .env_remove("CARGO_TARGET_DIR")
        // Sanitizers are options of nightly compilers.
        .env("RUSTC_BOOTSTRAP", "1")
        .args(["fuzz", "run", "--fuzz-dir", ".", target, "--"])
        .args([
            format!("-max_total_time={}", options.seconds),
            "-rss_limit_mb=2048".to_owned(),
            // Inputs may be long from the start: a single record is longer than what it would begin with.
            "-len_control=0".to_owned(),
            "-timeout=10".to_owned(),
        ]);
    step("fuzz", &format!("{target} for {} s", options.seconds));
    cmd::run(&mut command)
}

fn list(manifest: &std::path::Path) -> Result<()> {
    let text = fs::read_to_string(manifest).with_context(|| format!("cannot read {}", manifest.display()))?;
    // In a manifest of fuzz targets, each [[bin]] is one.
    let mut bins = text.split("[[bin]]");
    bins.next();
    let names = bins.filter_map(|bin| bin.lines().find_map(|line| line.strip_prefix("name = ")));
    names.for_each(|name| println!("{}", name.trim_matches('"')));
    Ok(())
}

fn cargo_fuzz() -> Result<PathBuf> {
    if let Some(program) = cmd::which("cargo-fuzz") {
        return Ok(program);
    }
    let _lock = paths::Lock::take("cargo-fuzz")?;
    let home = paths::cache()?.join(format!("cargo-fuzz-{CARGO_FUZZ}"));
    let program = home.join("bin/cargo-fuzz");
    if program.is_file() {
        return Ok(program);
    }
    if cmd::which("c++").is_none() {
        bail!("fuzzing needs a C++ compiler: run `apt-get install g++`");
    }
    step("fuzz", &format!("building cargo-fuzz {CARGO_FUZZ}"));
    let mut command = host_cargo();
    command
        .env_remove("CARGO_TARGET_DIR")
        .args(["install", "cargo-fuzz", "--version", CARGO_FUZZ, "--locked", "--root"])
        .arg(&home);
    cmd::run_logged(&mut command, &paths::target().join("setup-logs/cargo-fuzz.log"))?;
    Ok(program)
}
