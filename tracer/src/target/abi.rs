//! What a Go version means at a probe site: how arguments are passed and where things are in `runtime.g`.
//!
//! Offsets were read from `type g struct` and `type gobuf struct` in Go's runtime/runtime2.go of each release 1.13 to
//! 1.27; they are the same on amd64 and arm64. What changed: 1.23 added `syscallbp` (everything behind it moved by
//! 8), 1.25 removed `gobuf.ret` (everything behind it moved back). Those of `runtime.mstats` come from runtime/mstats.go of
//! the same releases.

use super::buildinfo::BuildInfo;
use super::elf::Machine;
use super::version::GoVersion;

/// How a Go function gets its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Convention {
    /// In registers; the current `g` is in R14 (amd64) or X28 (arm64).
    Registers,
    /// On the stack; amd64 keeps `g` in thread-local storage, arm64 in X28.
    Stack,
}

/// Offsets of fields of `runtime.g` in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GOffsets {
    /// `stack.lo`.
    pub stack_lo: u32,
    /// `stack.hi`.
    pub stack_hi: u32,
    /// `m`.
    pub m: u32,
    /// `sched.sp`.
    pub sched_sp: u32,
    /// `sched.pc`.
    pub sched_pc: u32,
    /// `sched.bp`.
    pub sched_bp: u32,
    /// `sched.lr`: the return address of a function without a frame on arm64.
    pub sched_lr: u32,
    /// `syscallsp`: 0 outside of system calls and C, `syscallpc` follows.
    pub syscallsp: u32,
    /// `atomicstatus` (u32).
    pub atomicstatus: u32,
    /// `goid` (u64).
    pub goid: u32,
    /// `waitsince` (i64, CLOCK_MONOTONIC ns, set by the garbage collector).
    pub waitsince: u32,
    /// `waitreason` (u8).
    pub waitreason: u32,
}

/// Offsets of what the garbage collector keeps of its cycles in `runtime.memstats`, in bytes from `last_gc_unix`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GcOffsets {
    /// `pause_ns`: how long each of the last [`GcOffsets::KEPT`] cycles stopped the world, in a ring.
    pub pause_ns: u32,
    /// `pause_end`: when each of them ended, CLOCK_REALTIME ns, in the same ring.
    pub pause_end: u32,
    /// `numgc` (u32): cycles so far.
    pub numgc: u32,
    /// `last_gc_nanotime`: when the last one ended, CLOCK_MONOTONIC ns.
    pub last_gc_nanotime: u32,
}

impl GcOffsets {
    /// Cycles that the rings keep.
    pub const KEPT: usize = 256;

    /// Bytes from `last_gc_unix` to the end of what is read.
    #[must_use]
    pub fn size(self) -> usize {
        self.numgc.max(self.last_gc_nanotime) as usize + 8
    }
}

/// Everything a probe needs to know about the toolchain of a binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abi {
    /// How arguments are passed.
    pub convention: Convention,
    /// Where things are in `runtime.g`.
    pub g: GOffsets,
    /// Where things are in `runtime.memstats`; `None` when that is not known of this release.
    pub gc: Option<GcOffsets>,
}

impl Abi {
    /// The ABI of a supported release.
    #[must_use]
    pub fn new(version: GoVersion, machine: Machine, info: &BuildInfo) -> Self {
        Self {
            convention: convention(version, machine, info),
            g: g_offsets(version),
            gc: gc_offsets(version),
        }
    }
}

fn convention(version: GoVersion, machine: Machine, info: &BuildInfo) -> Convention {
    // Register ABI: amd64 in 1.17, arm64 in 1.18; it could be switched off until 1.18.
    let since = match machine {
        Machine::X86_64 => GoVersion::minor(17),
        Machine::Aarch64 => GoVersion::minor(18),
    };
    let off = version <= GoVersion::minor(18)
        && ["noregabi", "noregabiwrappers", "noregabig", "noregabiargs"].iter().any(|x| info.experiment(x));
    if version >= since && !off { Convention::Registers } else { Convention::Stack }
}

fn g_offsets(version: GoVersion) -> GOffsets {
    // sched is at 56: sp, pc, g, ctxt, [ret ≤ 1.24], lr, bp.
    let sched_bp = if version >= GoVersion::minor(25) { 96 } else { 104 };
    // Then syscallsp, syscallpc, [syscallbp ≥ 1.23], stktopsp, param.
    let syscall_words = if version >= GoVersion::minor(23) { 3 } else { 2 };
    let atomicstatus = sched_bp + 8 + 8 * syscall_words + 16;
    GOffsets {
        stack_lo: 0,
        stack_hi: 8,
        m: 48,
        sched_sp: 56,
        sched_pc: 64,
        sched_bp,
        sched_lr: sched_bp - 8,
        syscallsp: sched_bp + 8,
        atomicstatus,
        goid: atomicstatus + 8,
        waitsince: atomicstatus + 24,
        waitreason: atomicstatus + 32,
    }
}

/// `last_gc_unix`, `pause_total_ns`, `pause_ns`, `pause_end`, `numgc`, `numforcedgc` and `gc_cpu_fraction` never changed
/// places. `last_gc_nanotime` followed a table of 67 size classes up to 1.15, and follows at once from 1.18 on; in between
/// it was not looked up.
fn gc_offsets(version: GoVersion) -> Option<GcOffsets> {
    let ring = 8 * u32::try_from(GcOffsets::KEPT).unwrap_or(u32::MAX);
    let numgc = 16 + 2 * ring;
    let last_gc_nanotime = match version.minor {
        ..=15 => numgc + 24 + 67 * 24,
        16 | 17 => return None,
        18.. => numgc + 16,
    };
    Some(GcOffsets { pause_ns: 16, pause_end: 16 + ring, numgc, last_gc_nanotime })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The offset of goid went 0x98, 0xa0, 0x98.
    #[test]
    fn goid_by_release() {
        for minor in 13..=27 {
            let want = if (23..=24).contains(&minor) { 0xa0 } else { 0x98 };
            assert_eq!(g_offsets(GoVersion::minor(minor)).goid, want, "go1.{minor}");
        }
        let g = g_offsets(GoVersion::minor(19));
        assert_eq!((g.atomicstatus, g.waitsince, g.waitreason, g.sched_bp), (144, 168, 176, 104));
        assert_eq!(g_offsets(GoVersion::minor(25)).sched_bp, 96);
    }

    /// Read from the debug information of 1.15 and 1.27; what nobody has read is refused.
    #[test]
    fn collections_by_release() {
        let gc = |minor| gc_offsets(GoVersion::minor(minor));
        let of = |minor| gc(minor).map(|gc| (gc.pause_ns, gc.pause_end, gc.numgc, gc.last_gc_nanotime));
        assert_eq!(of(15), Some((16, 2064, 4112, 5744)));
        assert_eq!(of(27), Some((16, 2064, 4112, 4128)));
        assert_eq!((gc(16), gc(17)), (None, None));
    }

    /// The register ABI came with 1.17 on amd64 and 1.18 on arm64, and could be switched off at first.
    #[test]
    fn register_abi_by_release() {
        let plain = BuildInfo::default();
        let abi_of = |minor, machine, info| convention(GoVersion::minor(minor), machine, info);
        assert_eq!(abi_of(16, Machine::X86_64, &plain), Convention::Stack);
        assert_eq!(abi_of(17, Machine::X86_64, &plain), Convention::Registers);
        assert_eq!(abi_of(17, Machine::Aarch64, &plain), Convention::Stack);
        assert_eq!(abi_of(18, Machine::Aarch64, &plain), Convention::Registers);
        let off = BuildInfo { go_version: "go1.17 X:noregabi".into(), ..BuildInfo::default() };
        assert_eq!(abi_of(17, Machine::X86_64, &off), Convention::Stack);
    }
}
