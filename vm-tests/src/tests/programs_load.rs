//! The kernel's verifier accepts every program in every mode that the kernel must have.

use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use plegtrace::kernel::{AttachMode, Kernel};

use super::socket_backends;
use crate::machine;

/// Uprobes found by address.
///
/// # Errors
/// When a map or program is refused, with what the verifier said.
pub fn address() -> Result<String> {
    load(AttachMode::PerfAddress)
}

/// Uprobes with cookies.
///
/// # Errors
/// As [`address`].
pub fn cookie() -> Result<String> {
    load(AttachMode::PerfCookie)
}

/// Uprobes for uprobe_multi.
///
/// # Errors
/// As [`address`].
pub fn multi() -> Result<String> {
    load(AttachMode::Multi)
}

fn load(mode: AttachMode) -> Result<String> {
    let options = machine::load_options(mode)?;
    let began = Instant::now();
    let kernel = Kernel::load(&options).with_context(|| format!("cannot load for {}", mode.name()))?;
    if let Some(why) = kernel.wire_refused() {
        bail!("the programs of family wire are refused: {why}");
    }
    let (probes, expected) = (kernel.wire_probes(), socket_backends::expected()?);
    ensure!(probes == Some(expected), "the programs of family wire are on {probes:?}, not {expected:?}");
    let took = began.elapsed();
    // What was loaded also counts: the maps can be read.
    let reasons = kernel.reasons()?;
    Ok(format!("{} in {} ms, {} reasons counted", mode.name(), took.as_millis(), reasons.len()))
}
