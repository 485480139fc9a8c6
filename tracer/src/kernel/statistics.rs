//! What the verifier says about each program when it accepts it → how many instructions it walked through.
//!
//! `verified_insns` of `bpf_prog_info` exists since 5.16 only; the statistics in the log exist since 5.2.

use aya_obj::{ProgramSection, generated::bpf_prog_type};

use super::{
    error::KernelError,
    load::{self, LoadOptions},
    multi, object, sys,
};

/// Every program of the object.
const PROGRAMS: [&str; 9] = [
    "call_in",
    "call_out",
    "park_in",
    "park_out",
    "proc_fork",
    "proc_exec",
    "proc_exit",
    "wire_enter",
    "wire_exit",
];

/// How many instructions the verifier walks through for each program in this mode; the kernel gives up at a million.
/// Loads every program and drops it again, attaches nothing.
///
/// # Errors
///
/// The kernel refuses a map or program, or its log has no statistics.
pub fn verified_instructions(options: &LoadOptions) -> Result<Vec<(&'static str, u64)>, KernelError> {
    let ebpf = load::open(object::bytes(), options)?;
    let object = multi::relocated(object::bytes(), |name| load::map_fd(&ebpf, name))?;
    let one = |name: &'static str| {
        let program = object.programs.get(name).ok_or(KernelError::Missing(name))?;
        let function = object.functions.get(&program.function_key()).ok_or(KernelError::Missing(name))?;
        let kind = match program.section {
            ProgramSection::RawTracePoint => bpf_prog_type::BPF_PROG_TYPE_RAW_TRACEPOINT,
            _ => bpf_prog_type::BPF_PROG_TYPE_KPROBE,
        };
        let log = sys::verifier_log(kind, &program.license, &function.instructions)
            .map_err(|(errno, log)| multi::refused(name, &errno, &log))?;
        let summary = format!("no statistics in the log {log:?}");
        processed(&log).map(|n| (name, n)).ok_or(KernelError::Program { program: name, summary })
    };
    PROGRAMS.into_iter().map(one).collect()
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
