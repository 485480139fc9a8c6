//! The command itself, and [`bpf`], which other commands call for the toolchain.

use anyhow::Result;
use clap::Args;

use super::toolchain::Toolchain;
use super::{apply, decide, facts, vm_tools};
use crate::paths::Lock;
use crate::progress::step;
use crate::{apt, cmd};

/// Options of `cargo xtask setup`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Look at the machine again even if the toolchain of the last time is still there
    #[arg(long)]
    force: bool,
    /// Leave out the programs of the VM lab (QEMU, mmdebstrap)
    #[arg(long)]
    no_vm: bool,
}

/// Sets everything up.
///
/// # Errors
/// When something cannot be installed; one line names the command that fixes it.
pub(crate) fn run(options: &Options) -> Result<()> {
    if options.force {
        find(true)?;
    }
    let toolchain = bpf()?;
    step("setup", &format!("eBPF: {} with {}", toolchain.compiler, toolchain.linker.display()));
    if !options.no_vm {
        vm_tools()?;
        step("setup", "VM lab: QEMU, mmdebstrap and mke2fs are here");
    }
    Ok(())
}

/// The eBPF toolchain; installed on first use.
///
/// # Errors
/// As [`run`].
pub(crate) fn bpf() -> Result<Toolchain> {
    match Toolchain::remembered() {
        Some(toolchain) => Ok(toolchain),
        None => find(false),
    }
}

fn find(again: bool) -> Result<Toolchain> {
    let _lock = Lock::take("setup")?;
    // Somebody else may have finished while we waited for the lock.
    if let Some(toolchain) = Toolchain::remembered().filter(|_| !again) {
        return Ok(toolchain);
    }
    step("setup", "looking for an eBPF toolchain");
    let toolchain = apply::apply(&decision()?)?;
    toolchain.remember()?;
    Ok(toolchain)
}

/// A fresh machine may have no package lists at all, or old ones: nothing suitable is said only after an update.
fn decision() -> Result<decide::Decision> {
    let found = facts::collect()?;
    match decide::decide(&found) {
        Err(_) if found.apt && (cmd::is_root() || cmd::which("sudo").is_some()) => {
            apt::update()?;
            decide::decide(&facts::collect()?)
        }
        other => other,
    }
}
