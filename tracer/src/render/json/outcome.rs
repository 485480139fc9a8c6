//! The verdict and the last successful list.

use serde::Serialize;

use super::doc::At;
use crate::{
    correlate::{LastList, Outcome, Reason, Snapshot},
    input::Component,
    render::text::{doubt, sentence},
};

#[derive(Debug, Serialize)]
pub(super) struct Verdict<'a> {
    state: &'static str,
    reasons: Vec<ReasonDoc<'a>>,
    doubts: Vec<DoubtDoc>,
}

#[derive(Debug, Serialize)]
struct ReasonDoc<'a> {
    kind: &'static str,
    sentence: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    component: Option<Component>,
    #[serde(skip_serializing_if = "Option::is_none")]
    operation: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    age_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at_least: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting_in: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    process: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    container: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct DoubtDoc {
    kind: &'static str,
    sentence: String,
}

impl<'a> Verdict<'a> {
    pub(super) fn of(snapshot: &'a Snapshot) -> Self {
        let none = Self { state: "healthy", reasons: Vec::new(), doubts: Vec::new() };
        match &snapshot.outcome {
            Outcome::Healthy { .. } => none,
            Outcome::Stalled { reasons } => {
                Self { state: "stalled", reasons: reasons.iter().map(reason).collect(), ..none }
            }
            Outcome::CannotTell { why } => {
                let doubts =
                    why.iter().map(|why| DoubtDoc { kind: why.name(), sentence: doubt(why) }).collect();
                Self { state: "cannot_tell", doubts, ..none }
            }
        }
    }
}

fn reason(reason: &Reason) -> ReasonDoc<'_> {
    let blank = ReasonDoc {
        kind: reason.name(),
        sentence: sentence(reason),
        component: None,
        operation: None,
        count: None,
        age_ns: None,
        at_least: None,
        waiting_in: None,
        process: None,
        pid: None,
        container: None,
    };
    match reason {
        Reason::ProcessesOpen { kind, count, oldest_ns, pid, container } => ReasonDoc {
            process: Some(kind.name()),
            pid: Some(*pid),
            container: container.as_deref(),
            count: Some(*count),
            age_ns: Some(*oldest_ns),
            ..blank
        },
        Reason::Down { component, .. } => ReasonDoc { component: Some(*component), ..blank },
        Reason::Stuck(stuck) => {
            ReasonDoc { age_ns: Some(stuck.since.ns), at_least: Some(stuck.since.at_least), ..blank }
        }
        Reason::RelistOpen { age_ns, waiting_in } => {
            ReasonDoc { age_ns: Some(*age_ns), waiting_in: waiting_in.as_deref(), ..blank }
        }
        Reason::ListStale { age, .. } => {
            ReasonDoc { age_ns: Some(age.ns), at_least: Some(age.at_least), ..blank }
        }
        Reason::Abandoned { operation, component, count, oldest_ns }
        | Reason::CallsOpen { operation, component, count, oldest_ns, .. } => ReasonDoc {
            component: Some(*component),
            operation: Some(operation),
            count: Some(*count),
            age_ns: Some(*oldest_ns),
            ..blank
        },
    }
}

#[derive(Debug, Serialize)]
pub(super) struct LastSuccessfulList {
    state: &'static str,
    start_at: Option<At>,
    age_ns: Option<u64>,
    at_least: bool,
}

impl LastSuccessfulList {
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        let age = snapshot.last_list.age(snapshot.now);
        let (state, start_at) = match snapshot.last_list {
            LastList::At(at) => ("seen", Some(At::of(snapshot, at))),
            LastList::NotSince(_) => ("not_seen", None),
            LastList::Untraced => ("untraced", None),
        };
        Self { state, start_at, age_ns: age.map(|age| age.ns), at_least: age.is_some_and(|age| age.at_least) }
    }
}
