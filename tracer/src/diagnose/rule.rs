//! [`Rule`]: one known cause, as data, with the function that recognises it.

use super::{Finding, Scene};

/// One known cause. Its page is what `plegtrace explain ID` prints.
#[derive(Debug)]
pub struct Rule {
    /// For ever the same; never given to another cause.
    pub id: &'static str,
    /// What happens, in one sentence without a subject of this node.
    pub title: &'static str,
    /// Where the cause lies.
    pub area: Area,
    /// What it is recognised by must be at least this old, nanoseconds.
    pub min_age_ns: u64,
    /// How our tests prove it.
    pub proof: Proof,
    /// Everything to be known about it.
    pub page: Page,
    /// Looks for it.
    pub examine: fn(&Scene<'_>) -> Vec<Finding>,
}

/// Where a cause lies, in the order of the chain from the kubelet on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Area {
    /// The kubelet.
    Kubelet,
    /// containerd, CRI-O, dockerd.
    Runtime,
    /// A shim, or the way to it.
    Shim,
    /// runc, its init or a hook.
    Runc,
    /// systemd, D-Bus.
    Bus,
    /// A network plugin.
    Cni,
    /// The kernel, or storage.
    Kernel,
    /// No single culprit.
    Overload,
    /// Not the runtime, although it looks so.
    LookAlike,
}

impl Area {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Kubelet => "kubelet",
            Self::Runtime => "container runtime",
            Self::Shim => "shim",
            Self::Runc => "runc",
            Self::Bus => "systemd and D-Bus",
            Self::Cni => "network plugin",
            Self::Kernel => "kernel or storage",
            Self::Overload => "overload",
            Self::LookAlike => "look-alike",
        }
    }
}

/// How our tests prove that a rule recognises its cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// The real programs, as distributions ship them, were brought into this state.
    Real,
    /// The real program was rebuilt with the defect, and brought into this state.
    Rebuilt,
    /// The real programs waited, and a program that we wrote played the one that they wait for.
    Scripted,
    /// Only streams of facts written by hand. Confidence is never more than medium.
    Story,
}

impl Proof {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Real => "real",
            Self::Rebuilt => "rebuilt",
            Self::Scripted => "scripted",
            Self::Story => "story",
        }
    }
}

/// What is to be known about a cause.
#[derive(Debug)]
pub struct Page {
    /// How it comes about.
    pub mechanism: &'static str,
    /// Who is affected, and since when it is mended.
    pub versions: &'static str,
    /// What logs and conditions say, word by word.
    pub symptoms: &'static [&'static str],
    /// What plegtrace must see to name it.
    pub evidence: &'static [&'static str],
    /// What forbids it.
    pub excluded_by: &'static [&'static str],
    /// What to do.
    pub next: &'static [&'static str],
    /// What not to do, or what it costs.
    pub trap: &'static str,
    /// Where it was reported or read.
    pub sources: &'static [&'static str],
}
