//! Is the goroutine of an open call still there? Read from its `runtime.g` with `process_vm_readv`, never by signal.
//!
//! The runtime keeps every `g` it ever made and gives it to new goroutines, so the address stays readable; another id
//! or the status "dead" there proves that the call is over although its end was not seen.

use std::io;

use super::tell::Tell;
use crate::{
    census::{
        memory::{Memory as _, ProcessMemory},
        protocol::{Answer, Asked, Step},
    },
    input::Liveness,
};

/// `_Gdead` (src/runtime/runtime2.go, all versions).
const GDEAD: u32 = 6;
/// `_Gscan`: the garbage collector is looking at the stack.
const GSCAN: u32 = 0x1000;
/// `atomicstatus` lies right before `goid`, with a lock word between (Go 1.13 to 1.27).
const STATUS_BEFORE_GOID: u64 = 8;

/// Asks process by process, because one that does not answer is not asked again.
pub(super) fn all(tell: &mut Tell, questions: &[Asked]) -> io::Result<()> {
    for of in questions {
        if tell.ask(of.tgid, "", Step::Call)? {
            tell.say(&Answer::Call { of: *of, is: ask(of) })?;
        }
    }
    Ok(())
}

fn ask(question: &Asked) -> Liveness {
    let at = question.g_addr.wrapping_add(u64::from(question.goid_offset)).wrapping_sub(STATUS_BEFORE_GOID);
    let mut bytes = [0u8; 16];
    if !matches!(ProcessMemory { pid: question.tgid }.read_one(at, &mut bytes), Ok(true)) {
        return Liveness::Unknown;
    }
    let (status, goid) = bytes.split_at(8);
    let status = u32::from_le_bytes([status[0], status[1], status[2], status[3]]) & !GSCAN;
    let goid = u64::from_le_bytes(goid.try_into().expect("eight bytes"));
    if status == GDEAD || goid != question.goid { Liveness::Over } else { Liveness::Alive }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A `g` in our own memory, as far as it is looked at.
    fn question(g: &[u64; 20], goid: u64) -> Asked {
        Asked { tgid: std::process::id(), goid, g_addr: g.as_ptr() as u64, goid_offset: 152 }
    }

    /// Same id and not dead is alive; another id, or dead, is over; unreadable is unknown.
    #[test]
    fn three_answers() {
        let mut g = [0u64; 20];
        g[18] = u64::from(4 | GSCAN); // waiting, being scanned
        g[19] = 77;
        assert_eq!(ask(&question(&g, 77)), Liveness::Alive);
        assert_eq!(ask(&question(&g, 78)), Liveness::Over);
        g[18] = u64::from(GDEAD);
        assert_eq!(ask(&question(&g, 77)), Liveness::Over);
        assert_eq!(ask(&Asked { g_addr: 0, ..question(&g, 77) }), Liveness::Unknown);
    }
}
