//! [`Unwinder`]: the memory of a stack → the functions on it. Pure.
//!
//! A function knows from its table how deep its stack is at the instruction where it was left, so the return address
//! lies at a known place, and with it the caller. This is how the runtime itself unwinds. Frame pointers are not used:
//! up to Go 1.22 they are not saved for goroutines in system calls, and functions without a frame have none.
//!
//! Every step goes up the stack and lands in a function of the program, or the walk ends with the reason. The stack
//! comes in blocks: one block is enough for almost all goroutines.

use super::code::{Code, Kind, Place};
use super::header::word;

/// Deepest stack that is followed.
pub const MAX_FRAMES: usize = 100;
/// Bytes that arm64 puts on the stack of an interrupted function: its return address, and padding.
const ARM64_INJECTED: u64 = 16;

/// Where a function finds its return address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Return {
    /// Above its frame, pushed by the call (amd64).
    Pushed,
    /// At the bottom of its frame, saved from the link register; without a frame still in the register (arm64).
    Link,
}

/// Why a walk ended before the bottom of the stack.
pub(super) mod broken {
    pub(in super::super) const DEEP: &str = "it is deeper than 100 frames";
    pub(in super::super) const DEEP_BYTES: &str = "it has more than 1 MiB";
    pub(in super::super) const NOT_CODE: &str = "the next return address is not in the program's Go code";
    pub(in super::super) const NO_DEPTH: &str =
        "the function table does not say how deep the last function's stack is";
    pub(in super::super) const OUTSIDE: &str = "the next return address would be outside of the stack";
    pub(in super::super) const NO_LINK: &str = "the return address of the last function was in a register";
    pub(in super::super) const SWITCH: &str = "the last function switches to another stack";
    pub(in super::super) const MEMORY: &str = "its stack could not be read";
    pub(in super::super) const RUNNING: &str = "it runs: its stack changes while it is read";
    pub(in super::super) const NOWHERE: &str = "its resume address is not in the program's Go code";
}

/// What a walk needs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The bottom of the stack was reached.
    Done,
    /// It cannot go on.
    Broken(&'static str),
    /// The word at this address, which is inside the stack.
    Need(u64),
}

/// A walk up one stack.
#[derive(Debug)]
pub(super) struct Unwinder {
    pc: u64,
    sp: u64,
    hi: u64,
    link: Option<u64>,
    /// Functions by index, innermost first.
    pub(super) frames: Vec<u32>,
    /// Where the frame of each of them ends: the stack pointer of its caller. The last one may be missing.
    pub(super) ends: Vec<u64>,
}

impl Unwinder {
    /// A walk that begins at `(pc, sp)` on a stack that ends at `hi`.
    pub(super) fn new((pc, sp): (u64, u64), link: Option<u64>, hi: u64) -> Self {
        Self { pc, sp, hi, link, frames: Vec::new(), ends: Vec::new() }
    }

    /// Goes on as far as this block of the stack reaches.
    pub(super) fn advance(&mut self, code: &mut dyn Code, from: u64, block: &[u8]) -> Step {
        loop {
            let Some(place) = code.place(self.pc) else {
                return Step::Broken(if self.frames.is_empty() { broken::NOWHERE } else { broken::NOT_CODE });
            };
            if place.kind == Kind::Bottom {
                return Step::Done;
            }
            if self.frames.len() == MAX_FRAMES {
                return Step::Broken(broken::DEEP);
            }
            let read = |at: u64| word(block, usize::try_from(at.checked_sub(from)?).ok()?);
            let next = match self.caller(place, code.returns(), &read) {
                Ok(next) => next,
                Err(Step::Broken(why)) => {
                    self.frames.push(place.function);
                    return Step::Broken(why);
                }
                Err(need) => return need,
            };
            self.frames.push(place.function);
            (self.pc, self.sp, self.link) = next;
            self.ends.push(self.sp);
        }
    }

    /// Address, stack pointer and link register of the caller.
    fn caller(
        &self,
        place: Place,
        returns: Return,
        read: &dyn Fn(u64) -> Option<u64>,
    ) -> Result<(u64, u64, Option<u64>), Step> {
        if place.kind == Kind::Switch && !self.frames.is_empty() {
            return Err(Step::Broken(broken::SWITCH));
        }
        let depth = u64::from(place.depth.ok_or(Step::Broken(broken::NO_DEPTH))?);
        match returns {
            Return::Pushed => {
                let (pc, at) = (self.fetch(self.sp.checked_add(depth), read)?, self.sp + depth);
                Ok((pc, at + 8, None))
            }
            Return::Link if depth == 0 => {
                Ok((self.link.ok_or(Step::Broken(broken::NO_LINK))?, self.sp, None))
            }
            Return::Link => {
                let (pc, sp) = (self.fetch(Some(self.sp), read)?, self.sp + depth);
                if place.kind != Kind::Injected {
                    return Ok((pc, sp, None));
                }
                let link = self.fetch(Some(sp), read)?;
                Ok((pc, sp + ARM64_INJECTED, Some(link)))
            }
        }
    }

    /// The word at an address of the stack.
    fn fetch(&self, at: Option<u64>, read: &dyn Fn(u64) -> Option<u64>) -> Result<u64, Step> {
        let inside = |at: &u64| at.is_multiple_of(8) && at.checked_add(8).is_some_and(|end| end <= self.hi);
        let at = at.filter(inside).ok_or(Step::Broken(broken::OUTSIDE))?;
        read(at).ok_or(Step::Need(at))
    }
}

#[cfg(test)]
#[path = "unwind_tests.rs"]
mod tests;
