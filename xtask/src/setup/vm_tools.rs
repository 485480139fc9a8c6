//! The programs of the VM lab, installed when a VM is wanted for the first time.

use anyhow::{Result, bail};

use crate::{apt, cmd};

/// Program and the Debian package that has it.
const PROGRAMS: [(&str, &str); 3] =
    [("qemu-system-x86_64", "qemu-system-x86"), ("mmdebstrap", "mmdebstrap"), ("mke2fs", "e2fsprogs")];

/// The archive's keys, without which images of other suites cannot be verified.
const KEYRING: (&str, &str) = ("/usr/share/keyrings/debian-archive-keyring.gpg", "debian-archive-keyring");

/// Makes sure that QEMU, mmdebstrap and mke2fs are there.
///
/// # Errors
/// When one is missing and apt cannot install it.
pub(crate) fn vm_tools() -> Result<()> {
    let mut missing: Vec<String> = PROGRAMS
        .iter()
        .filter(|(program, _)| cmd::which(program).is_none())
        .map(|(_, p)| (*p).to_owned())
        .collect();
    if !std::path::Path::new(KEYRING.0).exists() {
        missing.push(KEYRING.1.to_owned());
    }
    if missing.is_empty() {
        return Ok(());
    }
    if !apt::present() {
        bail!("the VM lab needs Debian packages and this machine has no apt: install {}", missing.join(", "));
    }
    apt::install(&missing)
}
