//! Family `wire` of a loaded [`Kernel`]: on and off.

use std::os::fd::BorrowedFd;

use aya::Ebpf;

use super::{
    at_once::Loaded,
    error::KernelError,
    functions::FunctionPrograms,
    load::{Kernel, LoadOptions, map_fd},
    wire_probes::WireProbes,
};

/// What is loaded of it.
pub(super) struct Wire {
    /// What its programs may sit on: the first of these are loaded.
    candidates: &'static [WireProbes],
    functions: Option<FunctionPrograms>,
    /// Why none are.
    refused: Option<String>,
}

impl Wire {
    /// The programs of aya that the best of its candidates needs.
    pub(super) fn ahead(options: &LoadOptions) -> &'static [&'static str] {
        let best = options.wire.and_then(|_| options.wire_probes.first());
        best.map_or(&[], |best| best.programs())
    }

    /// Loads the first that the kernel takes.
    pub(super) fn load(ebpf: &mut Ebpf, object: &[u8], options: &LoadOptions, loaded: &mut Loaded) -> Self {
        let mut wire = Self { candidates: options.wire_probes, functions: None, refused: None };
        if options.wire.is_none() {
            (wire.candidates, wire.refused) = (&[], Some("left out".to_owned()));
        } else if let Err(why) = wire.load_first(ebpf, Some((object, options)), loaded) {
            wire.refused = Some(why.to_string());
        }
        wire
    }

    /// Loads the first of its candidates that the kernel takes, and forgets those before it. Functions need the object.
    ///
    /// # Errors
    ///
    /// Why the last was refused.
    fn load_first(
        &mut self,
        ebpf: &mut Ebpf,
        object: Option<(&[u8], &LoadOptions)>,
        loaded: &mut Loaded,
    ) -> Result<(), KernelError> {
        let mut why = KernelError::Preempted;
        while let [probes, others @ ..] = self.candidates {
            let done = match (probes, object) {
                (WireProbes::Functions, Some((object, options))) => {
                    let loaded = FunctionPrograms::load(object, options, |name| map_fd(ebpf, name));
                    loaded.map(|loaded| self.functions = Some(loaded))
                }
                _ => probes.load(ebpf, loaded),
            };
            match done {
                Ok(()) => return Ok(()),
                Err(refused) => why = refused,
            }
            self.candidates = others;
        }
        Err(why)
    }

    fn attach(&mut self, ebpf: &mut Ebpf) -> Result<(), KernelError> {
        while let [probes, others @ ..] = self.candidates {
            let attached = match &mut self.functions {
                Some(functions) => functions.attach(),
                None => probes.attach(ebpf),
            };
            let Err(refused) = attached else { return Ok(()) };
            self.detach(ebpf);
            if others.is_empty() {
                return Err(refused);
            }
            (self.candidates, self.functions) = (others, None);
            self.load_first(ebpf, None, &mut Loaded::default())?;
        }
        Err(KernelError::Preempted)
    }

    fn detach(&mut self, ebpf: &mut Ebpf) {
        match (&mut self.functions, self.candidates.first()) {
            (Some(functions), _) => functions.detach(),
            (None, Some(probes)) => probes.detach(ebpf),
            (None, None) => {}
        }
    }

    /// Each program that aya has not loaded.
    pub(super) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.functions.iter().flat_map(FunctionPrograms::fds)
    }
}

impl Kernel {
    /// Why the programs of family `wire` cannot be attached; `None` when they can.
    #[must_use]
    pub fn wire_refused(&self) -> Option<&str> {
        self.wire.refused.as_deref()
    }

    /// On what the programs of family `wire` are; `None`: nowhere.
    #[must_use]
    pub fn wire_probes(&self) -> Option<WireProbes> {
        self.wire.candidates.first().copied()
    }

    /// Attaches the programs of family `wire`. Whoever answers must be watched before: of a process that is not, no answer
    /// is seen.
    ///
    /// # Errors
    ///
    /// The kernel refuses all that they may sit on; then none of them is left attached.
    pub fn attach_wire(&mut self) -> Result<(), KernelError> {
        self.wire.attach(&mut self.ebpf)
    }

    /// Takes the programs of family `wire` off. What they had open stays open for ever.
    pub fn detach_wire(&mut self) {
        self.wire.detach(&mut self.ebpf);
        self.wire.refused = Some("detached".to_owned());
    }
}
