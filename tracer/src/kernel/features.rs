//! [`probe_features`]: what this kernel allows, found by trying, never by version number.

use std::{ffi::CString, os::fd::AsFd};

use aya::{
    maps::MapType,
    programs::ProgramType,
    sys::{BpfHelper, is_helper_supported, is_map_supported, is_program_supported},
};
use aya_obj::generated::bpf_insn;

use super::sys;
use crate::{chain::chain, preflight::Features};

/// Asks the kernel. Needs the privileges that loading needs; attaches nothing.
#[must_use]
pub fn probe_features() -> Features {
    let program = |t| is_program_supported(t).map_err(|e| chain(&e));
    Features {
        uprobe_programs: program(ProgramType::KProbe),
        raw_tracepoints: program(ProgramType::RawTracePoint),
        ring_buffer: is_map_supported(MapType::RingBuf).map_err(|e| chain(&e)),
        cookies: is_helper_supported(ProgramType::KProbe, BpfHelper::BPF_FUNC_get_attach_cookie)
            .map_err(|e| chain(&e)),
        uprobe_multi: uprobe_multi(),
    }
}

/// Tries to link a do-nothing program to a directory: a kernel with uprobe_multi says that it is not a file (EBADF),
/// one without does not know the link type (EINVAL).
fn uprobe_multi() -> Result<bool, String> {
    let insns = [insn(0xb7, 0), insn(0x95, 0)];
    let license = CString::new("GPL").expect("no zero inside");
    let program = match sys::load_multi_program("plegtrace_probe", &license, &insns) {
        Ok(fd) => fd,
        Err((e, _)) if e.raw_os_error() == Some(libc::EINVAL) => return Ok(false),
        Err((e, _)) => return Err(e.to_string()),
    };
    let root = CString::new("/").expect("no zero inside");
    match sys::link_uprobe_multi(program.as_fd(), &root, &[0], &[0]) {
        Ok(_) => Ok(true),
        Err(e) => Ok(e.raw_os_error() == Some(libc::EBADF)),
    }
}

/// An instruction with opcode `code` on register 0.
fn insn(code: u8, imm: i32) -> bpf_insn {
    bpf_insn { code, _bitfield_align_1: [], _bitfield_1: bpf_insn::new_bitfield_1(0, 0), off: 0, imm }
}
