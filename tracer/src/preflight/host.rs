//! The processor and this binary: what no setting can change.

use super::facts::Facts;
use crate::checks::{Check, State};

/// Were the eBPF programs built into this binary?
pub(super) fn object(embedded: bool) -> Check {
    let check = |state, detail: &str| Check::new("object", "eBPF programs", state, detail);
    if embedded {
        return check(State::Ok, "built in");
    }
    check(State::Fail, "this plegtrace was built without its eBPF programs")
        .hint("build it with: cargo xtask build")
}

/// The processor: one is proved, one is written for, others are not known.
pub(super) fn processor(facts: &Facts) -> Check {
    let check = |state, detail: String| Check::new("processor", "processor", state, detail);
    match facts.arch {
        "x86_64" => check(State::Ok, facts.arch.to_owned()),
        "aarch64" => check(State::Warn, "aarch64: unproved, no test has run on it yet".to_owned()),
        other => {
            check(State::Fail, format!("{other} is not supported: plegtrace supports x86_64 and aarch64"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::sample::node;

    /// A binary without programs says how to get one with them.
    #[test]
    fn stub() {
        assert_eq!(object(true).state, State::Ok);
        assert!(object(false).hint.unwrap().contains("cargo xtask build"));
    }

    /// arm64 is tried and called unproved; others are refused.
    #[test]
    fn processors() {
        let of = |arch| processor(&Facts { arch, ..node() });
        assert_eq!(of("x86_64").state, State::Ok);
        assert!(of("aarch64").detail.contains("unproved"));
        assert_eq!(of("s390x").state, State::Fail);
    }
}
