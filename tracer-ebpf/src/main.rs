//! The eBPF programs of plegtrace: one object, one source file per family of probes.
//!
//! On the host this crate is an empty program, so that the whole workspace builds and is linted without a BPF
//! toolchain; `cargo xtask build` makes the object.
#![cfg_attr(target_arch = "bpf", no_std, no_main)]
#![cfg_attr(target_arch = "bpf", feature(core_intrinsics))]
#![cfg_attr(
    target_arch = "bpf",
    allow(internal_features, reason = "atomic add has no stable name on this target")
)]
#![cfg_attr(not(target_arch = "bpf"), allow(missing_docs, reason = "an empty program"))]

#[cfg(target_arch = "bpf")]
mod arguments;
#[cfg(target_arch = "bpf")]
mod bus;
#[cfg(target_arch = "bpf")]
mod count;
#[cfg(target_arch = "bpf")]
mod docker;
#[cfg(target_arch = "bpf")]
mod emit;
#[cfg(target_arch = "bpf")]
mod entry;
#[cfg(target_arch = "bpf")]
mod environment;
#[cfg(target_arch = "bpf")]
mod go;
#[cfg(target_arch = "bpf")]
mod inflight;
#[cfg(target_arch = "bpf")]
mod maps;
#[cfg(target_arch = "bpf")]
mod messages;
#[cfg(target_arch = "bpf")]
mod parks;
#[cfg(target_arch = "bpf")]
mod preemption;
#[cfg(target_arch = "bpf")]
mod probes;
#[cfg(target_arch = "bpf")]
mod requests;
#[cfg(target_arch = "bpf")]
mod scratch;
#[cfg(target_arch = "bpf")]
mod settings;
#[cfg(target_arch = "bpf")]
mod site;
#[cfg(target_arch = "bpf")]
mod socket;
#[cfg(target_arch = "bpf")]
mod stack;
#[cfg(target_arch = "bpf")]
mod streams;
#[cfg(target_arch = "bpf")]
mod task;
#[cfg(target_arch = "bpf")]
mod watch;

/// Needed by the language; the verifier proves that it is never reached.
#[cfg(target_arch = "bpf")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// Licence of the object, as the kernel reads it.
#[cfg(target_arch = "bpf")]
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[cfg(not(target_arch = "bpf"))]
fn main() {}
