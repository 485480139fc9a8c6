//! One-shots in front of a stalled bus: what they look at, and what they name.

use std::time::Duration;

use plegtrace::census;
use plegtrace::cli::{Attach, Settings};
use plegtrace::diagnose::{Confidence, Diagnosis};

use crate::observation;

/// plegtrace ends as soon as it has found something, at last after this time.
const OBSERVED: Duration = Duration::from_secs(60);
/// Whatever hangs, what was stopped goes on after this time.
pub const WATCHDOG: Duration = Duration::from_secs(80);

/// Calls over D-Bus and the census, up to the first finding that is settled.
#[must_use]
pub fn settings() -> Settings {
    Settings {
        uprobes: false,
        parks: false,
        wire: true,
        census: true,
        census_program: Some(census::this_program()),
        duration: OBSERVED,
        to_the_end: false,
        ..observation::settings(Attach::Auto)
    }
}

/// Rule, process of the culprit and confidence of each finding.
#[must_use]
pub fn named(diagnosis: &Diagnosis) -> Vec<(&'static str, Option<u32>, Confidence)> {
    let culprit = |finding: &plegtrace::diagnose::Finding| finding.culprit.as_ref()?.pid;
    diagnosis.findings.iter().map(|finding| (finding.rule.id, culprit(finding), finding.confidence)).collect()
}
