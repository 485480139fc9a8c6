//! `abi.Type`, by which a Go program describes a type: what all kinds have in common.
//!
//! Sources: internal/abi/type.go; before Go 1.21 runtime/type.go. The same since Go 1.14.

/// Its length in bytes. The size of the type that it describes is its first word.
pub(crate) const LEN: usize = 48;
/// A byte of flags.
pub(crate) const FLAGS_AT: usize = 20;
/// The kind, under [`KIND_MASK`].
pub(crate) const KIND_AT: usize = 23;
/// 32 bits: where the name is, counted from the beginning of all types.
pub(crate) const NAME_AT: usize = 40;
/// Of the flags: the name has a star that does not belong to it, because the pointer type shares it.
pub(crate) const EXTRA_STAR: u8 = 1 << 1;
/// Of the flags: the type has a name.
pub(crate) const NAMED: u8 = 1 << 2;
pub(crate) const KIND_MASK: u8 = 31;
pub(crate) const KIND_UINT32: u8 = 10;
pub(crate) const KIND_POINTER: u8 = 22;
pub(crate) const KIND_STRUCT: u8 = 25;
/// Bytes of moduledata among which is the address from which names are counted.
pub(crate) const MODULEDATA: usize = 1024;
/// Types and names lie at most so far behind it.
pub(crate) const MAX_TYPES: u64 = 1 << 30;
