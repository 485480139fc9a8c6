//! Which requests make a runtime run which programs: [`Work`] and [`may_start`].
//!
//! As containerd 1.4 to 2.1 (pkg/cri, runtime/v2) and CRI-O do it: a sandbox has its network set up, a shim and a pause
//! container; a container is created and started by `StartContainer` (containerd) or by two requests (CRI-O).

use plegtrace_common::role::Role;

use crate::correlate::{
    processes::{ProcessKind, Run},
    thresholds::SECOND_NS,
};

/// What a CRI method makes the runtime run programs for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Work {
    RunSandbox,
    StopSandbox,
    RemoveSandbox,
    CreateContainer,
    StartContainer,
    StopContainer,
    RemoveContainer,
    ExecSync,
    /// A command whose input and output are streamed: it begins when the client connects.
    ExecStreamed,
    Update,
}

/// What a request needs to be taken for the one that started a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Needs {
    /// That no other request could have.
    Alone,
    /// That it is known to be about the container of the program: the runtime also runs such programs by itself, when a
    /// container ends.
    Id,
}

impl Work {
    /// The work of a CRI method; `None` when it needs no programs.
    pub(super) fn of(operation: &str) -> Option<Self> {
        Some(match operation {
            "RunPodSandbox" => Self::RunSandbox,
            "StopPodSandbox" => Self::StopSandbox,
            "RemovePodSandbox" => Self::RemoveSandbox,
            "CreateContainer" => Self::CreateContainer,
            "StartContainer" => Self::StartContainer,
            "StopContainer" => Self::StopContainer,
            "RemoveContainer" => Self::RemoveContainer,
            "ExecSync" => Self::ExecSync,
            "Exec" => Self::ExecStreamed,
            "UpdateContainerResources" => Self::Update,
            _ => return None,
        })
    }

    /// For so long after its end programs may still be started for it: a stream can be begun a minute after it was asked
    /// for (`cacheTTL` in k8s.io/kubelet/pkg/cri/streaming/request_cache.go).
    pub(super) fn starts_later_ns(self) -> u64 {
        if self == Self::ExecStreamed { 60 * SECOND_NS } else { 0 }
    }

    /// It is about a whole pod: its sandbox, and containers that are left in it.
    pub(super) fn is_of_pod(self) -> bool {
        matches!(self, Self::StopSandbox | Self::RemoveSandbox)
    }

    /// It makes something new: no two requests of this sort are about the same container.
    fn makes(self) -> bool {
        matches!(self, Self::RunSandbox | Self::CreateContainer | Self::StartContainer)
    }
}

/// What `work` needs to be taken for the one that started a program; `None`: it never does.
pub(super) fn may_start(work: Work, run: &Run) -> Option<Needs> {
    use Work::{CreateContainer, ExecStreamed, ExecSync, RunSandbox, StartContainer, Update};
    let alone = |yes: bool| yes.then_some(Needs::Alone);
    let ends =
        matches!(work, Work::StopSandbox | Work::RemoveSandbox | Work::StopContainer | Work::RemoveContainer);
    // Both clean up what failed half-way.
    let cleans = ends || matches!(work, RunSandbox | StartContainer);
    match &run.kind {
        ProcessKind::Cni { action, .. } => {
            let sets = || work == RunSandbox;
            let tears = || matches!(work, RunSandbox | Work::StopSandbox | Work::RemoveSandbox);
            match action.as_deref() {
                Some("ADD" | "CHECK") => alone(sets()),
                Some("DEL") | None => alone(tears()),
                Some(_) => None,
            }
        }
        ProcessKind::Runc { sub } => match sub.as_str() {
            "create" => alone(matches!(work, RunSandbox | CreateContainer | StartContainer)),
            "start" => alone(matches!(work, RunSandbox | StartContainer)),
            "exec" => alone(matches!(work, ExecSync | ExecStreamed)),
            "update" => alone(work == Update),
            "kill" if ends => Some(Needs::Alone),
            "kill" | "delete" => cleans.then_some(Needs::Id),
            _ => None,
        },
        ProcessKind::Shim { action } => match action.as_deref() {
            Some("start") => alone(matches!(work, RunSandbox | StartContainer)),
            Some("delete") => cleans.then_some(Needs::Id),
            _ => None,
        },
        ProcessKind::RuncInit
        | ProcessKind::Hook { .. }
        | ProcessKind::Helper { .. }
        | ProcessKind::Workload
        | ProcessKind::Starting
        | ProcessKind::Component(_) => None,
    }
}

/// Does a request run such a program once at most?
pub(super) fn is_once(run: &Run) -> bool {
    matches!(&run.kind, ProcessKind::Runc { sub } if matches!(sub.as_str(), "create" | "start" | "exec" | "update"))
}

/// Is a request about the container of a program the only one that can have started it?
pub(super) fn id_proves(work: Work, run: &Run) -> bool {
    work.makes() && (is_once(run) || !matches!(run.kind, ProcessKind::Runc { .. }))
}

/// Was a program started by this runtime, as far as its parent tells? What a shim starts may be of any runtime.
pub(super) fn is_of_runtime(run: &Run, tgid: u32) -> bool {
    match run.parent_role {
        Role::Shim | Role::Conmon => matches!(run.kind, ProcessKind::Runc { .. }),
        Role::Containerd | Role::Crio | Role::Dockerd | Role::CriDockerd => run.parent == Some(tgid),
        Role::None | Role::Kubelet | Role::Runc | Role::Helper | Role::Workload => false,
    }
}
