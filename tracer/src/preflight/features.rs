//! What the kernel must have, and the words for what it has not.

use super::{facts::Facts, version::KernelVersion};
use crate::checks::{Check, State};

/// What the kernel allows. Each is `Err` with the reason when it could not be asked.
#[derive(Clone, Debug)]
pub struct Features {
    /// Programs for uprobes can be loaded at all.
    pub uprobe_programs: Result<bool, String>,
    /// Programs for raw tracepoints can be loaded.
    pub raw_tracepoints: Result<bool, String>,
    /// BPF ring buffer (since 5.8).
    pub ring_buffer: Result<bool, String>,
    /// `bpf_get_attach_cookie` (since 5.15).
    pub cookies: Result<bool, String>,
    /// uprobe_multi links (since 6.6).
    pub uprobe_multi: Result<bool, String>,
}

/// Said of everything that only root can ask the kernel.
const NOT_ASKED: &str = "cannot be checked without privileges";
/// What to do about a kernel that lacks something.
const NEEDS: &str = "plegtrace needs Linux 5.10 or later, or a kernel with this backported";

/// Something the programs need of the kernel.
struct Need {
    id: &'static str,
    what: &'static str,
    /// First kernel that has it, unless it is left out at build time.
    since: KernelVersion,
    probed: fn(&Features) -> &Result<bool, String>,
}

/// From basic to special. Versions are those of the commits that brought them: 2541517c32be (4.1), c4f6699dfcb8
/// (4.17), 457f44363a88 (5.8).
const NEEDS_TABLE: [Need; 3] = [
    Need {
        id: "uprobe_programs",
        what: "programs for uprobes",
        since: KernelVersion::new(4, 1),
        probed: |f| &f.uprobe_programs,
    },
    Need {
        id: "raw_tracepoints",
        what: "programs for raw tracepoints",
        since: KernelVersion::new(4, 17),
        probed: |f| &f.raw_tracepoints,
    },
    Need {
        id: "ring_buffer",
        what: "BPF ring buffer",
        since: KernelVersion::new(5, 8),
        probed: |f| &f.ring_buffer,
    },
];

impl Need {
    fn came_later(&self, facts: &Facts) -> bool {
        facts.version.is_some_and(|version| version < self.since)
    }

    fn words(&self) -> String {
        format!("{} (since Linux {})", self.what, self.since)
    }

    /// Is it missing? What could not be asked is missing where it had not been invented.
    fn missing(&self, facts: &Facts, features: &Features) -> bool {
        match (self.probed)(features) {
            Ok(there) => !there,
            Err(_) => self.came_later(facts),
        }
    }

    fn check(&self, facts: &Facts, features: Option<&Features>) -> Check {
        let check = |state, detail: String| Check::new(self.id, self.what, state, detail);
        let Some(features) = features else { return check(State::Unknown, NOT_ASKED.to_owned()) };
        match (self.probed)(features) {
            Ok(true) => check(State::Ok, "supported".to_owned()),
            Err(why) if !self.came_later(facts) => {
                check(State::Unknown, format!("could not be checked: {why}"))
            }
            _ => check(State::Fail, format!("this kernel has no {}", self.words())).hint(NEEDS),
        }
    }
}

/// The kernel as a whole: its release, and everything it lacks in one sentence.
pub(super) fn kernel(facts: &Facts, features: Option<&Features>) -> Check {
    let check = |state, detail: String| Check::new("kernel", "kernel", state, detail);
    let release = facts.release.as_deref().unwrap_or("of unknown release");
    let words = |needs: &[&Need]| needs.iter().map(|n| n.words()).collect::<Vec<_>>().join(", ");
    let Some(features) = features else {
        let late: Vec<_> = NEEDS_TABLE.iter().filter(|need| need.came_later(facts)).collect();
        return match facts.version {
            None => check(State::Unknown, format!("Linux {release}")),
            Some(_) if late.is_empty() => check(State::Ok, format!("Linux {release}")),
            Some(_) => {
                let detail = format!("Linux {release} is older than: {}, unless backported", words(&late));
                check(State::Warn, detail).hint("to find out, run: sudo plegtrace doctor")
            }
        };
    };
    let missing: Vec<_> = NEEDS_TABLE.iter().filter(|need| need.missing(facts, features)).collect();
    if missing.is_empty() {
        return check(State::Ok, format!("Linux {release}"));
    }
    let old = missing.iter().any(|need| need.came_later(facts));
    let verdict = if old { "is too old" } else { "was built without required features" };
    check(State::Fail, format!("Linux {release} {verdict}: it has no {}", words(&missing))).hint(NEEDS)
}

/// One check for everything in the table.
pub(super) fn needs(facts: &Facts, features: Option<&Features>) -> Vec<Check> {
    NEEDS_TABLE.iter().map(|need| need.check(facts, features)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::sample::{every_feature, node, on};

    fn nothing() -> Features {
        let not = || Err("bpf: Function not implemented".to_owned());
        Features {
            uprobe_programs: not(),
            raw_tracepoints: not(),
            ring_buffer: not(),
            cookies: not(),
            uprobe_multi: not(),
        }
    }

    /// RHEL 7: not even bpf(2); everything that is missing is named.
    #[test]
    fn linux_3_10() {
        let check = kernel(&on("3.10.0-1160.el7.x86_64"), Some(&nothing()));
        assert_eq!(check.state, State::Fail);
        assert_eq!(
            check.detail,
            "Linux 3.10.0-1160.el7.x86_64 is too old: it has no programs for uprobes (since Linux 4.1), \
             programs for raw tracepoints (since Linux 4.17), BPF ring buffer (since Linux 5.8)"
        );
    }

    /// 4.18 as it came lacks the ring buffer; with it backported, as in later RHEL 8, it is good.
    #[test]
    fn linux_4_18() {
        let facts = on("4.18.0-513.el8.x86_64");
        let bare = Features { ring_buffer: Ok(false), cookies: Ok(false), ..every_feature() };
        let check = kernel(&facts, Some(&bare));
        assert_eq!(check.state, State::Fail);
        assert!(check.detail.ends_with("is too old: it has no BPF ring buffer (since Linux 5.8)"));
        assert_eq!(kernel(&facts, Some(&every_feature())).state, State::Ok);
    }

    /// A young kernel without the feature was built that way; its age is not blamed.
    #[test]
    fn left_out() {
        let without = Features { uprobe_programs: Ok(false), ..every_feature() };
        let check = kernel(&node(), Some(&without));
        assert!(check.detail.contains("was built without") && !check.detail.contains("too old"));
    }

    /// What could not be asked of a kernel that is young enough stays open.
    #[test]
    fn not_answered() {
        assert_eq!(kernel(&node(), Some(&nothing())).state, State::Ok);
        assert!(needs(&node(), Some(&nothing())).iter().all(|c| c.state == State::Unknown));
    }

    /// Without privileges nothing is claimed, only suspected.
    #[test]
    fn not_asked() {
        assert_eq!(kernel(&node(), None).state, State::Ok);
        let old = kernel(&on("4.18.0-80.el8"), None);
        assert_eq!(old.state, State::Warn);
        assert!(old.detail.contains("BPF ring buffer (since Linux 5.8), unless backported"));
        assert!(needs(&node(), None).iter().all(|c| c.state == State::Unknown));
        assert_eq!(kernel(&Facts { version: None, release: None, ..node() }, None).state, State::Unknown);
    }
}
