//! [`ProcessKind`]: what a process does for the node.

use std::fmt;

use crate::{
    correlate::{
        helpers::helper_late_after_ns,
        programs::{cni_late_after_ns, hook_late_after_ns},
        thresholds,
    },
    input::Component,
};

/// The program that makes containers of bundles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OciRuntime {
    /// runc, and whatever is called like it.
    #[default]
    Runc,
    /// crun.
    Crun,
    /// youki.
    Youki,
    /// sysbox-runc.
    Sysbox,
    /// runsc, of gVisor.
    Runsc,
}

impl OciRuntime {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Runc => "runc",
            Self::Crun => "crun",
            Self::Youki => "youki",
            Self::Sysbox => "sysbox-runc",
            Self::Runsc => "runsc",
        }
    }

    /// The one with this name, of those that are known by nothing else.
    pub(super) fn like_runc(program: &str) -> Option<Self> {
        [Self::Youki, Self::Sysbox, Self::Runsc].into_iter().find(|one| one.name() == program)
    }

    /// Is it known what its commands take on a sound node? Those that make a machine of their own take longer.
    #[must_use]
    pub fn is_measured(self) -> bool {
        matches!(self, Self::Runc | Self::Crun)
    }
}

/// What a process does for the node. Texts come from the node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProcessKind {
    /// A command of runc or crun.
    Runc {
        /// Which of them.
        by: OciRuntime,
        /// "create", "start", …; empty when its command line could not be read.
        sub: String,
    },
    /// `runc init`, or the fork of crun, up to the `execve` that makes it the workload.
    RuncInit {
        /// Which of them made it.
        by: OciRuntime,
    },
    /// A containerd shim.
    Shim {
        /// "start" or "delete"; `None` is the server, which lives as long as its pod.
        action: Option<String>,
    },
    /// A CNI plugin.
    Cni {
        /// Name of the program.
        plugin: String,
        /// "ADD", "DEL", …
        action: Option<String>,
    },
    /// What runc runs beside the workload: an OCI hook.
    Hook {
        /// Name of the program.
        program: String,
    },
    /// Another program of a component.
    Helper {
        /// Name of the program.
        program: String,
    },
    /// First process of a container, or of an exec.
    Workload,
    /// Born, and still running the program of who started it.
    Starting,
    /// A component of the node that is no short-lived process.
    Component(Component),
}

impl ProcessKind {
    /// Stable name for JSON.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Runc { .. } => "runc",
            Self::RuncInit { .. } => "runc_init",
            Self::Shim { .. } => "shim",
            Self::Cni { .. } => "cni",
            Self::Hook { .. } => "hook",
            Self::Helper { .. } => "helper",
            Self::Workload => "workload",
            Self::Starting => "starting",
            Self::Component(_) => "component",
        }
    }

    /// Is it meant to be over soon, and worth a row of figures?
    #[must_use]
    pub fn is_short_lived(&self) -> bool {
        match self {
            Self::Runc { .. }
            | Self::RuncInit { .. }
            | Self::Cni { .. }
            | Self::Hook { .. }
            | Self::Helper { .. } => true,
            Self::Shim { action } => action.is_some(),
            Self::Workload | Self::Starting | Self::Component(_) => false,
        }
    }

    /// The age from which it is a stall, when this component started it; `None`: never by its age.
    pub(super) fn late_after_ns(&self, parent: Option<Component>) -> Option<u64> {
        match self {
            Self::Runc { sub, .. } => thresholds::runc_late_after_ns(sub),
            Self::RuncInit { .. } => Some(thresholds::RUNC_NS),
            Self::Cni { plugin, .. } => Some(cni_late_after_ns(plugin)),
            Self::Hook { program } => Some(hook_late_after_ns(program)),
            Self::Shim { action } => action.is_some().then_some(thresholds::SHIM_HELPER_NS),
            Self::Helper { program } => helper_late_after_ns(&[program], parent?),
            Self::Workload | Self::Starting | Self::Component(_) => None,
        }
    }
}

impl fmt::Display for ProcessKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Runc { by, sub } if sub.is_empty() => write!(f, "{} (command not read)", by.name()),
            Self::Runc { by, sub } => write!(f, "{} {sub}", by.name()),
            Self::RuncInit { by } => write!(f, "{} init", by.name()),
            Self::Shim { action: Some(action) } => write!(f, "shim {action}"),
            Self::Shim { action: None } => write!(f, "shim"),
            Self::Cni { plugin, action: Some(action) } => write!(f, "CNI {plugin} {action}"),
            Self::Cni { plugin, action: None } => write!(f, "CNI {plugin}"),
            Self::Hook { program } => write!(f, "hook {program}"),
            Self::Helper { program } => write!(f, "{program}"),
            Self::Workload => write!(f, "container process"),
            Self::Starting => write!(f, "starting"),
            Self::Component(component) => write!(f, "{}", component.name()),
        }
    }
}
