//! [`Code`]: what unwinding must know about the program's functions, and [`ProgramCode`], which knows it of a real one.

use std::collections::HashMap;
use std::sync::MutexGuard;

use super::program::Program;
use super::unwind::Return;
use crate::target::{Functions, Machine};

/// More addresses than this are not remembered; a busy kubelet has some thousands on its stacks.
const MAX_REMEMBERED: usize = 20_000;

/// What a function means for a walk up the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Called, and returns.
    Ordinary,
    /// The end of every stack: what called the first function of a goroutine.
    Bottom,
    /// Put there by a signal: its caller was interrupted anywhere, not in a call.
    Injected,
    /// Changes to another stack: only to be trusted as the innermost function.
    Switch,
}

/// An address in the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Index of its function.
    pub function: u32,
    /// Bytes on the stack there; `None` when not known.
    pub depth: Option<u32>,
    /// What the function means.
    pub kind: Kind,
}

/// The functions of a program.
pub trait Code {
    /// What is at an address of the process. It may be one that a call returns to: like the runtime, this looks up the
    /// address itself, because what a runtime function left behind can be the first address of another one, and the
    /// compiler lets no function end with a call.
    fn place(&mut self, pc: u64) -> Option<Place>;
    /// Where return addresses are.
    fn returns(&self) -> Return;
    /// Full name of a function.
    fn name(&self, function: u32) -> Option<&str>;
    /// Does it keep its argument `n` (the receiver is 0, an interface counts twice) in the word above its return address
    /// that its caller has for it? False when that is not known.
    fn keeps_argument(&self, function: u32, n: usize) -> bool;
}

/// What was looked up of the functions of an executable, by addresses of its file.
#[derive(Debug, Default)]
pub(super) struct Known {
    places: HashMap<u64, Option<Place>>,
    names: HashMap<u32, String>,
}

impl Known {
    /// Forgets everything when it is too much.
    fn make_room(&mut self) {
        if self.places.len() >= MAX_REMEMBERED {
            *self = Self::default();
        }
    }
}

/// The functions of an executable, where a process has them.
#[derive(Debug)]
pub(super) struct ProgramCode<'a> {
    functions: &'a Functions,
    bias: u64,
    known: MutexGuard<'a, Known>,
}

impl<'a> ProgramCode<'a> {
    /// `bias` is what the process adds to every address of the file.
    pub(super) fn new(program: &'a Program, bias: u64) -> Self {
        let mut known = program.known();
        known.make_room();
        Self { functions: &program.functions, bias, known }
    }

    fn look_up(&mut self, vaddr: u64) -> Option<Place> {
        let function = self.functions.index_at(vaddr)?;
        if !self.known.names.contains_key(&function) {
            self.known.names.insert(function, self.functions.name(function)?);
        }
        let kind = kind(self.known.names.get(&function)?);
        Some(Place { function, depth: self.functions.stack_depth_at(vaddr), kind })
    }
}

impl Code for ProgramCode<'_> {
    fn place(&mut self, pc: u64) -> Option<Place> {
        let vaddr = pc.checked_sub(self.bias)?;
        if let Some(known) = self.known.places.get(&vaddr) {
            return *known;
        }
        let place = self.look_up(vaddr);
        // What does not fit any more is looked up each time: names that were given stay.
        if self.known.places.len() < MAX_REMEMBERED {
            self.known.places.insert(vaddr, place);
        }
        place
    }

    fn returns(&self) -> Return {
        match self.functions.machine() {
            Machine::X86_64 => Return::Pushed,
            Machine::Aarch64 => Return::Link,
        }
    }

    fn name(&self, function: u32) -> Option<&str> {
        self.known.names.get(&function).map(String::as_str)
    }

    fn keeps_argument(&self, function: u32, n: usize) -> bool {
        self.functions.keeps_argument(function, n)
    }
}

/// Source: `topofstack`, `sigpanic` and `asyncPreempt` in `gentraceback` and `unwinder.next` (runtime/traceback.go);
/// `systemstack` and `gogo` write the stack
/// pointer (runtime/asm_amd64.s). `asmcgocall` does so too, but arranges both stacks to be unwound through it.
fn kind(name: &str) -> Kind {
    let Some(name) = name.strip_prefix("runtime.") else { return Kind::Ordinary };
    match name.strip_suffix(".abi0").unwrap_or(name) {
        "goexit" | "mstart" | "mcall" | "morestack" | "rt0_go" => Kind::Bottom,
        "sigpanic" | "asyncPreempt" | "debugCallV1" | "debugCallV2" => Kind::Injected,
        "systemstack" | "gogo" => Kind::Switch,
        _ => Kind::Ordinary,
    }
}
