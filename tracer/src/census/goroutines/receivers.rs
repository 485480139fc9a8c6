//! [`Seek`]: who relists: the receivers of method values on the stacks of loops, and what the frames of its methods point to.
//! [`super::relist_time`] says why, and which of them it is.

use std::collections::BTreeSet;
use std::ops::Range;

use super::code::Code;
use super::header::{USER, word, words};
use crate::census::memory::{Memory, MemoryError, Piece};

/// The method value of a relist; exported since Kubernetes 1.27.
pub(super) const RELISTS: [&str; 2] = [
    "k8s.io/kubernetes/pkg/kubelet/pleg.(*GenericPLEG).relist-fm",
    "k8s.io/kubernetes/pkg/kubelet/pleg.(*GenericPLEG).Relist-fm",
];
/// The package whose loops call a relist, vendored or not.
const LOOPS: &str = "k8s.io/apimachinery/pkg/util/wait.";
/// The methods of the receiver, with closures of theirs.
const METHODS: &str = "k8s.io/kubernetes/pkg/kubelet/pleg.(*GenericPLEG).";

/// A closure, and a closure in a closure.
const DEPTH: usize = 2;
/// Bytes of a closure that are looked at: its code, and three things that it has caught.
const CLOSURE: usize = 32;
/// Addresses that are looked at for one goroutine.
const MAX_POINTERS: usize = 16 << 10;
/// Receivers that are looked at; there is one.
const MAX_RECEIVERS: usize = 8;
/// Pointers in frames that are looked at, each as if it were the receiver; a relist has some fifty.
const MAX_IN_FRAMES: usize = 512;
/// Bytes above a frame, its return address included, where a function keeps the arguments that it got in registers: the receiver
/// is the first.
const KEPT: u64 = 16;
/// Goroutines whose stacks are searched; a kubelet has about fifty such loops.
const MAX_SEARCHED: u32 = 1024;

/// The stack of a goroutine, with its functions.
#[derive(Clone, Debug)]
pub(super) struct Stack<'a> {
    /// Its functions, innermost first.
    pub(super) frames: &'a [u32],
    /// Where the frame of each of them ends; those of the last ones may be missing.
    pub(super) ends: &'a [u64],
    /// All of it; what is in use begins at `at`.
    pub(super) whole: Range<u64>,
    /// Where the first frame begins.
    pub(super) at: u64,
    /// What was read from there.
    pub(super) bytes: &'a [u8],
}

impl Stack<'_> {
    /// Pointers in the frames of these functions that do not lead to the stack itself.
    fn pointers(&self, is_one: &dyn Fn(u32) -> bool) -> Vec<u64> {
        let begins = std::iter::once(self.at).chain(self.ends.iter().copied());
        let frames = self.frames.iter().zip(begins.zip(self.ends));
        let inside = frames.filter(|(function, _)| is_one(**function)).flat_map(|(_, (from, to))| {
            let place = |at: u64| usize::try_from(at.saturating_sub(self.at)).unwrap_or(usize::MAX);
            let to = place(to.saturating_add(KEPT)).min(self.bytes.len());
            words(self.bytes.get(place(from)..to).unwrap_or_default())
        });
        inside.filter(|word| is_pointer(word) && !self.whole.contains(word)).collect()
    }
}

/// What can be the receiver of relists, by the stacks of those who call them.
#[derive(Debug, Default)]
pub(super) struct Seek<'a> {
    /// Addresses of the code of the method values; `None` when nothing is sought.
    code: Option<&'a [u64]>,
    searched: u32,
    /// Receivers of method values.
    receivers: BTreeSet<u64>,
    /// Whatever the frames of a receiver's methods point to.
    in_frames: BTreeSet<u64>,
}

impl<'a> Seek<'a> {
    pub(super) fn new(code: Option<&'a [u64]>) -> Self {
        Self { code, ..Self::default() }
    }

    /// What was found: with a method value that, for it is certain.
    pub(super) fn found(self) -> BTreeSet<u64> {
        if self.receivers.is_empty() { self.in_frames } else { self.receivers }
    }

    /// Looks at the stack of a goroutine.
    pub(super) fn look(
        &mut self,
        memory: &dyn Memory,
        code: &dyn Code,
        stack: &Stack<'_>,
    ) -> Result<(), MemoryError> {
        let Some(sought) = self.code else { return Ok(()) };
        let has = |function: u32, what: &str| code.name(function).is_some_and(|name| name.contains(what));
        if stack.frames.iter().any(|function| has(*function, METHODS)) {
            let room = MAX_IN_FRAMES.saturating_sub(self.in_frames.len());
            let found = stack.pointers(&|function| has(function, METHODS));
            self.in_frames.extend(found.into_iter().take(room));
        }
        let is_loop = stack.frames.iter().any(|function| has(*function, LOOPS));
        if sought.is_empty() || self.searched >= MAX_SEARCHED || !is_loop {
            return Ok(());
        }
        self.searched += 1;
        let mut pointers: BTreeSet<u64> = words(stack.bytes).filter(is_pointer).collect();
        for _ in 0..DEPTH {
            pointers = self.closures(memory, sought, &pointers)?;
        }
        Ok(())
    }

    /// Looks at what could be closures, for that of a method value; what they have caught.
    fn closures(
        &mut self,
        memory: &dyn Memory,
        sought: &[u64],
        at: &BTreeSet<u64>,
    ) -> Result<BTreeSet<u64>, MemoryError> {
        let many = at.len().min(MAX_POINTERS);
        let mut bytes = vec![0; CLOSURE * many];
        let mut pieces: Vec<Piece<'_>> =
            at.iter().zip(bytes.chunks_mut(CLOSURE)).map(|(at, into)| Piece::new(*at, into)).collect();
        memory.read(&mut pieces)?;
        let mut caught = BTreeSet::new();
        for piece in pieces.iter().filter(|piece| piece.whole) {
            let code = word(piece.into, 0).filter(|code| sought.contains(code));
            let mut inside = words(piece.into).skip(1);
            match code {
                Some(_) if self.receivers.len() < MAX_RECEIVERS => {
                    self.receivers.extend(inside.next().filter(is_pointer));
                }
                _ => caught.extend(inside.filter(is_pointer)),
            }
        }
        Ok(caught)
    }
}

pub(super) fn is_pointer(word: &u64) -> bool {
    word.is_multiple_of(8) && USER.contains(word)
}
