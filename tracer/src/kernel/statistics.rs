//! What the verifier says about each program when it accepts it → how many instructions it walked through.
//!
//! Programs are loaded as aya loads them: with the types of their functions. Without these the verifier walks through a
//! global function once for each call instead of once, and its figure is that of another program.
//!
//! `verified_insns` of `bpf_prog_info` exists since 5.16 only; the statistics in the log exist since 5.2.

use std::os::fd::{AsFd, OwnedFd};

use aya_obj::{Object, ProgramSection, generated::bpf_prog_type};

use super::{
    error::KernelError,
    load::{self, LoadOptions},
    multi, object, sys,
};

/// Every program of the object.
const PROGRAMS: [&str; 11] = [
    "call_in",
    "call_out",
    "park_in",
    "park_out",
    "proc_fork",
    "proc_exec",
    "proc_exit",
    "wire_enter",
    "wire_exit",
    "wire_enter_tp",
    "wire_exit_tp",
];

/// How many instructions the verifier walks through for each program in this mode; the kernel gives up at a million.
/// Loads every program and drops it again, attaches nothing.
///
/// # Errors
///
/// The kernel refuses a map or program, or its log has no statistics.
pub fn verified_instructions(options: &LoadOptions) -> Result<Vec<(&'static str, u64)>, KernelError> {
    let ebpf = load::open(object::bytes(), options)?;
    let mut object = multi::parsed(object::bytes(), options)?;
    let types = types(&mut object)?;
    let object = multi::relocated(object, |name| load::map_fd(&ebpf, name))?;
    let one = |name: &'static str| {
        let program = object.programs.get(name).ok_or(KernelError::Missing(name))?;
        let function = object.functions.get(&program.function_key()).ok_or(KernelError::Missing(name))?;
        let kind = match program.section {
            ProgramSection::RawTracePoint => bpf_prog_type::BPF_PROG_TYPE_RAW_TRACEPOINT,
            ProgramSection::TracePoint => bpf_prog_type::BPF_PROG_TYPE_TRACEPOINT,
            _ => bpf_prog_type::BPF_PROG_TYPE_KPROBE,
        };
        let functions = types.as_ref().map(|types| (types.as_fd(), &function.func_info));
        let log = sys::verifier_log(kind, &program.license, &function.instructions, functions)
            .map_err(|(errno, log)| multi::refused(name, &errno, &log))?;
        let summary = format!("no statistics in the log {log:?}");
        processed(&log).map(|n| (name, n)).ok_or(KernelError::Program { program: name, summary })
    };
    // Older kernels have no helper for the registers of a task, and need no events.
    let events = options.preemption.is_some();
    PROGRAMS.into_iter().filter(|name| events || !name.ends_with("_tp")).map(one).collect()
}

/// The types of all programs, in the kernel; `None` where it does not take any.
fn types(object: &mut Object) -> Result<Option<OwnedFd>, KernelError> {
    let Some(features) = aya::features().btf() else { return Ok(None) };
    let types = object.fixup_and_sanitize_btf(features).map_err(|e| KernelError::Relocate(e.to_string()))?;
    let loaded = types.map(|types| sys::load_types(&types.to_bytes())).transpose();
    loaded.map_err(|error| KernelError::Relocate(format!("the kernel does not take the types: {error}")))
}

/// The figure in `processed 123 insns (limit 1000000) ...` (kernel/bpf/verifier.c, `print_verification_stats`).
fn processed(log: &str) -> Option<u64> {
    let line = log.lines().find_map(|line| line.strip_prefix("processed "))?;
    line.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The figure is read from the line that the kernel writes; a log without it is not taken for zero.
    #[test]
    fn figure_of_a_log() {
        let log = "verification time 120 usec\nstack depth 96\nprocessed 731 insns (limit 1000000) max_states_per_insn 4\n";
        assert_eq!(processed(log), Some(731));
        assert_eq!(processed("stack depth 96\n"), None);
    }
}
