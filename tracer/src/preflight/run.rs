//! [`run`]: all checks in order. The order is the point: whoever lacks privileges must not read that the ring buffer is
//! missing.

use std::path::Path;

use super::{
    facts::Facts,
    features::{self, Features},
    host,
    mode::{AttachMode, ModeError, attach_mode},
    privilege,
};
use crate::{
    checks::{Check, Report, State},
    cli::Attach,
};

/// What the caller knows or wants.
#[derive(Clone, Debug)]
pub struct Given<'a> {
    /// The eBPF programs are in this binary.
    pub object_embedded: bool,
    /// What the kernel allows; `None` when it was not asked.
    pub features: Option<&'a Features>,
    /// How the operator wants probes to be attached.
    pub attach: Attach,
}

/// Runs every check against the files below `root` (`/`, except in tests). Attaches nothing.
#[must_use]
pub fn run(root: &Path, given: &Given<'_>) -> Report {
    judge(&Facts::read(root), given)
}

/// The checks over facts already read. Pure.
#[must_use]
pub fn judge(facts: &Facts, given: &Given<'_>) -> Report {
    let mut checks = vec![
        host::object(given.object_embedded),
        host::processor(facts),
        privilege::privileges(facts),
        privilege::user_namespace(facts),
        privilege::pid_namespace(facts),
        privilege::lockdown(facts),
    ];
    // Answers that were given to somebody without privileges say nothing about the kernel.
    let allowed = checks[2..].iter().all(|check| check.state != State::Fail);
    let features = given.features.filter(|_| allowed);
    checks.push(features::kernel(facts, features));
    checks.extend(features::needs(facts, features));
    let mode = features.map(|features| attach_mode(features, given.attach));
    checks.push(btf(facts));
    checks.push(attach(mode.as_ref()));
    checks.push(perf_events(facts, mode.as_ref()));
    checks.push(privilege::hidepid(facts));
    checks.push(unprivileged_bpf(facts));
    Report { checks }
}

type Mode<'a> = Option<&'a Result<AttachMode, ModeError>>;

/// How probes will be attached, and what that costs.
fn attach(mode: Mode<'_>) -> Check {
    let check = |state, detail: String| Check::new("attach", "attach mode", state, detail);
    match mode {
        None => check(State::Unknown, "cannot be checked without privileges".to_owned()),
        Some(Err(error)) => check(State::Fail, error.to_string()).hint(error.hint()),
        Some(Ok(mode @ AttachMode::Multi)) => check(
            State::Ok,
            format!("{}: all probes of an executable are attached and detached at once", mode.name()),
        ),
        Some(Ok(mode @ (AttachMode::PerfCookie | AttachMode::PerfAddress))) => {
            let detail = format!("{}: detaching takes about 0.1 s per probe", mode.name());
            check(State::Warn, detail)
                .hint("Linux 6.6 and later have uprobe_multi, which detaches all of them at once")
        }
    }
}

/// The types of the kernel: offsets in its structures come from there.
fn btf(facts: &Facts) -> Check {
    let check = |state, detail: String| Check::new("btf", "kernel types (BTF)", state, detail);
    match &facts.btf {
        Ok(()) => check(State::Ok, "/sys/kernel/btf/vmlinux".to_owned()),
        Err(why) => {
            check(State::Fail, format!("no kernel type information (BTF): /sys/kernel/btf/vmlinux: {why}"))
                .hint("needs a kernel with CONFIG_DEBUG_INFO_BTF (Linux 5.4 and later), and /sys mounted")
        }
    }
}

/// `kernel.perf_event_paranoid` binds only those who attach through perf events without CAP_SYS_ADMIN.
fn perf_events(facts: &Facts, mode: Mode<'_>) -> Check {
    let check = |state, detail: String| Check::new("perf_events", "perf events", state, detail);
    match mode {
        None => check(State::Unknown, "unknown whether they are used".to_owned()),
        Some(Err(_) | Ok(AttachMode::Multi)) => check(State::Ok, "not used".to_owned()),
        Some(Ok(_)) if privilege::may_use_perf(facts) => {
            check(State::Ok, "allowed by CAP_SYS_ADMIN".to_owned())
        }
        Some(Ok(_)) => {
            let paranoid = match facts.perf_event_paranoid {
                Some(level) if level > 2 => format!(", and kernel.perf_event_paranoid is {level}"),
                _ => String::new(),
            };
            let detail =
                format!("some distributions' kernels allow uprobes only with CAP_SYS_ADMIN{paranoid}");
            check(State::Warn, detail).hint("run: sudo plegtrace")
        }
    }
}

/// Often blamed, never guilty: it binds only processes without privileges.
fn unprivileged_bpf(facts: &Facts) -> Check {
    let level = facts.unprivileged_bpf_disabled.map_or("unknown".to_owned(), |level| level.to_string());
    let detail = format!("kernel.unprivileged_bpf_disabled is {level}: does not affect plegtrace");
    Check::new("unprivileged_bpf", "unprivileged BPF", State::Ok, detail)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::preflight::{
        Lockdown,
        sample::{every_feature, node, on},
    };

    fn given(features: Option<&Features>) -> Given<'_> {
        Given { object_embedded: true, features, attach: Attach::Auto }
    }

    fn blocked_by(facts: &Facts, features: Option<&Features>) -> Option<&'static str> {
        judge(facts, &given(features)).blocking().map(|blocked| blocked.id)
    }

    /// A good node passes every check, each under its own id.
    #[test]
    fn good_node() {
        let report = judge(&node(), &given(Some(&every_feature())));
        assert!(report.checks.iter().all(|check| check.state == State::Ok), "{report:#?}");
        let ids: HashSet<_> = report.checks.iter().map(|check| check.id).collect();
        assert_eq!(ids.len(), report.checks.len());
    }

    /// Without root the kernel's answers are worth nothing: the advice is sudo, whatever they are.
    #[test]
    fn no_root_is_not_a_missing_ring_buffer() {
        let user = Facts { euid: Some(1000), capabilities: Some(0), ..node() };
        let refused = Features { ring_buffer: Ok(false), uprobe_programs: Ok(false), ..every_feature() };
        let report = judge(&user, &given(Some(&refused)));
        assert_eq!(report.blocking().unwrap().hint.as_deref(), Some("run: sudo plegtrace"));
        assert_eq!(report.check("ring_buffer").unwrap().state, State::Unknown);
    }

    /// From basic to special: object, privileges, namespaces, lockdown, kernel.
    #[test]
    fn basic_before_special() {
        let bare = Features { ring_buffer: Ok(false), ..every_feature() };
        let mut facts = on("4.18.0-80.el8");
        assert_eq!(blocked_by(&facts, Some(&bare)), Some("kernel"));
        facts.lockdown = Lockdown::Confidentiality;
        assert_eq!(blocked_by(&facts, Some(&bare)), Some("lockdown"));
        facts.initial_pid_ns = Some(false);
        assert_eq!(blocked_by(&facts, Some(&bare)), Some("pid_namespace"));
        facts.initial_user_ns = Some(false);
        assert_eq!(blocked_by(&facts, Some(&bare)), Some("user_namespace"));
        facts.capabilities = Some(0);
        assert_eq!(blocked_by(&facts, Some(&bare)), Some("privileges"));
        let stub = Given { object_embedded: false, ..given(Some(&bare)) };
        assert_eq!(judge(&facts, &stub).blocking().unwrap().id, "object");
    }

    /// Without kernel types nothing can be read; a kernel too old to have them is called too old first.
    #[test]
    fn no_btf() {
        let facts = Facts { btf: Err("there is no such file".to_owned()), ..node() };
        assert_eq!(blocked_by(&facts, Some(&every_feature())), Some("btf"));
        let old = Facts { btf: facts.btf, ..on("4.18.0-80.el8") };
        let bare = Features { ring_buffer: Ok(false), ..every_feature() };
        assert_eq!(blocked_by(&old, Some(&bare)), Some("kernel"));
    }

    /// Perf events cost time at the end, and need CAP_SYS_ADMIN.
    #[test]
    fn perf_modes() {
        let perf = Features { uprobe_multi: Ok(false), ..every_feature() };
        let report = judge(&node(), &given(Some(&perf)));
        assert!(report.check("attach").unwrap().detail.contains("0.1 s"));
        assert_eq!(report.check("perf_events").unwrap().state, State::Ok);
        let few = Facts { capabilities: Some(1 << 39 | 1 << 38 | 1 << 19), ..node() };
        let perf_events = judge(&few, &given(Some(&perf))).check("perf_events").unwrap().clone();
        assert_eq!(perf_events.state, State::Warn);
        assert!(perf_events.detail.contains("perf_event_paranoid is 3"));
    }

    /// A mode that cannot be had stops plegtrace with the reason.
    #[test]
    fn impossible_mode() {
        let old = Features { uprobe_multi: Ok(false), ..every_feature() };
        let forced = Given { attach: Attach::Multi, ..given(Some(&old)) };
        assert_eq!(judge(&node(), &forced).blocking().unwrap().id, "attach");
    }

    /// A directory without anything in it gives a report, not a panic: no privileges are known there.
    #[test]
    fn empty_tree() {
        let dir = tempfile::tempdir().unwrap();
        let blocked = run(dir.path(), &given(Some(&every_feature()))).blocking().unwrap();
        assert_eq!(blocked.id, "privileges");
        assert!(blocked.hint.unwrap().contains("mount"));
    }
}
