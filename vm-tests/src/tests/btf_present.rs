//! The kernel describes its own types, from which the tracer takes every structure offset.

use std::fs;

use anyhow::{Context as _, Result, ensure};

/// First two bytes of BTF in the machine's byte order: include/uapi/linux/btf.h, `BTF_MAGIC`.
const BTF_MAGIC: u16 = 0xeb9f;

/// Reads the header of the kernel's BTF.
///
/// # Errors
/// When there is none or it does not begin with the magic number.
pub fn run() -> Result<String> {
    let path = "/sys/kernel/btf/vmlinux";
    let bytes = fs::read(path).with_context(|| format!("cannot read {path}"))?;
    ensure!(bytes.get(..2) == Some(&BTF_MAGIC.to_ne_bytes()[..]), "{path} does not begin with the BTF magic");
    Ok(format!("{} KiB", bytes.len() / 1024))
}
