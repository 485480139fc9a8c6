//! [`DoctorView`]: what is shown, as plain data.

use crate::{
    checks::{Report, State},
    input::{Component, Layer, Presence, RefusedFact},
};

/// Everything that `plegtrace doctor` shows. Texts are still raw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DoctorView {
    /// Version of plegtrace.
    pub tool_version: String,
    /// Host name.
    pub node: String,
    /// `uname -r`.
    pub kernel: String,
    /// The checks of the machine.
    pub report: Report,
    /// Kubelet, runtime and what belongs to them.
    pub programs: Vec<ProgramRow>,
    /// Traces of components.
    pub presence: Vec<Presence>,
    /// What is not probed, and why.
    pub refused: Vec<RefusedFact>,
}

/// A process and the probes planned in its executable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramRow {
    /// What it is.
    pub component: Component,
    /// Process id; 0: no process runs it all the time.
    pub pid: u32,
    /// Path of the executable as the process sees it.
    pub exe: String,
    /// Version of the program.
    pub version: Option<String>,
    /// Version of Go that built it.
    pub go_version: Option<String>,
    /// CRI or Docker socket it serves or uses.
    pub socket: Option<String>,
    /// Why plegtrace is not proved on it, if it is not.
    pub unproved: Option<String>,
    /// What is to be known about its probes.
    pub note: Option<String>,
    /// The probes.
    pub hooks: Vec<HookRow>,
}

/// A hook of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookRow {
    /// CRI method or function.
    pub operation: String,
    /// gRPC service, or the Go type.
    pub service: String,
    /// Where it stands in the chain.
    pub layer: Layer,
    /// Full Go symbol.
    pub symbol: String,
    /// Number of probe sites.
    pub sites: u32,
    /// What a hit of them costs; `None` when not known.
    pub prices: Option<Prices>,
}

/// Sites of a hook by what a hit costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prices {
    /// The kernel emulates the instruction: about 0.65 µs in a VM.
    pub emulated: u32,
    /// The kernel executes a copy and takes a second trap: about 9 µs in a VM.
    pub single_stepped: u32,
}

/// Can plegtrace run here?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every check says yes.
    CanRun,
    /// One says no.
    CannotRun,
    /// None says no, but not all could be asked.
    NotKnown,
}

impl DoctorView {
    /// Can plegtrace run here?
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let any = |state| self.report.checks.iter().any(|check| check.state == state);
        if any(State::Fail) {
            Verdict::CannotRun
        } else if self.report.checks.is_empty() || any(State::Unknown) {
            Verdict::NotKnown
        } else {
            Verdict::CanRun
        }
    }
}
