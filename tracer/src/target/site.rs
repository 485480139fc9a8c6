//! [`Site`]: one address where a uprobe may sit, with everything needed to attach it and to check it once more.

use plegtrace_common::site::g_source;

use super::error::SiteRefusal;
use super::source::ByteSource;

/// What a hit of the site costs (measured in a VM: about 0.65 µs against 9 to 10 µs).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Price {
    /// The kernel emulates the instruction inside the breakpoint trap.
    Emulated,
    /// The kernel executes a copy and takes a second trap.
    SingleStep,
}

impl Price {
    /// Nanoseconds that a hit takes, our program included. Measured in a VM on Linux 6.18; on bare metal it is less.
    #[must_use]
    pub const fn ns(self) -> u32 {
        match self {
            Self::Emulated => 650,
            Self::SingleStep => 9500,
        }
    }
}

/// Where the current `runtime.g` is when the site is hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GSource {
    /// In the g register of the register ABI: R14 on amd64, X28 on arm64.
    Register,
    /// In RCX, which the stack check has just loaded (amd64, stack ABI).
    Rcx,
    /// In thread-local storage at this offset from the thread pointer.
    Tls(i32),
    /// Not known: calls at this site cannot be told apart by goroutine.
    Unknown,
}

impl GSource {
    /// The number the kernel side uses and the offset that goes with it; `None` when it is not known.
    #[must_use]
    pub const fn code(self) -> Option<(u8, i32)> {
        match self {
            Self::Register => Some((g_source::REGISTER, 0)),
            Self::Rcx => Some((g_source::RCX, 0)),
            Self::Tls(offset) => Some((g_source::TLS, offset)),
            Self::Unknown => None,
        }
    }
}

/// What the file must contain at a site, to be compared again right before attaching.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SiteCheck {
    /// Offset in the file.
    pub file_offset: u64,
    /// The instruction.
    pub bytes: Vec<u8>,
}

impl SiteCheck {
    /// Is the instruction still there?
    ///
    /// # Errors
    /// [`SiteRefusal::Changed`] when it is not, or cannot be read.
    pub(crate) fn verify(&self, source: &ByteSource) -> Result<(), SiteRefusal> {
        let now = source.read(self.file_offset, self.bytes.len() as u64, "a probe site");
        match now {
            Ok(now) if *now == *self.bytes => Ok(()),
            _ => Err(SiteRefusal::Changed { offset: self.file_offset }),
        }
    }
}

/// An address where a uprobe may sit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Site {
    /// Address in the file; a position-independent process adds its load bias.
    pub vaddr: u64,
    /// What uprobes are attached to.
    pub file_offset: u64,
    /// `ip - mm->start_code` in every process that runs this file, wherever it is loaded.
    pub ip_minus_start_code: u64,
    /// The instruction at the site.
    pub bytes: Vec<u8>,
    /// What a hit costs.
    pub price: Price,
    /// Where the goroutine is.
    pub g_source: GSource,
}

impl Site {
    /// What to compare before attaching.
    #[must_use]
    pub fn check(&self) -> SiteCheck {
        SiteCheck { file_offset: self.file_offset, bytes: self.bytes.clone() }
    }

    /// Can one call pass it twice, at its start? The stack check is made again when the stack has grown, or when the
    /// goroutine gave way there; and where no check was recognised, the function begins again as a whole. Only the push
    /// of the frame pointer is behind the check.
    #[must_use]
    pub fn repeats(&self) -> bool {
        self.bytes != PUSH_RBP
    }
}

/// `push rbp` on amd64; no instruction of arm64 has one byte.
const PUSH_RBP: [u8; 1] = [0x55];

#[cfg(test)]
mod tests {
    use super::*;

    /// A jump of the stack check is passed again, a push behind it is not; arm64 has no such push.
    #[test]
    fn what_one_call_passes_twice() {
        let repeats = |bytes: &[u8]| {
            let site = Site {
                vaddr: 0,
                file_offset: 0,
                ip_minus_start_code: 0,
                bytes: bytes.to_vec(),
                price: Price::Emulated,
                g_source: GSource::Register,
            };
            site.repeats()
        };
        assert!(repeats(&[0x76, 0x20]) && repeats(&[0x0f, 0x86, 1, 0, 0, 0]));
        assert!(!repeats(&[0x55]));
        assert!(repeats(&[0xe9, 0x01, 0x00, 0x54]), "b.ls");
    }
}
