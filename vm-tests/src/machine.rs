//! What the tests ask of the tracer: how to load on this kernel, and the containerd of this guest as a target.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use plegtrace::cli::SocketBackend;
use plegtrace::input::Component;
use plegtrace::kernel::{AttachMode, LoadOptions, WireProbes};
use plegtrace::plan::{Budget, Plan, Planner};
use plegtrace::probes::Inspected;
use plegtrace::target::KernelOffsets;

use crate::wait::{self, BUDGET};

/// How `plegtrace` would load here; only processes that a test names are watched.
///
/// # Errors
/// When the kernel's type information lacks something.
pub fn load_options(mode: AttachMode) -> Result<LoadOptions> {
    let offsets = KernelOffsets::load(Path::new("/")).context("no offsets for this kernel")?;
    ensure!(offsets.missing().is_empty(), "this kernel has no member {:?}", offsets.missing());
    Ok(LoadOptions {
        mode,
        settings: offsets.settings(false),
        ring_bytes: None,
        hooks: plegtrace_common::site::MAX_HOOKS,
        processes: true,
        parks: true,
        preemption: offsets.preemption(),
        wire: Some(offsets.wire().context("no offsets for the source wire")?),
        wire_probes: WireProbes::candidates(SocketBackend::Auto),
        socket_functions: offsets.socket_functions(),
    })
}

/// The guest's containerd, running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Containerd {
    /// Its process.
    pub pid: u32,
}

impl Containerd {
    /// The process that systemd has started for the unit.
    ///
    /// # Errors
    /// When the unit is not running.
    pub fn running() -> Result<Self> {
        let mut show = Command::new("systemctl");
        let text = wait::output(show.args(["show", "--property=MainPID", "--value", "containerd"]), BUDGET)?;
        let pid = text.trim().parse().with_context(|| format!("systemd says {text:?}"))?;
        ensure!(pid != 0, "containerd is not running");
        Ok(Self { pid })
    }

    /// What was read from its executable.
    ///
    /// # Errors
    /// When nothing in it can be probed.
    pub fn inspect(self) -> Result<Inspected> {
        Inspected::of_process(Component::Containerd, self.pid, "containerd")
            .context("containerd cannot be probed")
    }

    /// The byte of its memory at `code_offset` from the start of its code: the first of an instruction, or the
    /// breakpoint that a probe puts there.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn text_byte(self, code_offset: u64) -> Result<u8> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).context("containerd is gone")?;
        let start = start_code(&stat).context("no start of code in its stat")?;
        let memory = fs::File::open(format!("/proc/{}/mem", self.pid)).context("cannot open its memory")?;
        let mut byte = [0];
        memory.read_exact_at(&mut byte, start + code_offset).context("cannot read its code")?;
        Ok(byte[0])
    }
}

/// The plan for one executable, as small as on kernels without uprobe_multi.
#[must_use]
pub fn plan(inspected: &Inspected) -> Plan {
    let mut planner = Planner::new(Budget::Few);
    planner.add(&inspected.facts);
    planner.finish()
}

/// Field 26 of `/proc/PID/stat` (proc(5)); the name in field 2 may contain spaces.
fn start_code(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(26 - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Our own code begins where our executable is mapped.
    #[test]
    fn start_of_our_code() {
        let start = start_code(&fs::read_to_string("/proc/self/stat").unwrap()).unwrap();
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let code = maps.lines().find(|line| line.contains(" r-xp ")).unwrap();
        let mapped = u64::from_str_radix(code.split('-').next().unwrap(), 16).unwrap();
        assert_eq!(start & !0xfff, mapped);
    }
}
