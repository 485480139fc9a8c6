//! [`Stories`]: stalls as they begin, change and end. A node that flaps tells one story, not fifty.

use std::collections::BTreeMap;

use serde::Serialize;

use super::state::{Moment, State, Status};
use crate::render::human;

/// Kinds of stalls that are told apart; what comes beyond has no evidence of its own.
const KINDS: usize = 64;
/// Of one kind of stall, evidence is kept this often at most, nanoseconds.
const AGAIN_NS: u64 = 3_600_000_000_000;
/// A stall whose cause is not certain is kept after this time, nanoseconds.
const PATIENCE_NS: u64 = 15_000_000_000;

/// What tells one kind of stall from another: id and component.
type Kind = (Option<String>, Option<String>);

/// One kind of stall.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    count: u64,
    saved_ns: Option<u64>,
}

/// A stall that lasts.
#[derive(Clone, Debug)]
struct Current {
    kind: Kind,
    began: Moment,
    /// Of this kind, nothing more is to be kept.
    done: bool,
}

/// A line for the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Event {
    pub(super) at: String,
    /// `begin`, `change` (another cause) or `end`.
    pub(super) event: &'static str,
    pub(super) verdict: String,
    pub(super) id: Option<String>,
    pub(super) component: Option<String>,
    /// How long the stall lasts or lasted, as far as it is known, nanoseconds.
    pub(super) age_ns: Option<u64>,
    /// How often a stall of this kind was seen, this one included.
    pub(super) count: u64,
    pub(super) text: String,
}

/// What came of a judgement.
#[derive(Debug, Default)]
pub(super) struct News {
    /// To be told.
    pub(super) event: Option<Event>,
    /// The evidence is to be kept now, under this id.
    pub(super) keep: Option<String>,
}

/// Stalls so far.
#[derive(Debug, Default)]
pub(super) struct Stories {
    current: Option<Current>,
    seen: BTreeMap<Kind, Seen>,
}

impl Stories {
    /// Takes a judgement; `settled`: its cause is certain.
    pub(super) fn judged(&mut self, state: &State, settled: bool, now: Moment) -> News {
        match state.status {
            Status::Problem => self.stall(state, settled, now),
            Status::Ok => self.healthy(state, now),
            // It may go on.
            Status::Unknown => News::default(),
        }
    }

    fn stall(&mut self, state: &State, settled: bool, now: Moment) -> News {
        let kind = (state.id.clone(), state.component.clone());
        let (event, began) = match &self.current {
            None => (Some("begin"), now),
            Some(current) if current.kind != kind => (Some("change"), current.began),
            Some(current) => (None, current.began),
        };
        if event.is_some() {
            if self.seen.len() < KINDS || self.seen.contains_key(&kind) {
                self.seen.entry(kind.clone()).or_default().count += 1;
            }
            self.current = Some(Current { kind: kind.clone(), began, done: false });
        }
        let lasted = now.mono_ns.saturating_sub(began.mono_ns);
        let keep = (settled || lasted >= PATIENCE_NS).then(|| self.keep(now)).flatten();
        let event = event.map(|event| self.event(event, &kind, state, state.age_ns, now));
        News { event, keep }
    }

    fn healthy(&mut self, state: &State, now: Moment) -> News {
        let keep = self.keep(now);
        let Some(current) = self.current.take() else { return News::default() };
        let lasted = now.mono_ns.saturating_sub(current.began.mono_ns);
        let event = self.event("end", &current.kind, state, Some(lasted), now);
        News { event: Some(event), keep }
    }

    /// The id of the stall that lasts, when its evidence is still to be kept.
    fn keep(&mut self, now: Moment) -> Option<String> {
        let current = self.current.as_mut().filter(|current| !current.done)?;
        current.done = true;
        let seen = self.seen.get_mut(&current.kind)?;
        if seen.saved_ns.is_some_and(|saved| now.mono_ns.saturating_sub(saved) < AGAIN_NS) {
            return None;
        }
        seen.saved_ns = Some(now.mono_ns);
        Some(current.kind.0.clone().unwrap_or_else(|| "unknown".to_owned()))
    }

    fn event(
        &self,
        event: &'static str,
        kind: &Kind,
        state: &State,
        age_ns: Option<u64>,
        now: Moment,
    ) -> Event {
        Event {
            at: human::rfc3339(now.unix_ns),
            event,
            verdict: state.verdict.clone(),
            id: kind.0.clone(),
            component: kind.1.clone(),
            age_ns,
            count: self.seen.get(kind).map_or(0, |seen| seen.count),
            text: state.text.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn told(
        stories: &mut Stories,
        second: u64,
        id: Option<&str>,
        settled: bool,
    ) -> (Option<&'static str>, Option<String>) {
        let now = Moment { mono_ns: second * S, unix_ns: 0 };
        let status = if id.is_some() { Status::Problem } else { Status::Ok };
        let state = State {
            status,
            id: id.filter(|id| !id.is_empty()).map(str::to_owned),
            ..State::blank(now, S, "stall", "")
        };
        let news = stories.judged(&state, settled, now);
        (news.event.map(|event| event.event), news.keep)
    }

    /// A stall is kept when its cause is certain, or lasts, or ends; another cause is news, and kept too.
    #[test]
    fn one_stall() {
        let mut stories = Stories::default();
        assert_eq!(told(&mut stories, 0, None, false), (None, None));
        assert_eq!(told(&mut stories, 1, Some(""), false), (Some("begin"), None));
        assert_eq!(told(&mut stories, 2, Some("R1"), false), (Some("change"), None));
        assert_eq!(told(&mut stories, 3, Some("R1"), true), (None, Some("R1".into())));
        assert_eq!(told(&mut stories, 4, Some("R1"), true), (None, None));
        assert_eq!(told(&mut stories, 20, Some(""), false), (Some("change"), Some("unknown".into())));
        assert_eq!(told(&mut stories, 21, None, false), (Some("end"), None));
        assert_eq!(told(&mut stories, 30, Some("N1"), false), (Some("begin"), None));
        assert_eq!(told(&mut stories, 31, None, false), (Some("end"), Some("N1".into())));
    }

    /// What flaps is counted, and kept again only after an hour.
    #[test]
    fn a_flapping_node() {
        let mut stories = Stories::default();
        let mut kept = 0;
        for second in 0..3000 {
            let id = if second % 2 == 0 { Some("R1") } else { None };
            kept += u64::from(told(&mut stories, second, id, true).1.is_some());
        }
        assert_eq!((kept, stories.seen.values().next().unwrap().count), (1, 1500));
        assert_eq!(told(&mut stories, 3700, Some("R1"), true).1, Some("R1".into()));
    }
}
