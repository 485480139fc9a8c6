//! What is held up, what is missing for an answer, and the last successful list.

use serde::Serialize;

use super::{doc::At, facts::component as name};
use crate::{
    correlate::{LastList, Snapshot},
    diagnose::{Diagnosis, Doubt, Reason},
    render::judgement::{doubt, sentence},
};

#[derive(Debug, Serialize)]
pub(super) struct ReasonDoc<'a> {
    kind: &'static str,
    sentence: String,
    explained: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    component: Option<&'static str>,
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
pub(super) struct DoubtDoc {
    kind: &'static str,
    sentence: String,
}

impl DoubtDoc {
    pub(super) fn list(diagnosis: &Diagnosis) -> Vec<Self> {
        let doc = |why: &Doubt| Self { kind: why.name(), sentence: doubt(why) };
        diagnosis.doubts.iter().map(doc).collect()
    }
}

impl<'a> ReasonDoc<'a> {
    pub(super) fn list(diagnosis: &'a Diagnosis) -> Vec<Self> {
        diagnosis.reasons.iter().map(|it| reason(it, diagnosis.explains(it))).collect()
    }
}

fn reason(reason: &Reason, explained: bool) -> ReasonDoc<'_> {
    let blank = ReasonDoc {
        kind: reason.name(),
        sentence: sentence(reason),
        explained,
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
        Reason::RequestsOpen { method, count, oldest_ns, answerer, .. } => ReasonDoc {
            component: answerer.and_then(|peer| peer.component).map(name),
            operation: Some(method),
            pid: answerer.map(|peer| peer.pid),
            count: Some(*count),
            age_ns: Some(*oldest_ns),
            ..blank
        },
        Reason::Down { component, .. } => ReasonDoc { component: Some(name(*component)), ..blank },
        Reason::Stuck(stuck) => {
            ReasonDoc { age_ns: Some(stuck.since.ns), at_least: Some(stuck.since.at_least), ..blank }
        }
        Reason::RelistOpen { age_ns, waiting_in, of_pod } => ReasonDoc {
            operation: of_pod.then_some("relistPod"),
            age_ns: Some(*age_ns),
            waiting_in: waiting_in.as_deref(),
            ..blank
        },
        Reason::ListStale { age, .. } => {
            ReasonDoc { age_ns: Some(age.ns), at_least: Some(age.at_least), ..blank }
        }
        Reason::Abandoned { operation, component, count, oldest_ns }
        | Reason::CallsOpen { operation, component, count, oldest_ns, .. } => ReasonDoc {
            component: Some(name(*component)),
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
    pub(super) fn new(snapshot: &Snapshot) -> Self {
        let age = snapshot.last_list.age(snapshot.now);
        let (state, start_at) = match snapshot.last_list {
            LastList::At(at) => ("seen", Some(At::new(snapshot, at))),
            LastList::NotSince(_) => ("not_seen", None),
            LastList::Untraced => ("untraced", None),
        };
        Self { state, start_at, age_ns: age.map(|age| age.ns), at_least: age.is_some_and(|age| age.at_least) }
    }
}
