//! The programs of family `wire` on functions of the kernel: fentry and fexit.
//!
//! aya 0.14 finds a function by parsing all types of the kernel a second time, which takes memory that `watch` would keep for
//! months. Here the ids come from those who have read the types already ([`crate::target`]), and the object is relocated once
//! more, as for `multi`.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use aya_obj::{
    Object,
    generated::{bpf_attach_type, bpf_prog_type},
};

use super::{
    at_once::at_once,
    error::KernelError,
    load::LoadOptions,
    multi,
    sys::{self, Code},
};

/// What is on the returns of `unix_stream_sendmsg`, `unix_stream_recvmsg` and `unix_stream_connect` (net/unix/af_unix.c), and on the
/// begins of the first two.
const EXITS: [&str; 3] = ["wire_sent", "wire_received", "wire_connected"];
const ENTRIES: [&str; 2] = ["wire_send", "wire_receive"];

/// The programs, and their links while they are attached.
pub(super) struct FunctionPrograms {
    exits: [OwnedFd; 3],
    entries: [OwnedFd; 2],
    /// Dropped from the first to the last: entries go before exits.
    links: Vec<OwnedFd>,
}

impl FunctionPrograms {
    /// Loads the programs over existing maps.
    ///
    /// # Errors
    ///
    /// This kernel has no such functions, or does not take a program.
    pub(super) fn load<'a>(
        object: &[u8],
        options: &LoadOptions,
        map_fd: impl Fn(&str) -> Option<BorrowedFd<'a>>,
    ) -> Result<Self, KernelError> {
        let mut object = multi::parsed(object, options)?;
        let types = multi::types(&mut object)?;
        let object = multi::relocated(object, map_fd)?;
        let one = |name: &'static str| {
            let on = target(name, options.socket_functions).ok_or(KernelError::NoFunction)?;
            let code = code(&object, name, types.as_ref(), Some(on))?;
            sys::load_program(name, &code).map_err(|(errno, log)| multi::refused(name, &errno, &log))
        };
        // The largest first.
        let [send, receive] = ENTRIES;
        let [sent, received, connected] = EXITS;
        let all = at_once(vec![send, sent, received, connected, receive], one).into_iter();
        let all = all.collect::<Result<Vec<OwnedFd>, KernelError>>()?;
        let [send, sent, received, connected, receive]: [OwnedFd; 5] =
            all.try_into().expect("as many as were asked for");
        Ok(Self { exits: [sent, received, connected], entries: [send, receive], links: Vec::new() })
    }

    /// Attaches the programs, exits first.
    ///
    /// # Errors
    ///
    /// The kernel refuses; none is left attached.
    pub(super) fn attach(&mut self) -> Result<(), KernelError> {
        for program in self.exits.iter().chain(&self.entries) {
            let link = sys::link_function(program.as_fd());
            match link {
                Ok(link) => self.links.insert(0, link),
                Err(source) => {
                    self.links.clear();
                    return Err(KernelError::Syscall { command: "BPF_RAW_TRACEPOINT_OPEN", source });
                }
            }
        }
        Ok(())
    }

    /// Detaches the programs, entries first.
    pub(super) fn detach(&mut self) {
        self.links.clear();
    }

    /// Each program.
    pub(super) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.exits.iter().chain(&self.entries).map(AsFd::as_fd)
    }
}

/// For which function this program is, by its id, and for which of its ends; `None` of programs for others.
pub(super) fn target(name: &str, ids: Option<[u32; 3]>) -> Option<(u32, bpf_attach_type)> {
    let place = |names: &[&str]| names.iter().position(|it| *it == name);
    let exit = place(&EXITS).map(|place| (place, bpf_attach_type::BPF_TRACE_FEXIT));
    let (place, end) = exit.or(place(&ENTRIES).map(|place| (place, bpf_attach_type::BPF_TRACE_FENTRY)))?;
    Some((ids?[place], end))
}

/// A program of a relocated object, as one for a function.
pub(super) fn code<'a>(
    object: &'a Object,
    name: &'static str,
    types: Option<&'a OwnedFd>,
    on: Option<(u32, bpf_attach_type)>,
) -> Result<Code<'a>, KernelError> {
    let program = object.programs.get(name).ok_or(KernelError::Missing(name))?;
    let function = object.functions.get(&program.function_key()).ok_or(KernelError::Missing(name))?;
    Ok(Code {
        kind: bpf_prog_type::BPF_PROG_TYPE_TRACING,
        license: &program.license,
        insns: &function.instructions,
        functions: types.map(|types| (types.as_fd(), &function.func_info)),
        on,
    })
}
