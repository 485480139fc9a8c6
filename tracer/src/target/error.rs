//! Why a binary, or one function of it, is not probed: one sentence per reason, shown as it is by `plegtrace doctor`.

use std::io;

/// Why no function of a binary can be probed.
#[derive(Debug, thiserror::Error)]
pub enum RefuseReason {
    /// Opening or reading failed.
    #[error("cannot read the executable")]
    Io(#[from] io::Error),
    /// A pipe, directory or device.
    #[error("not a regular file")]
    NotRegular,
    /// The file or one of its tables is beyond what we are willing to read.
    #[error("{what} is too large ({size} bytes, limit {limit})")]
    TooLarge {
        /// Which table.
        what: &'static str,
        /// Its size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// No ELF magic.
    #[error("not an ELF file")]
    NotElf,
    /// ELF, but not something the kernel would execute here.
    #[error("not a 64-bit little-endian ELF executable")]
    NotExecutable,
    /// A header points behind the end of the file.
    #[error("ELF file is truncated: {0} lies behind the end of the file")]
    Truncated(&'static str),
    /// A header contradicts itself.
    #[error("malformed ELF: {0}")]
    Malformed(&'static str),
    /// Neither x86-64 nor arm64.
    #[error("machine type {0} is neither x86-64 nor arm64")]
    Machine(u16),
    /// Neither build info nor a function table.
    #[error("not a Go binary")]
    NotGo,
    /// Go build info, but no function table.
    #[error("Go binary without a function table (pclntab)")]
    NoPclntab,
    /// A section with the right name and a wrong magic (a newer Go, or an obfuscated binary).
    #[error("function table (pclntab) has the unknown magic {0:#010x}")]
    UnknownMagic(u32),
    /// A function table that cannot be.
    #[error("function table (pclntab) is inconsistent: {0}")]
    BadPclntab(&'static str),
    /// The text base is not known without it.
    #[error("no moduledata points to the function table, so the text base is unknown")]
    NoModuledata,
    /// More than one, or one whose fields contradict the program headers.
    #[error("moduledata is inconsistent: {0}")]
    BadModuledata(&'static str),
    /// The register layout and the goroutine id offset depend on the Go version.
    #[error("Go version is unknown: no usable build info")]
    NoVersion,
    /// Outside of what our tables cover.
    #[error("unsupported Go version {0} (supported: 1.13 to 1.27)")]
    Version(String),
    /// Build info and function table tell different stories.
    #[error("Go version {version} does not write function tables of magic {magic:#010x}")]
    VersionMagic {
        /// From the build info.
        version: String,
        /// Of the table found.
        magic: u32,
    },
}

/// Why one function of a good binary is not probed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SiteRefusal {
    /// The second witness disagrees.
    #[error("pclntab and symbol table disagree: symbol at {symbol:#x}, function at {function:#x}")]
    SymbolDisagrees {
        /// Address in the ELF symbol table.
        symbol: u64,
        /// Address in the pclntab.
        function: u64,
    },
    /// Body is outside the file or absurdly large.
    #[error("code of {size} bytes at {vaddr:#x} cannot be read")]
    NoCode {
        /// Start of the function.
        vaddr: u64,
        /// Its size in bytes.
        size: u64,
    },
    /// The disassembler lost track.
    #[error("undecodable instruction at {0:#x}")]
    Undecodable(u64),
    /// Nothing to hook as an end.
    #[error("function has no return instruction")]
    NoReturn,
    /// A return by another instruction than the plain one.
    #[error("unexpected form of return at {0:#x}")]
    ReturnForm(u64),
    /// It may leave without passing a return.
    #[error("function leaves by a jump at {at:#x} to {to:#x}")]
    TailJump {
        /// Address of the jump.
        at: u64,
        /// Its target.
        to: u64,
    },
    /// Kernels ≥ 6.18 rewrite all five bytes of such a site.
    #[error("only a 5-byte nop is left as probe site at {0:#x}")]
    FiveByteNop(u64),
    /// More sites than anybody wants to pay for.
    #[error("function has {0} return instructions")]
    TooManyReturns(usize),
    /// The bytes in the file are not those that were analysed.
    #[error("instruction at file offset {offset:#x} has changed since it was analysed")]
    Changed {
        /// File offset of the site.
        offset: u64,
    },
}
