//! What fails every time.

use serde::Serialize;

use super::doc::At;
use crate::{
    correlate::Snapshot,
    diagnose::{Diagnosis, Failing},
    render::{escape, failing::failure},
};

#[derive(Debug, Serialize)]
pub(super) struct FailingDoc<'a> {
    kind: &'static str,
    pid: u32,
    sentence: String,
    #[serde(flatten)]
    what: What<'a>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum What<'a> {
    Condition {
        name: &'a str,
        reason: &'a str,
        message: &'a str,
    },
    Calls {
        operation: &'static str,
        count: u64,
        longest_ns: u64,
        since_at: At,
        last_at: At,
        succeeded_before: bool,
        program: Option<String>,
        error: Option<&'a str>,
        error_at: Option<At>,
    },
}

impl<'a> FailingDoc<'a> {
    pub(super) fn list(diagnosis: &'a Diagnosis, snapshot: &Snapshot) -> Vec<Self> {
        diagnosis.failing.iter().map(|failing| Self::new(failing, snapshot)).collect()
    }

    fn new(failing: &'a Failing, snapshot: &Snapshot) -> Self {
        let sentence = failure(failing, snapshot);
        match failing {
            Failing::Condition { pid, condition } => {
                let (name, reason, message) = (&condition.name, &condition.reason, &condition.message);
                Self {
                    kind: "condition",
                    pid: *pid,
                    sentence,
                    what: What::Condition { name, reason, message },
                }
            }
            Failing::Calls { streak, program, error } => {
                let what = What::Calls {
                    operation: streak.method.name(),
                    count: streak.failed,
                    longest_ns: streak.longest_ns,
                    since_at: At::new(snapshot, streak.since),
                    last_at: At::new(snapshot, streak.last),
                    succeeded_before: streak.succeeded,
                    program: program.as_ref().map(|row| escape::text(&row.kind.to_string())),
                    error: error.as_ref().map(|error| error.words.as_str()),
                    error_at: error.as_ref().map(|error| At::new(snapshot, error.at)),
                };
                Self { kind: "calls", pid: streak.pid, sentence, what }
            }
        }
    }
}
