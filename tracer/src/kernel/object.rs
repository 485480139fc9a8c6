//! The embedded eBPF object.

/// An aligned copy, as the ELF reader wants it.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/plegtrace.bpf.o"));

/// The object's bytes; empty when this binary was built without it.
pub(super) fn bytes() -> &'static [u8] {
    OBJECT
}

/// Was this binary built without its eBPF programs (plain `cargo build`)?
#[must_use]
pub fn is_stub() -> bool {
    OBJECT.is_empty()
}
