//! What the verifier says about each program when it accepts it → how many instructions it walked through.
//!
//! Programs are loaded as aya loads them: with the types of their functions. Without these the verifier walks through a
//! global function once for each call instead of once, and its figure is that of another program.
//!
//! `verified_insns` of `bpf_prog_info` exists since 5.16 only; the statistics in the log exist since 5.2.

use aya_obj::{ProgramSection, generated::bpf_prog_type};

use super::{
    error::KernelError,
    functions,
    load::{self, LoadOptions},
    multi, object, sys,
    wire_probes::WireProbes,
};

/// Every program of the object whose figure [`verified_instructions`] gives.
pub const VERIFIED_PROGRAMS: [&str; 16] = [
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
    "wire_send",
    "wire_sent",
    "wire_receive",
    "wire_received",
    "wire_connected",
];

/// How many instructions the verifier walks through for each program that these options want; the kernel gives up at a million.
/// Loads each and drops it again, attaches nothing.
///
/// # Errors
///
/// The kernel refuses a map or program, or its log has no statistics.
pub fn verified_instructions(options: &LoadOptions) -> Result<Vec<(&'static str, u64)>, KernelError> {
    let ebpf = load::open(object::bytes(), options)?;
    let mut object = multi::parsed(object::bytes(), options)?;
    let types = multi::types(&mut object)?;
    let object = multi::relocated(object, |name| load::map_fd(&ebpf, name))?;
    let one = |name: &'static str| {
        let on = functions::target(name, options.socket_functions);
        let mut code = functions::code(&object, name, types.as_ref(), on)?;
        code.kind = match object.programs[name].section {
            ProgramSection::RawTracePoint => bpf_prog_type::BPF_PROG_TYPE_RAW_TRACEPOINT,
            ProgramSection::TracePoint => bpf_prog_type::BPF_PROG_TYPE_TRACEPOINT,
            ProgramSection::FEntry { .. } | ProgramSection::FExit { .. } => code.kind,
            _ => bpf_prog_type::BPF_PROG_TYPE_KPROBE,
        };
        let log = sys::verifier_log(&code).map_err(|(errno, log)| multi::refused(name, &errno, &log))?;
        let summary = format!("no statistics in the log {log:?}");
        processed(&log).map(|n| (name, n)).ok_or(KernelError::Program { program: name, summary })
    };
    // Older kernels have no helper for the registers of a task, and need no events.
    let events = options.preemption.is_some();
    let on_functions = options.wire_probes.contains(&WireProbes::Functions);
    let of_family = |name: &str| match name.split('_').next() {
        Some("park") => options.parks,
        Some("proc") => options.processes,
        Some("wire") => options.wire.is_some(),
        _ => true,
    };
    let is_there = |name: &str| match functions::target(name, Some([0; 3])) {
        Some(_) => on_functions,
        None => events || !name.ends_with("_tp"),
    };
    let wanted = |name: &&str| of_family(name) && is_there(name);
    VERIFIED_PROGRAMS.into_iter().filter(wanted).map(one).collect()
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
