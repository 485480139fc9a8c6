//! Asks whether the goroutines of open calls are still there.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use super::{
    conversation::converse,
    merge::Merged,
    request::{Limits, Request},
};
use crate::{
    census::protocol::{Asked, Job},
    input::Liveness,
};

/// Answers every question that can be answered within `deadline`; the others stay [`Liveness::Unknown`].
///
/// A process with a stuck memory lock blocks its reader, so that is a child, which is left behind when it is late.
#[must_use]
pub fn ask_all(request: &Request, questions: Vec<Asked>, deadline: Duration) -> HashMap<Asked, Liveness> {
    let mut merged = Merged::default();
    if !questions.is_empty() {
        let limits = Limits { restarts: 1, ..request.limits };
        let request = Request { limits, ..request.clone() };
        let until = Instant::now() + deadline;
        converse(&request, &Job::Calls(questions), deadline / 2, until, &mut merged);
    }
    merged.calls
}
