//! Is the goroutine of an open call still there? Read from its `runtime.g` with `process_vm_readv`, never by signal.
//!
//! The runtime keeps every `g` it ever made and gives it to new goroutines, so the address stays readable; another id
//! or the status "dead" there proves that the call is over although its end was not seen.

use std::{collections::HashMap, sync::mpsc, thread, time::Duration};

use super::memory::{Memory as _, ProcessMemory};
use crate::input::Liveness;

/// `_Gdead` (src/runtime/runtime2.go, all versions).
const GDEAD: u32 = 6;
/// `_Gscan`: the garbage collector is looking at the stack.
const GSCAN: u32 = 0x1000;
/// `atomicstatus` lies right before `goid`, with a lock word between (Go 1.13 to 1.27).
const STATUS_BEFORE_GOID: u64 = 8;

/// One question: does the goroutine `goid`, once at `g_addr` in process `tgid`, still exist?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Asked {
    /// Process.
    pub tgid: u32,
    /// Goroutine id.
    pub goid: u64,
    /// Address of its `runtime.g`.
    pub g_addr: u64,
    /// Offset of `goid` in it.
    pub goid_offset: u32,
}

/// Answers every question that can be answered within `deadline`; the others stay [`Liveness::Unknown`].
///
/// A process with a stuck memory lock can block the reader, so it runs in a thread of its own which is left behind
/// when it is late.
#[must_use]
pub fn ask_all(questions: Vec<Asked>, deadline: Duration) -> HashMap<Asked, Liveness> {
    if questions.is_empty() {
        return HashMap::new();
    }
    let (to, from) = mpsc::channel();
    let reader = move || {
        for question in questions {
            if to.send((question, ask(&question))).is_err() {
                return;
            }
        }
    };
    if thread::Builder::new().name("liveness".to_owned()).spawn(reader).is_err() {
        return HashMap::new();
    }
    let until = std::time::Instant::now() + deadline;
    let mut answers = HashMap::new();
    while let Ok((question, answer)) =
        from.recv_timeout(until.saturating_duration_since(std::time::Instant::now()))
    {
        answers.insert(question, answer);
    }
    answers
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

    /// Answers come back by question, and in time.
    #[test]
    fn asked_together() {
        let mut g = [0u64; 20];
        g[18] = 4;
        g[19] = 77;
        let (alive, over) = (question(&g, 77), question(&g, 1));
        let answers = ask_all(vec![alive, over], Duration::from_secs(5));
        assert_eq!(answers[&alive], Liveness::Alive);
        assert_eq!(answers[&over], Liveness::Over);
    }
}
