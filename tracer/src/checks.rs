//! [`Report`]: what the checks of this machine came to, in order from basic to special, and what that means for a run.
//!
//! Plain data between [`preflight`](crate::preflight), which looks at the machine, and
//! [`render`](crate::render), which must not.

/// What one check came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// As it should be.
    Ok,
    /// plegtrace runs, but sees less or costs more.
    Warn,
    /// plegtrace cannot run.
    Fail,
    /// Could not be asked.
    Unknown,
}

impl State {
    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
            Self::Unknown => "unknown",
        }
    }
}

/// One question and its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Stable name, for scripts.
    pub id: &'static str,
    /// The subject, for people.
    pub what: &'static str,
    /// The answer.
    pub state: State,
    /// The answer in words; of a failed check a clause that stands alone in an error message. May quote the node's
    /// files: escape it where it is rendered.
    pub detail: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Check {
    /// An answer without a hint.
    #[must_use]
    pub fn new(id: &'static str, what: &'static str, state: State, detail: impl Into<String>) -> Self {
        Self { id, what, state, detail: detail.into(), hint: None }
    }

    /// The same with what to do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// All answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// From basic to special: the first failure explains those after it.
    pub checks: Vec<Check>,
}

/// Why plegtrace cannot run here: the most basic failure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{sentence}")]
pub struct Blocked {
    /// The check that failed.
    pub id: &'static str,
    /// In words.
    pub sentence: String,
    /// What to do.
    pub hint: Option<String>,
}

impl Report {
    /// Why plegtrace cannot run here, if it cannot: one sentence, and what to do. Exit code 3.
    #[must_use]
    pub fn blocking(&self) -> Option<Blocked> {
        let check = self.checks.iter().find(|check| check.state == State::Fail)?;
        Some(Blocked { id: check.id, sentence: check.detail.clone(), hint: check.hint.clone() })
    }

    /// The check with this id.
    #[must_use]
    pub fn check(&self, id: &str) -> Option<&Check> {
        self.checks.iter().find(|check| check.id == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first failure in the list is the one that is told, with its hint.
    #[test]
    fn first_failure_blocks() {
        let report = Report {
            checks: vec![
                Check::new("a", "a", State::Warn, "weak"),
                Check::new("b", "b", State::Fail, "no root").hint("run: sudo plegtrace"),
                Check::new("c", "c", State::Fail, "no ring buffer"),
            ],
        };
        let blocked = report.blocking().unwrap();
        assert_eq!((blocked.id, blocked.to_string().as_str()), ("b", "no root"));
        assert_eq!(blocked.hint.as_deref(), Some("run: sudo plegtrace"));
    }

    /// Warnings and open questions do not keep plegtrace from trying.
    #[test]
    fn only_failures_block() {
        let checks = [State::Ok, State::Warn, State::Unknown].map(|s| Check::new("x", "x", s, "")).to_vec();
        assert_eq!(Report { checks }.blocking(), None);
    }
}
