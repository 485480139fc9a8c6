//! Which program a run is, and what proves that a request started it. Which method starts which programs stands in
//! [`crate::cri`].

use plegtrace_common::role::Role;

use crate::{
    correlate::processes::{ProcessKind, Run},
    cri::{Method, Program, Proof},
};

/// What a request of this method needs to be taken for the one that started a program; `None`: it never does.
pub(super) fn may_start(method: Method, run: &Run) -> Option<Proof> {
    method.may_start(program(&run.kind)?)
}

/// The program, when it is one that requests start.
fn program(kind: &ProcessKind) -> Option<Program> {
    let program = match kind {
        ProcessKind::Cni { action, .. } => match action.as_deref() {
            Some("ADD" | "CHECK") => Program::CniAdd,
            Some("DEL") | None => Program::CniDel,
            Some(_) => return None,
        },
        ProcessKind::Runc { sub, .. } => match sub.as_str() {
            "create" => Program::RuncCreate,
            "start" => Program::RuncStart,
            "exec" => Program::RuncExec,
            "update" => Program::RuncUpdate,
            "kill" => Program::RuncKill,
            "delete" => Program::RuncDelete,
            _ => return None,
        },
        ProcessKind::Shim { action } => match action.as_deref() {
            Some("start") => Program::ShimStart,
            Some("delete") => Program::ShimDelete,
            _ => return None,
        },
        ProcessKind::RuncInit { .. }
        | ProcessKind::Hook { .. }
        | ProcessKind::Helper { .. }
        | ProcessKind::Workload
        | ProcessKind::Starting
        | ProcessKind::Component(_) => return None,
    };
    Some(program)
}

/// Does a request run such a program once at most?
pub(super) fn is_once(run: &Run) -> bool {
    use Program::{RuncCreate, RuncExec, RuncStart, RuncUpdate};
    matches!(program(&run.kind), Some(RuncCreate | RuncStart | RuncExec | RuncUpdate))
}

/// Is a request about the container of a program the only one that can have started it?
pub(super) fn id_proves(method: Method, run: &Run) -> bool {
    method.makes() && (is_once(run) || !matches!(run.kind, ProcessKind::Runc { .. }))
}

/// Was a program started by this runtime, as far as its parent tells? What a shim starts may be of any runtime.
pub(super) fn is_of_runtime(run: &Run, tgid: u32) -> bool {
    match run.parent_role {
        Role::Shim | Role::Conmon => matches!(run.kind, ProcessKind::Runc { .. }),
        Role::Containerd | Role::Crio | Role::Dockerd | Role::CriDockerd => run.parent == Some(tgid),
        Role::None | Role::Kubelet | Role::Runc | Role::Helper | Role::Workload => false,
    }
}
