//! What differs between processors: where a function's stack check ends, and where the function returns.
//!
//! Each architecture answers the same two questions about the bytes of one function, see [`start`] and [`returns`].

pub(crate) mod aarch64;
pub(crate) mod x86_64;
mod x86_64_home;
mod x86_64_prologue;

use super::abi::Convention;
use super::elf::Machine;
use super::error::SiteRefusal;
use super::site::{GSource, Price};

/// More returns than this in one function are refused: every site costs memory in each process.
pub(crate) const MAX_RETURNS: usize = 512;

/// The functions we ask about refer to a dozen places.
const MAX_REFERENCES: usize = 256;

/// The bytes of one function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Code<'a> {
    pub(crate) entry: u64,
    pub(crate) bytes: &'a [u8],
    pub(crate) convention: Convention,
}

impl Code<'_> {
    /// Address behind the function.
    pub(crate) fn end(&self) -> u64 {
        self.entry + self.bytes.len() as u64
    }

    /// Is the address inside the function?
    pub(crate) fn contains(&self, vaddr: u64) -> bool {
        (self.entry..self.end()).contains(&vaddr)
    }
}

/// How a function finds `g` where it is not in a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TlsAccess {
    /// At this offset from the thread pointer.
    Offset(i32),
    /// The offset is in the GOT slot at this address.
    Slot(u64),
}

/// A site before its file offset is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RawSite {
    pub(crate) vaddr: u64,
    pub(crate) len: usize,
    pub(crate) price: Price,
    /// `None`: in thread-local storage, see [`tls_access`].
    pub(crate) g: Option<GSource>,
}

/// Sites in the function where it calls another one directly. Only amd64: elsewhere a call is not cheaper than another
/// instruction.
pub(crate) fn calls(
    machine: Machine,
    code: Code<'_>,
    to: &dyn Fn(u64) -> bool,
) -> Result<Vec<RawSite>, SiteRefusal> {
    match machine {
        Machine::X86_64 => x86_64::calls(code, to),
        Machine::Aarch64 => Ok(Vec::new()),
    }
}

/// The site where a call of the function begins: after its stack check, arguments untouched.
pub(crate) fn start(machine: Machine, code: Code<'_>) -> Result<RawSite, SiteRefusal> {
    match machine {
        Machine::X86_64 => x86_64_prologue::start(code),
        Machine::Aarch64 => aarch64::start(code),
    }
}

/// Every return of the function. `leaves_to` says whether a jump out of the function to this address is harmless
/// (the runtime's stack growth, which comes back).
pub(crate) fn returns(
    machine: Machine,
    code: Code<'_>,
    leaves_to: &dyn Fn(u64) -> bool,
) -> Result<Vec<RawSite>, SiteRefusal> {
    let sites = match machine {
        Machine::X86_64 => x86_64::returns(code, leaves_to)?,
        Machine::Aarch64 => aarch64::returns(code, leaves_to)?,
    };
    match sites.len() {
        0 => Err(SiteRefusal::NoReturn),
        n if n > MAX_RETURNS => Err(SiteRefusal::TooManyReturns(n)),
        _ => Ok(sites),
    }
}

/// Addresses of data that the function refers to, ascending and distinct; those of code may be among them.
pub(crate) fn references(machine: Machine, code: Code<'_>) -> Vec<u64> {
    let mut found = match machine {
        Machine::X86_64 => x86_64::references(code),
        Machine::Aarch64 => aarch64::references(code),
    };
    found.sort_unstable();
    found.dedup();
    found.truncate(MAX_REFERENCES);
    found
}

/// How the first instructions of the function load `g` from thread-local storage, if they do.
pub(crate) fn tls_access(machine: Machine, code: Code<'_>) -> Option<TlsAccess> {
    match machine {
        Machine::X86_64 => x86_64_prologue::tls_access(code),
        // X28 holds g on arm64 in Go code of every version.
        Machine::Aarch64 => None,
    }
}

/// Is integer argument `n` of the function, from its beginning on, in the word that its caller has for it?
pub(crate) fn keeps(machine: Machine, code: Code<'_>, n: usize) -> bool {
    match machine {
        Machine::X86_64 => x86_64_home::keeps(code, n),
        // Not looked at: unproved.
        Machine::Aarch64 => false,
    }
}
