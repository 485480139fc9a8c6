//! What is hooked, as data: a uprobe carries the index of a [`SiteConf`], so the kernel side knows no function.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Most probe sites there may be at once (entries of the map `SITES`).
pub const MAX_SITES: u32 = 2048;
/// Most hooks there may be at once (entries of the map `HOOKS`).
pub const MAX_HOOKS: u32 = 512;

/// What a hit of the site means ([`SiteConf::action`]).
pub mod action {
    /// A call begins.
    pub const START: u8 = 1;
    /// The call of this class on this goroutine ends.
    pub const END: u8 = 2;
    /// The handler of this class hands over its reply.
    pub const REPLY: u8 = 3;
    /// The error result of the call of this class becomes known.
    pub const RESULT: u8 = 4;
    /// The goroutine gives its thread away.
    pub const PARK: u8 = 5;
    /// The scheduler runs a goroutine; its `runtime.g` is where [`SiteConf::err_source`](super::SiteConf::err_source)
    /// says.
    pub const RESUME: u8 = 6;
    /// The open call of this class on this goroutine goes out as a stream of HTTP/2.
    pub const SENT: u8 = 7;
    /// The next call of this class on this goroutine came in as a stream of HTTP/2.
    pub const CAME: u8 = 8;
}

/// How ends find their start ([`SiteConf::pairing`]).
pub mod pairing {
    /// Start and ends are in the same function: same stack depth.
    pub const FRAME: u8 = 1;
    /// Start and end are in different functions of the same goroutine.
    pub const GOROUTINE: u8 = 2;
}

/// Where the current `runtime.g` is found ([`SiteConf::g_source`]).
pub mod g_source {
    /// Register ABI (amd64 R14 since Go 1.17, arm64 X28).
    pub const REGISTER: u8 = 1;
    /// RCX, right after the stack check of Go ≤ 1.16 loaded it.
    pub const RCX: u8 = 2;
    /// Thread-local storage at [`SiteConf::tls_off`](super::SiteConf::tls_off) from the thread pointer.
    pub const TLS: u8 = 3;
}

/// Where an error result (interface word; 0 is nil), or for parks an argument, is found at this site
/// ([`SiteConf::err_source`]).
pub mod err_source {
    /// Nowhere.
    pub const NONE: u8 = 0;
    /// Register ABI argument or result number n is `REG0 + n` (amd64: RAX RBX RCX RDI RSI R8 R9 R10 R11).
    pub const REG0: u8 = 1;
    /// On the stack at [`SiteConf::err_stack_off`](super::SiteConf::err_stack_off) from SP (ABI of Go ≤ 1.16).
    pub const STACK: u8 = 64;
    /// At a start: the call goes well exactly when a reply is handed over ([`action::REPLY`](super::action::REPLY)).
    pub const REPLY: u8 = 65;
}

/// Number of integer registers of Go's register ABI on amd64 that [`err_source::REG0`] can name.
pub const ARG_REGS: u8 = 9;

/// One probe site, found by cookie or by address.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct SiteConf {
    /// Index into the hook table; for ends the hook of the end itself (counted there when nothing is open).
    pub hook: u32,
    /// Pairing group: starts and ends meet when their classes are equal.
    pub class: u32,
    /// Offset of `goid` in `runtime.g`.
    pub goid_off: u32,
    /// Offset of the current `g` from the thread pointer, for [`g_source::TLS`].
    pub tls_off: i32,
    /// For [`err_source::STACK`].
    pub err_stack_off: u32,
    /// [`action`].
    pub action: u8,
    /// [`pairing`].
    pub pairing: u8,
    /// [`g_source`].
    pub g_source: u8,
    /// [`err_source`].
    pub err_source: u8,
    /// 1: the parks of goroutines inside this executable's calls are followed.
    pub parks: u16,
    /// 1: one call can pass it twice, because it belongs to the stack check.
    pub repeats: u16,
    /// Of [`action::SENT`] and [`action::CAME`]: where the number of the stream is in the struct whose address is where
    /// [`Self::err_source`] says.
    pub stream_off: u16,
    /// The same once more: the word there points to a struct, and it is so far behind that. [`NO_FIELD`]: it does not.
    pub stream_then: u16,
    /// 1: what begins here may have come in as a stream, see [`action::CAME`].
    pub comes: u16,
    /// Always 0.
    pub reserved: u16,
}

/// See [`SiteConf::stream_then`].
pub const NO_FIELD: u16 = u16::MAX;

/// Identity of a site where there are no cookies (5.10 to 5.14).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct SiteKey {
    /// Inode of the executable (`mm->exe_file->f_inode->i_ino`).
    pub inode: u64,
    /// Address of the site minus `mm->start_code`.
    pub offset: u64,
    /// Device of the executable as the kernel encodes it (`i_sb->s_dev`).
    pub dev: u64,
}

const _: () = assert!(size_of::<SiteConf>() == 36);
const _: () = assert!(size_of::<SiteKey>() == 24);
