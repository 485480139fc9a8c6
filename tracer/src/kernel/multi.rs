//! The uprobe programs once more, loaded for uprobe_multi links over the maps that aya made.
//!
//! aya 0.14 loads uprobe programs without `expected_attach_type`, so its programs cannot be linked that way; aya-obj
//! can parse and relocate the same object a second time.

use std::{
    collections::HashSet,
    ffi::CString,
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    os::unix::ffi::OsStrExt,
    path::Path,
};

use aya_obj::Object;

use super::{attach::Probe, error::KernelError, load::LoadOptions, object, sys, verifier};

/// The programs, ready to be linked.
pub(super) struct MultiPrograms {
    call_in: OwnedFd,
    call_out: OwnedFd,
    /// `park_in` and `park_out`.
    parks: Option<[OwnedFd; 2]>,
}

impl MultiPrograms {
    /// Loads the programs over existing maps; those of parks may be refused alone, which is what comes second.
    ///
    /// # Errors
    ///
    /// The object cannot be relocated or the kernel refuses a program of calls.
    pub(super) fn load<'a>(
        object: &[u8],
        options: &LoadOptions,
        map_fd: impl Fn(&str) -> Option<BorrowedFd<'a>>,
    ) -> Result<(Self, Option<KernelError>), KernelError> {
        let object = relocated(parsed(object, options)?, map_fd)?;
        let (call_in, call_out) = (load_one(&object, "call_in")?, load_one(&object, "call_out")?);
        let pair = || Ok([load_one(&object, "park_in")?, load_one(&object, "park_out")?]);
        let (parks, refused) = match options.parks.then(pair).transpose() {
            Ok(parks) => (parks, None),
            Err(why) => (None, Some(why)),
        };
        Ok((Self { call_in, call_out, parks }, refused))
    }

    /// Each program that is loaded.
    pub(super) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [&self.call_in, &self.call_out].into_iter().chain(self.parks.iter().flatten()).map(AsFd::as_fd)
    }

    fn program(&self, probe: Probe) -> Option<&OwnedFd> {
        match probe {
            Probe::Start => Some(&self.call_in),
            Probe::End => Some(&self.call_out),
            Probe::Park => self.parks.as_ref().map(|[park, _]| park),
            Probe::Resume => self.parks.as_ref().map(|[_, resume]| resume),
        }
    }

    /// Links the program of a probe to sites of one executable.
    ///
    /// # Errors
    ///
    /// errno of the link.
    pub(super) fn link(
        &self,
        probe: Probe,
        path: &Path,
        offsets: &[u64],
        cookies: &[u64],
    ) -> io::Result<OwnedFd> {
        let program = self.program(probe).ok_or(io::Error::from(io::ErrorKind::NotFound))?;
        let path = CString::new(path.as_os_str().as_bytes())?;
        sys::link_uprobe_multi(program.as_fd(), &path, offsets, cookies)
    }
}

/// The object once more, as it is for this kernel.
///
/// # Errors
///
/// aya-obj cannot parse it.
pub(super) fn parsed(object: &[u8], options: &LoadOptions) -> Result<Object, KernelError> {
    Object::parse(&object::for_this_kernel(object, options.preemption))
        .map_err(|error| KernelError::Relocate(error.to_string()))
}

/// The types of all programs, in the kernel; `None` where it does not take any.
pub(super) fn types(object: &mut Object) -> Result<Option<OwnedFd>, KernelError> {
    let Some(features) = aya::features().btf() else { return Ok(None) };
    let types = object.fixup_and_sanitize_btf(features).map_err(|e| KernelError::Relocate(e.to_string()))?;
    let loaded = types.map(|types| sys::load_types(&types.to_bytes())).transpose();
    loaded.map_err(|error| KernelError::Relocate(format!("the kernel does not take the types: {error}")))
}

/// Relocates it over maps that exist.
///
/// # Errors
///
/// aya-obj cannot relocate it.
pub(super) fn relocated<'a>(
    mut object: Object,
    map_fd: impl Fn(&str) -> Option<BorrowedFd<'a>>,
) -> Result<Object, KernelError> {
    let relocate = |e: &dyn std::error::Error| KernelError::Relocate(e.to_string());
    let text: HashSet<usize> = object.functions.keys().map(|(section, _)| *section).collect();
    let maps: Vec<_> = std::mem::take(&mut object.maps).into_iter().collect();
    let mut fds = Vec::new();
    for (name, map) in &maps {
        // In the place of a map that is left out aya-obj puts another one of the same section.
        let fd = map_fd(name).ok_or_else(|| KernelError::Relocate(format!("there is no map {name}")))?;
        fds.push((name.as_str(), fd.as_raw_fd(), map));
    }
    object.relocate_maps(fds.into_iter(), &text).map_err(|e| relocate(&e))?;
    object.relocate_calls(&text).map_err(|e| relocate(&e))?;
    Ok(object)
}

fn load_one(object: &Object, name: &'static str) -> Result<OwnedFd, KernelError> {
    let program = object.programs.get(name).ok_or(KernelError::Missing(name))?;
    let function = object.functions.get(&program.function_key()).ok_or(KernelError::Missing(name))?;
    sys::load_multi_program(name, &program.license, &function.instructions)
        .map_err(|(errno, log)| refused(name, &errno, &log))
}

/// A refusal with what the verifier said.
pub(super) fn refused(program: &'static str, errno: &io::Error, log: &str) -> KernelError {
    let summary =
        if log.is_empty() { errno.to_string() } else { format!("{errno}: {}", verifier::summary(log)) };
    KernelError::Program { program, summary }
}
