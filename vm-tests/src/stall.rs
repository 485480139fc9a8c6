//! One-shots in front of a stalled bus: what they look at, and what they name.

use std::time::Duration;

use anyhow::{Result, ensure};
use plegtrace::census;
use plegtrace::cli::{Attach, Settings};
use plegtrace::correlate::Snapshot;
use plegtrace::diagnose::{Confidence, Diagnosis, Verdict, diagnose};

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

/// The headline of the only finding, which is certain and has this rule and culprit.
///
/// # Errors
/// When it is another one, or there are several or none.
pub fn only(snapshot: &Snapshot, rule: &str, culprit: u32) -> Result<String> {
    let diagnosis = diagnose(snapshot);
    ensure!(diagnosis.verdict == Verdict::Stall, "{:?}: {:?}", diagnosis.verdict, diagnosis.doubts);
    let named = named(&diagnosis);
    let seen = (&snapshot.bus, &snapshot.census);
    ensure!(named == [(rule, Some(culprit), Confidence::High)], "named {named:?}; {seen:?}");
    Ok(diagnosis.findings[0].headline.clone())
}
