//! Programs built with `debug-log` say what they do, through aya-log. Needs root and the debug object.

use std::{path::Path, process::Command};

use plegtrace::{
    kernel::{AttachMode, Kernel, LoadOptions},
    target::KernelOffsets,
};
use plegtrace_lab::host::require_root;

/// An exec on this machine is told by the program that saw it.
#[test]
fn programs_speak() {
    require_root().unwrap();
    let path = std::env::var_os("PLEGTRACE_BPF_OBJECT_DEBUG")
        .expect("PLEGTRACE_BPF_OBJECT_DEBUG names the object with debug-log; run: cargo xtask test");
    let object = std::fs::read(path).unwrap();
    let offsets = KernelOffsets::load(Path::new("/")).unwrap();
    let options = LoadOptions {
        mode: AttachMode::PerfCookie,
        settings: offsets.settings(false),
        ring_bytes: None,
        hooks: plegtrace_common::site::MAX_HOOKS,
        processes: true,
        parks: true,
        preemption: offsets.preemption(),
        wire: None,
        wire_probes: &[],
        socket_functions: None,
    };
    let mut kernel = Kernel::load_object(&object, &options).unwrap();
    let mut child = Command::new("true").spawn().unwrap();
    let wanted = format!("proc_exec of {}", child.id());
    child.wait().unwrap();
    let lines = kernel.debug_lines();
    assert!(lines.contains(&wanted), "no line {wanted:?} among {lines:?}");
}
