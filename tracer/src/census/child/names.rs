//! Names of functions in user space, and of kernel functions that the kernel only gives as addresses.
//!
//! Mappings and symbol tables are read without debug information, which costs up to some MiB per program: it is done
//! for few, and only where something is stuck. Go programs are left out; their stacks are read as goroutines.

use std::path::Path;

use blazesym::{
    Pid,
    symbolize::{
        Input, Symbolizer,
        source::{Kernel, Process, Source},
    },
};

/// Longest name that is kept.
const MAX_NAME: usize = 512;

/// Names addresses; keeps what it parsed.
pub(super) struct Names {
    symbolizer: Symbolizer,
}

impl Names {
    pub(super) fn new() -> Self {
        let symbolizer = Symbolizer::builder().enable_code_info(false).enable_inlined_fns(false).build();
        Self { symbolizer }
    }

    /// The function of user space at an address of a process. Waits for its memory lock, and for the disk.
    pub(super) fn user(&self, pid: u32, address: u64) -> Option<String> {
        let mut process = Process::new(Pid::from(pid));
        process.debug_syms = false;
        // A map of symbols that the process writes itself is a text anybody can forge.
        process.perf_map = false;
        process.vdso = false;
        self.name(&Source::Process(process), address)
    }

    /// The kernel function at an address.
    pub(super) fn kernel(&self, address: u64) -> Option<String> {
        let kernel = Kernel { debug_syms: false, ..Kernel::default() };
        self.name(&Source::Kernel(kernel), address)
    }

    fn name(&self, source: &Source<'_>, address: u64) -> Option<String> {
        let found = self.symbolizer.symbolize_single(source, Input::AbsAddr(address)).ok()?;
        let name = found.into_sym()?.name.into_owned();
        (name.len() <= MAX_NAME).then_some(name)
    }
}

/// Is it a Go program, by the sections that its linker makes? `None` when the file cannot be read.
pub(super) fn is_go(exe: &Path) -> Option<bool> {
    let file = std::fs::File::open(exe).ok()?;
    let cache = object::ReadCache::new(file);
    let elf = object::File::parse(&cache).ok()?;
    let go = [".go.buildinfo", ".gopclntab"];
    Some(go.iter().any(|name| object::Object::section_by_name(&elf, name).is_some()))
}
