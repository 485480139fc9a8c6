//! What crosses the border between the eBPF programs and the tracer.
//!
//! `no_std`, no I/O, no allocation; compiled for the kernel and for the host, so that both sides read the same
//! bytes with the same code. Records travel through the ring buffer ([`rec`]), state lives in maps ([`key`]),
//! what is hooked is described by data ([`site`]), constants of the running kernel by [`settings`].
//!
//! Every shared type is `repr(C)`, made of explicit integers, and refuses hidden padding at compile time through
//! zerocopy's `IntoBytes`. A change of any layout bumps [`ABI_VERSION`]; a field that was always
//! 0 may get a meaning in which 0 says that nothing is known.
#![no_std]
#![forbid(unsafe_code)]

pub mod environment;
pub mod follow;
pub mod header;
pub mod hist;
pub mod key;
pub mod kind;
pub mod preemption;
pub mod reason;
pub mod rec;
pub mod role;
pub mod settings;
pub mod site;
pub mod wire;

/// Version of every layout in this crate; written into recordings.
pub const ABI_VERSION: u16 = 3;
