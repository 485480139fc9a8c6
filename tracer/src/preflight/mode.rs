//! [`AttachMode`] and [`attach_mode`]: the way to attach probes that this kernel has and the operator wants.

use super::features::Features;
use crate::cli::Attach;

/// How a site is attached and how its program knows which one fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachMode {
    /// One link for all sites of an executable (kernel ≥ 6.6): on in 10 ms, off in 40 ms.
    Multi,
    /// One perf event per site, with a cookie (≥ 5.15): about 0.1 s per site to take off.
    PerfCookie,
    /// One perf event per site, found by executable and address (5.10 to 5.14).
    PerfAddress,
}

impl AttachMode {
    /// For people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Multi => "uprobe_multi",
            Self::PerfCookie => "perf events with cookies",
            Self::PerfAddress => "perf events by address",
        }
    }
}

/// Why there is no way to attach.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModeError {
    /// The way that was asked for does not exist here.
    #[error("--attach={flag} needs {what}, which this kernel does not have (Linux {since} and later)")]
    Missing {
        /// What is missing.
        what: &'static str,
        /// Where it came in.
        since: &'static str,
        /// What was typed.
        flag: &'static str,
    },
    /// It could not be found out.
    #[error("--attach={flag} needs {what}, and it could not be checked whether this kernel has them: {why}")]
    Unknown {
        /// What may be missing.
        what: &'static str,
        /// The reason.
        why: String,
        /// What was typed.
        flag: &'static str,
    },
    /// No program can be attached to a function at all.
    #[error("this kernel cannot load programs for uprobes")]
    NoUprobes,
}

impl ModeError {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Missing { .. } | Self::Unknown { .. } => "omit --attach: plegtrace chooses the best mode",
            Self::NoUprobes => "needs a kernel with CONFIG_BPF_EVENTS and CONFIG_UPROBE_EVENTS",
        }
    }
}

/// The best way this kernel has (`uprobe_multi`, then cookies, then addresses), or the one that was asked for.
///
/// What could not be found out is not chosen.
///
/// # Errors
///
/// The kernel has no uprobe programs, or not what was asked for.
pub fn attach_mode(features: &Features, wanted: Attach) -> Result<AttachMode, ModeError> {
    if features.uprobe_programs == Ok(false) {
        return Err(ModeError::NoUprobes);
    }
    match wanted {
        Attach::Auto if features.uprobe_multi == Ok(true) => Ok(AttachMode::Multi),
        Attach::Auto if features.cookies == Ok(true) => Ok(AttachMode::PerfCookie),
        Attach::Auto | Attach::Address => Ok(AttachMode::PerfAddress),
        Attach::Multi => {
            forced(&features.uprobe_multi, "uprobe_multi links", "6.6", "multi").map(|()| AttachMode::Multi)
        }
        Attach::Cookie => {
            forced(&features.cookies, "uprobe cookies", "5.15", "cookie").map(|()| AttachMode::PerfCookie)
        }
    }
}

fn forced(
    feature: &Result<bool, String>,
    what: &'static str,
    since: &'static str,
    flag: &'static str,
) -> Result<(), ModeError> {
    match feature {
        Ok(true) => Ok(()),
        Ok(false) => Err(ModeError::Missing { what, since, flag }),
        Err(why) => Err(ModeError::Unknown { what, why: why.clone(), flag }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn features(cookies: Result<bool, String>, multi: Result<bool, String>) -> Features {
        Features {
            uprobe_programs: Ok(true),
            raw_tracepoints: Ok(true),
            ring_buffer: Ok(true),
            cookies,
            uprobe_multi: multi,
        }
    }

    /// The best of what there is.
    #[test]
    fn auto() {
        let auto = |cookies, multi| attach_mode(&features(cookies, multi), Attach::Auto);
        assert_eq!(auto(Ok(true), Ok(true)), Ok(AttachMode::Multi));
        assert_eq!(auto(Ok(true), Ok(false)), Ok(AttachMode::PerfCookie));
        assert_eq!(auto(Ok(false), Ok(false)), Ok(AttachMode::PerfAddress));
        assert_eq!(auto(Ok(true), Err("EPERM".to_owned())), Ok(AttachMode::PerfCookie));
    }

    /// A way that does not exist is refused by its name and the kernel that has it.
    #[test]
    fn forced_but_impossible() {
        let error = attach_mode(&features(Ok(true), Ok(false)), Attach::Multi).unwrap_err();
        assert_eq!(
            error.to_string(),
            "--attach=multi needs uprobe_multi links, which this kernel does not have (Linux 6.6 and later)"
        );
        let error = attach_mode(&features(Err("EPERM".to_owned()), Ok(true)), Attach::Cookie).unwrap_err();
        assert!(error.to_string().contains("EPERM"));
    }

    /// A worse way than the best can be forced.
    #[test]
    fn forced_and_possible() {
        let all = features(Ok(true), Ok(true));
        assert_eq!(attach_mode(&all, Attach::Cookie), Ok(AttachMode::PerfCookie));
        assert_eq!(attach_mode(&all, Attach::Address), Ok(AttachMode::PerfAddress));
    }

    /// Without uprobe programs there is no way at all.
    #[test]
    fn no_uprobes() {
        let mut none = features(Ok(true), Ok(true));
        none.uprobe_programs = Ok(false);
        assert_eq!(attach_mode(&none, Attach::Auto), Err(ModeError::NoUprobes));
    }
}
