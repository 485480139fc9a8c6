//! The verdict in one line.

use crate::{
    correlate::Snapshot,
    diagnose::{Diagnosis, Verdict},
    render::{
        escape,
        failing::failure,
        human::{self, duration},
        judgement::{doubt, sentence, slowness},
    },
};

/// The verdict in one line, without colour: for progress lines and logs.
#[must_use]
pub fn headline(snapshot: &Snapshot, diagnosis: &Diagnosis) -> String {
    let (word, text) = parts(snapshot, diagnosis);
    format!("{word}  {text}")
}

/// Its word, with the id of the cause, and what happens.
pub(super) fn parts(snapshot: &Snapshot, diagnosis: &Diagnosis) -> (String, String) {
    let accused = diagnosis.accused().first();
    match diagnosis.verdict {
        Verdict::Healthy => ("HEALTHY".into(), relists(snapshot)),
        Verdict::Stall => match (accused, diagnosis.reasons.first()) {
            (Some(finding), _) => (format!("STALL {}", finding.rule.id), escape::line(&finding.headline)),
            (None, reason) => ("STALL".into(), reason.map_or_else(String::new, sentence)),
        },
        Verdict::Failing => {
            let first = diagnosis.failing.first();
            ("FAILING".into(), first.map_or_else(String::new, |failing| failure(failing, snapshot)))
        }
        Verdict::Slow => match (accused, diagnosis.slow.first()) {
            (Some(finding), _) => (format!("SLOW {}", finding.rule.id), escape::line(&finding.headline)),
            (None, slow) => ("SLOW".into(), slow.map_or_else(String::new, slowness)),
        },
        Verdict::CannotTell => {
            ("CANNOT TELL".into(), diagnosis.doubts.first().map_or_else(String::new, doubt))
        }
    }
}

fn relists(snapshot: &Snapshot) -> String {
    let seen = snapshot.relists_now().count() as u64;
    let relists = human::plural(seen, "relist");
    let window = duration(snapshot.relist_window.ns());
    let due = if seen == 0 { " (the kubelet follows events)" } else { "" };
    format!("{relists} in {window}{due}, nothing held up")
}
