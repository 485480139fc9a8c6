//! [`State`]: what is known now, for whoever asks every few seconds; `plegtrace check` answers from it alone.

use serde::{Deserialize, Serialize};

use super::Runs;
use crate::{
    correlate::Snapshot,
    diagnose::{Diagnosis, Slow, Verdict},
    render::{escape, human, text},
};

pub(crate) const FILE: &str = "state.json";
/// Fields may be added without a new version.
const SCHEMA: u32 = 1;
/// Bytes of an answer: node-problem-detector cuts a longer one.
const LINE: usize = 80;

/// What `check` says, as exit codes do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Nothing is held up.
    Ok,
    /// Something is.
    Problem,
    /// Not known.
    Unknown,
}

/// The file. Texts in it are harmless.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// 1; fields may be added without a new version.
    pub schema_version: u32,
    /// Version of plegtrace.
    pub tool_version: String,
    /// When it was written: wall clock, nanoseconds since 1970.
    pub written_unix_ns: i64,
    /// The same, RFC 3339 in UTC.
    pub written: String,
    /// The same by CLOCK_MONOTONIC, nanoseconds: steps of the wall clock make no state older or younger.
    pub written_mono_ns: u64,
    /// Length of a window, nanoseconds. A state older than two of them says nothing.
    pub window_ns: u64,
    /// What it means.
    pub status: Status,
    /// `healthy`, `stall`, `cannot_tell`, `waiting` (for a kubelet) or `ended`.
    pub verdict: String,
    /// Id of the cause of a stall, when it is known.
    pub id: Option<String>,
    /// The component to blame for a stall, when it is known.
    pub component: Option<String>,
    /// How long it lasted when this was written, nanoseconds.
    pub age_ns: Option<u64>,
    /// It may have lasted longer.
    pub at_least: bool,
    /// In words.
    pub text: String,
    /// What came of the command of `--on-verdict`; `None` without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_verdict: Option<Runs>,
}

/// When something is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) mono_ns: u64,
    pub(super) unix_ns: i64,
}

impl Moment {
    pub(super) fn now() -> Self {
        let mono_ns = crate::clock::monotonic_ns();
        let offset = crate::clock::realtime_offset_ns();
        Self { mono_ns, unix_ns: i64::try_from(mono_ns).unwrap_or(i64::MAX).saturating_add(offset) }
    }
}

impl State {
    /// Nothing observed.
    pub(super) fn blank(now: Moment, window_ns: u64, verdict: &str, text: &str) -> Self {
        Self {
            schema_version: SCHEMA,
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            written_unix_ns: now.unix_ns,
            written: human::rfc3339(now.unix_ns),
            written_mono_ns: now.mono_ns,
            window_ns,
            status: Status::Unknown,
            verdict: verdict.to_owned(),
            id: None,
            component: None,
            age_ns: None,
            at_least: false,
            text: escape::line(text),
            on_verdict: None,
        }
    }

    /// What was observed.
    pub(super) fn of(snapshot: &Snapshot, diagnosis: &Diagnosis, now: Moment, window_ns: u64) -> Self {
        let finding = diagnosis.accused().first();
        let is_problem = diagnosis.verdict.is_problem();
        let culprit = finding.and_then(|finding| Some(finding.culprit.as_ref()?.component));
        let slow = || diagnosis.slow.first().and_then(Slow::component);
        let line = text::headline(snapshot, diagnosis);
        let words = line.split_once("  ").map_or(line.as_str(), |(_, words)| words);
        let age = finding.and_then(|finding| finding.since).map(|since| (since.ns, since.at_least));
        let since = diagnosis.since.map(|since| (snapshot.now.since(since.at), since.or_before));
        let age = age.or(since).filter(|_| is_problem);
        Self {
            status: match diagnosis.verdict {
                Verdict::Healthy => Status::Ok,
                Verdict::Stall | Verdict::Failing | Verdict::Slow => Status::Problem,
                Verdict::CannotTell => Status::Unknown,
            },
            id: finding.filter(|_| is_problem).map(|finding| finding.rule.id.to_owned()),
            component: culprit
                .or_else(slow)
                .filter(|_| is_problem)
                .map(|component| component.name().to_owned()),
            age_ns: age.map(|(ns, _)| ns),
            at_least: age.is_some_and(|(_, at_least)| at_least),
            ..Self::blank(now, window_ns, diagnosis.verdict.name(), words)
        }
    }

    /// What it means at this moment, in one line of at most 80 bytes.
    #[must_use]
    pub fn answer(&self, mono_ns: u64, unix_ns: i64) -> Answer {
        let limit = self.window_ns.saturating_mul(2);
        let by_wall = u64::try_from(unix_ns.saturating_sub(self.written_unix_ns)).unwrap_or(0);
        // After a reboot the other clock can say anything; then this one is late.
        let age = mono_ns.checked_sub(self.written_mono_ns).map(|age| age.max(by_wall));
        if age.is_none_or(|age| age > limit) {
            let age = age.map_or_else(
                || "from before a reboot".to_owned(),
                |age| format!("{} old", human::duration(age)),
            );
            return Answer::new(
                Status::Unknown,
                &format!("unknown: the state is {age}; is plegtrace watch running?"),
            );
        }
        let text = escape::line(&self.text);
        match self.status {
            Status::Ok => Answer::new(Status::Ok, &format!("ok: {text}")),
            Status::Unknown => Answer::new(Status::Unknown, &format!("unknown: {text}")),
            Status::Problem => {
                let who = escape::text_to(self.component.as_deref().unwrap_or("node"), 24);
                let id =
                    self.id.as_deref().map_or_else(String::new, |id| format!("{} ", escape::text_to(id, 8)));
                let since = self.age_ns.map_or_else(String::new, |ns| {
                    let bound = if self.at_least { "≥ " } else { "" };
                    format!(" {bound}{}", human::duration(ns.saturating_add(mono_ns - self.written_mono_ns)))
                });
                Answer::new(Status::Problem, &format!("{who}{since}: {id}{text}"))
            }
        }
    }
}

/// What `check` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// In one word.
    pub status: Status,
    /// In one line of at most 80 bytes.
    pub line: String,
}

impl Answer {
    /// Cuts the line to its length.
    pub(crate) fn new(status: Status, line: &str) -> Self {
        if line.len() <= LINE {
            return Self { status, line: line.to_owned() };
        }
        let end = (0..=LINE - "…".len()).rev().find(|at| line.is_char_boundary(*at)).unwrap_or(0);
        Self { status, line: format!("{}…", &line[..end]) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn state(status: Status) -> State {
        let now = Moment { mono_ns: 1000 * S, unix_ns: 5000 * 1_000_000_000 };
        State {
            status,
            ..State::blank(now, 60 * S, "stall", &"the shim of a container does not answer ".repeat(5))
        }
    }

    fn at(state: &State, mono: u64, wall: i64) -> Answer {
        state.answer(mono * S, wall * 1_000_000_000)
    }

    /// Component and age come first, the age goes on, and the line is cut between characters.
    #[test]
    fn a_problem() {
        let stall = State {
            component: Some("containerd-shim".into()),
            id: Some("S10".into()),
            age_ns: Some(31 * S),
            at_least: true,
            ..state(Status::Problem)
        };
        let answer = at(&stall, 1030, 5030);
        assert!(answer.line.starts_with("containerd-shim ≥ 61.0 s: S10 the shim"), "{answer:?}");
        assert!(answer.line.len() <= 80 && answer.line.ends_with('…'), "{answer:?}");
        assert_eq!(answer.status, Status::Problem);
        for text in ["ä".repeat(100), "\u{202e}\u{1b}[31m".repeat(20)] {
            let answer = at(&State { text, ..stall.clone() }, 1030, 5030);
            assert!(answer.line.len() <= 80 && !answer.line.contains('\u{1b}'), "{answer:?}");
        }
    }

    /// Old news are no news, by whichever clock; neither is what was written before a reboot.
    #[test]
    fn old_states_are_unknown() {
        let ok = state(Status::Ok);
        assert_eq!(at(&ok, 1119, 5119).status, Status::Ok);
        assert_eq!(at(&ok, 1121, 5121).status, Status::Unknown);
        assert_eq!(at(&ok, 1010, 5121).status, Status::Unknown, "a reboot, and the same uptime again");
        assert_eq!(at(&ok, 1010, 4000).status, Status::Ok, "the wall clock was set back");
        let answer = at(&ok, 900, 5121);
        assert_eq!(answer.status, Status::Unknown);
        assert!(answer.line.contains("reboot"), "{answer:?}");
    }
}
