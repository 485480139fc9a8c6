//! [`Span`]: one watched process, and what is known of the program it runs.

use plegtrace_common::{
    rec::{PROCESS_CRUN, PROCESS_EXECED, PROCESS_INIT},
    role::Role,
};

use super::{super::thresholds, OciRuntime, ProcessKind};
use crate::{
    decode::{MonoNs, Process},
    input::{Command, CommandFact, Component, KnownFact, WatchedFact, Weight},
};

/// A watched process that has not ended as far as records tell.
#[derive(Clone, Debug)]
pub(super) struct Span {
    pub(super) pid: u32,
    /// When its program began; `None` when before the probes.
    pub(super) start: Option<MonoNs>,
    /// The last record of it.
    pub(super) seen: MonoNs,
    pub(super) parent: Option<u32>,
    pub(super) role: Role,
    pub(super) parent_role: Role,
    flags: u32,
    pub(super) comm: String,
    command: Option<Command>,
    /// Its own, or that of the runc it works for.
    pub(super) container: Option<String>,
    pub(super) bundle: Option<String>,
    /// Sub-command of the runc it works for.
    pub(super) under: Option<String>,
    /// The runc it works for.
    pub(super) works_for: Option<u32>,
    /// Of a runc: what it made has become the command, or the workload.
    pub(super) has_begun: bool,
    /// Readings of the kernel's map in a row that contradict it.
    pub(super) contradicted: u8,
}

impl Span {
    /// A process as a record tells of it.
    pub(super) fn new(process: &Process) -> Self {
        Self {
            pid: process.meta.tgid,
            start: process.since,
            seen: process.meta.at,
            parent: process.parent,
            role: process.role,
            parent_role: process.parent_role,
            flags: process.flags,
            comm: process.comm.clone(),
            command: None,
            container: None,
            bundle: None,
            under: None,
            works_for: None,
            has_begun: false,
            contradicted: 0,
        }
    }

    /// A process that is only known from the kernel's map, or from a preamble.
    pub(super) fn found(fact: &WatchedFact, at: MonoNs) -> Self {
        let known = fact.known.clone().unwrap_or_default();
        Self {
            pid: fact.pid,
            start: (fact.since_ns != 0).then_some(MonoNs(fact.since_ns)),
            seen: at,
            parent: (fact.parent != 0).then_some(fact.parent),
            role: Role::from_u32(fact.role),
            parent_role: Role::from_u32(fact.parent_role),
            flags: fact.flags,
            comm: known.comm,
            command: known.command,
            container: known.container,
            bundle: known.bundle,
            under: known.under,
            works_for: known.works_for,
            has_begun: known.has_begun,
            contradicted: 0,
        }
    }

    /// All that is known of it, as the map of the kernel would tell it if that knew as much.
    pub(super) fn retold(&self) -> WatchedFact {
        WatchedFact {
            pid: self.pid,
            role: self.role as u32,
            parent_role: self.parent_role as u32,
            since_ns: self.start.map_or(0, |start| start.0),
            parent: self.parent.unwrap_or(0),
            flags: self.flags,
            known: Some(KnownFact {
                comm: self.comm.clone(),
                command: self.command.clone(),
                container: self.container.clone(),
                bundle: self.bundle.clone(),
                under: self.under.clone(),
                works_for: self.works_for,
                has_begun: self.has_begun,
            }),
        }
    }

    /// What its texts take, bytes.
    pub(super) fn bytes(&self) -> usize {
        let texts = [&self.container, &self.bundle, &self.under].into_iter().flatten();
        let texts = texts.map(String::len).sum::<usize>();
        self.comm.len() + texts + Weight::of(&self.command).bytes
    }

    /// Takes over whom it works for from the process that made it.
    pub(super) fn inherit(&mut self, from: &Self) {
        self.container.clone_from(&from.container);
        self.bundle.clone_from(&from.bundle);
        let own = from.command.as_ref().and_then(Command::sub).filter(|sub| *sub != "init");
        self.under = own.map(str::to_owned).or_else(|| from.under.clone());
        // What `runc init` and the forks of crun make works for the same runc.
        let is_command = from.role == Role::Runc && from.executed() && from.flags & PROCESS_INIT == 0;
        self.works_for = if is_command { Some(from.pid) } else { from.works_for };
    }

    /// The same program as the one a map entry stands for?
    pub(super) fn is(&self, fact: &WatchedFact) -> bool {
        self.start.map_or(0, |start| start.0) == fact.since_ns && self.role as u32 == fact.role
    }

    /// Is this already the program that the record of an exec tells of? Then the map was read before the record.
    pub(super) fn runs(&self, process: &Process) -> bool {
        (self.start, self.role, self.flags) == (process.since, process.role, process.flags)
    }

    /// It has become another program.
    pub(super) fn replace(&mut self, process: &Process) {
        let before = std::mem::replace(self, Self::new(process));
        (self.container, self.bundle, self.under) = (before.container, before.bundle, before.under);
        self.works_for = before.works_for;
    }

    /// The same program goes on under another name.
    pub(super) fn goes_on(&mut self, process: &Process) {
        (self.seen, self.flags) = (process.meta.at, process.flags);
        self.comm.clone_from(&process.comm);
    }

    /// Learns what it was told to do.
    pub(super) fn told(&mut self, fact: CommandFact) {
        if let Some(container) = fact.command.container() {
            self.container = Some(container.to_owned());
        }
        if let Some(bundle) = fact.command.bundle() {
            self.bundle = Some(bundle.to_owned());
        }
        self.command = Some(fact.command);
    }

    /// It runs a program of its own.
    pub(super) fn executed(&self) -> bool {
        self.flags & PROCESS_EXECED != 0
    }

    /// What it does for the node.
    pub(super) fn kind(&self) -> ProcessKind {
        let own = self.executed() || self.start.is_none();
        let by = if self.flags & PROCESS_CRUN == 0 { OciRuntime::Runc } else { OciRuntime::Crun };
        match self.role {
            Role::Workload => ProcessKind::Workload,
            Role::Runc if self.flags & PROCESS_INIT != 0 => ProcessKind::RuncInit { by },
            Role::Runc if !own && by == OciRuntime::Crun => ProcessKind::RuncInit { by },
            Role::Runc | Role::Helper | Role::Shim if !own => ProcessKind::Starting,
            Role::Runc => match &self.command {
                Some(Command::Runc { sub, .. }) => ProcessKind::Runc { by, sub: sub.clone() },
                _ => ProcessKind::Runc { by, sub: String::new() },
            },
            Role::Shim => match &self.command {
                Some(Command::Shim { action, .. }) => ProcessKind::Shim { action: action.clone() },
                _ => ProcessKind::Shim { action: None },
            },
            Role::Helper => self.helper(),
            Role::None
            | Role::Kubelet
            | Role::Containerd
            | Role::Crio
            | Role::Dockerd
            | Role::CriDockerd
            | Role::Conmon => {
                ProcessKind::Component(Component::of_role(self.role).unwrap_or(Component::Helper))
            }
        }
    }

    fn helper(&self) -> ProcessKind {
        let program = match &self.command {
            Some(Command::Cni { plugin, action, .. }) => {
                return ProcessKind::Cni { plugin: plugin.clone(), action: action.clone() };
            }
            Some(Command::Oci { program, sub, .. }) => {
                let by = OciRuntime::like_runc(program).unwrap_or_default();
                return ProcessKind::Runc { by, sub: sub.clone() };
            }
            Some(Command::Other { program }) => program.clone(),
            _ => self.comm.clone(),
        };
        if self.parent_role == Role::Runc {
            ProcessKind::Hook { program }
        } else {
            ProcessKind::Helper { program }
        }
    }

    /// Could it run for a CRI request? containerd keeps other clients (Docker, `ctr`) in namespaces of their own, which
    /// its shims are told, and which bundles have in their path (`NewBundle` in runtime/v2/bundle.go).
    pub(super) fn may_be_of_cri(&self) -> bool {
        let namespace = match &self.command {
            Some(Command::Shim { namespace, .. }) => namespace.as_deref(),
            _ => None,
        };
        let of_containerd =
            |bundle: &&str| bundle.contains("/io.containerd.runtime.v") && !bundle.contains("/k8s.io/");
        namespace.is_none_or(|name| name == "k8s.io")
            && self.bundle.as_deref().filter(of_containerd).is_none()
    }

    /// The age from which it is a stall; `None`: never by its age.
    pub(super) fn late_after_ns(&self) -> Option<u64> {
        let (kind, parent) = (self.kind(), Component::of_role(self.parent_role));
        match &kind {
            // Of one from before the probes it was not seen whether its command began, nor of other runtimes than runc and crun.
            ProcessKind::Runc { sub, by }
                if thresholds::waits_for_its_command(sub, parent)
                    && (self.has_begun || self.start.is_none() || !by.is_measured()) =>
            {
                None
            }
            _ => kind.late_after_ns(parent),
        }
    }

    /// Was it started by a part of the node, and not by hand or inside a container?
    pub(super) fn is_of_the_node(&self) -> bool {
        !matches!(self.parent_role, Role::None | Role::Workload)
    }
}
