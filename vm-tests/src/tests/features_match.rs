//! What the tracer finds out about this kernel by trying is what the kernel's version says.

use std::path::Path;

use anyhow::{Result, bail};
use plegtrace::kernel::{can_switch_preemption_off, probe_features};
use plegtrace::target::KernelOffsets;

use crate::feature::Feature;
use crate::kernel::KernelVersion;

/// Compares each answer with the version; Debian's kernels have no feature before its time.
///
/// # Errors
/// Naming the answers that are wrong.
pub fn run() -> Result<String> {
    let kernel = KernelVersion::running()?;
    let found = probe_features();
    let functions = KernelOffsets::load(Path::new("/"))?.preemption();
    let preemption = Ok(functions.is_some_and(can_switch_preemption_off));
    let has = |feature: Feature| kernel >= feature.since();
    let answers = [
        ("uprobe programs", &found.uprobe_programs, true),
        ("raw tracepoints", &found.raw_tracepoints, true),
        ("ring buffer", &found.ring_buffer, has(Feature::RingBuf)),
        ("cookies", &found.cookies, has(Feature::UprobeCookie)),
        ("uprobe_multi", &found.uprobe_multi, has(Feature::UprobeMulti)),
        ("preemption off", &preemption, has(Feature::PreemptDisable)),
    ];
    let said: Vec<String> = answers
        .iter()
        .map(|(name, answer, _)| match answer {
            Ok(true) => format!("{name} yes"),
            Ok(false) => format!("{name} no"),
            Err(why) => format!("{name} unknown ({why})"),
        })
        .collect();
    let said = said.join(", ");
    if answers.iter().any(|(_, answer, expected)| answer.as_ref() != Ok(expected)) {
        bail!("wrong for Linux {kernel}: {said}");
    }
    Ok(said)
}
