//! The verdict: one line, then since when, what else, and what the kubelet thinks of it.

use std::io;

use super::{
    finding,
    page::{Page, fold},
};
use crate::{
    correlate::{LastList, RecentKind, Snapshot, thresholds::SECOND_NS},
    decode::MonoNs,
    diagnose::{Diagnosis, Since, Slow, SlowKind, UnknownCause, Verdict},
    render::{
        escape,
        failing::{advice, effect, error, failure},
        human::{self, duration},
        judgement::{doubt, sentence, slowness},
        watched,
    },
};

const NO_CAUSE: &str = "unknown: no known cause fits; the tables below show where the time goes";
/// Further reasons that are listed when the report is not verbose.
const OTHERS: usize = 3;

/// The verdict in one line, without colour: for progress lines and logs.
#[must_use]
pub fn headline(snapshot: &Snapshot, diagnosis: &Diagnosis) -> String {
    let (word, text) = verdict(snapshot, diagnosis);
    format!("{word}  {text}")
}

fn verdict(snapshot: &Snapshot, diagnosis: &Diagnosis) -> (String, String) {
    match diagnosis.verdict {
        Verdict::Healthy => {
            let seen = snapshot.relists_now().count() as u64;
            let relists = human::plural(seen, "relist");
            let window = duration(snapshot.relist_window.ns());
            let due = if seen == 0 { " (the kubelet follows events)" } else { "" };
            ("HEALTHY".into(), format!("{relists} in {window}{due}, nothing held up"))
        }
        Verdict::Stall => match (diagnosis.accused().first(), diagnosis.reasons.first()) {
            (Some(finding), _) => (format!("STALL {}", finding.rule.id), escape::line(&finding.headline)),
            (None, reason) => ("STALL".into(), reason.map_or_else(String::new, sentence)),
        },
        Verdict::Failing => {
            let first = diagnosis.failing.first();
            ("FAILING".into(), first.map_or_else(String::new, |failing| failure(failing, snapshot)))
        }
        Verdict::Slow => match (diagnosis.accused().first(), diagnosis.slow.first()) {
            (Some(finding), _) => (format!("SLOW {}", finding.rule.id), escape::line(&finding.headline)),
            (None, slow) => ("SLOW".into(), slow.map_or_else(String::new, slowness)),
        },
        Verdict::CannotTell => {
            ("CANNOT TELL".into(), diagnosis.doubts.first().map_or_else(String::new, doubt))
        }
    }
}

/// Writes verdict and what belongs to it.
pub(super) fn write(page: &mut Page<'_>) -> io::Result<()> {
    let (snapshot, diagnosis) = (page.snapshot, page.diagnosis);
    let (word, text) = verdict(snapshot, diagnosis);
    let word = match diagnosis.verdict {
        Verdict::Healthy => page.paint.good(&word),
        Verdict::Stall | Verdict::Failing | Verdict::Slow => page.paint.bad(&word),
        Verdict::CannotTell => page.paint.doubt(&word),
    };
    for (line, text) in fold(&text, page.width - 13).iter().enumerate() {
        let word = if line == 0 { word.as_str() } else { "" };
        writeln!(page.out, "{word}  {text}")?;
    }
    if let Some(began) = diagnosis.since {
        page.labelled("since", &since(snapshot, began))?;
    }
    let accused = diagnosis.accused();
    if let Some((first, rest)) = accused.split_first() {
        finding::summary(page, first)?;
        finding::others(page, "besides", rest)?;
    }
    failing(page)?;
    slow(page)?;
    finding::others(page, "notice", diagnosis.split().1)?;
    others(page)?;
    if let Some(why) = diagnosis.unknown_cause {
        page.labelled("cause", unknown(why))?;
    }
    for (place, text) in diagnosis.predictions.iter().enumerate() {
        page.labelled(if place == 0 { "coming" } else { "" }, &escape::line(text))?;
    }
    page.labelled("last list", &last_list(snapshot))?;
    if diagnosis.verdict == Verdict::Healthy {
        page.labelled("runtime", &escape::line(&watched::runtime(snapshot)))?;
        page.labelled("watched", &watched::seen(snapshot))?;
        page.labelled("not", &watched::not_seen(snapshot))?;
    }
    Ok(())
}

/// Reasons and doubts that the first line has not said and no finding explains.
fn others(page: &mut Page<'_>) -> io::Result<()> {
    let diagnosis = page.diagnosis;
    let said = usize::from(diagnosis.accused().is_empty());
    let mut texts: Vec<String> = diagnosis.unexplained().skip(said).map(sentence).collect();
    texts.extend(diagnosis.doubts.iter().skip(1).map(doubt));
    let shown = page.short(texts.len(), OTHERS);
    for (place, text) in texts.iter().take(shown).enumerate() {
        page.labelled(if place == 0 { "also" } else { "" }, text)?;
    }
    if texts.len() > shown {
        page.labelled("", &format!("… {} more, -v", human::count((texts.len() - shown) as u64)))?;
    }
    Ok(())
}

/// What the first failure means and what to do, and the others.
fn failing(page: &mut Page<'_>) -> io::Result<()> {
    let (snapshot, failing) = (page.snapshot, &page.diagnosis.failing);
    let Some((first, rest)) = failing.split_first() else { return Ok(()) };
    if let Some(words) = error(first) {
        page.labelled("error", &words)?;
    }
    page.labelled("hits", effect(first))?;
    page.labelled("do", advice(first))?;
    let shown = page.short(rest.len(), OTHERS);
    for (place, other) in rest.iter().take(shown).enumerate() {
        page.labelled(if place == 0 { "failing" } else { "" }, &failure(other, snapshot))?;
        if let Some(words) = error(other) {
            page.labelled("", &words)?;
        }
    }
    if rest.len() > shown {
        page.labelled("", &format!("… {} more, -v", human::count((rest.len() - shown) as u64)))?;
    }
    Ok(())
}

/// What is slow, as far as the first line has not said it.
fn slow(page: &mut Page<'_>) -> io::Result<()> {
    let diagnosis = page.diagnosis;
    let said = usize::from(diagnosis.accused().is_empty());
    let texts: Vec<String> = diagnosis.slow.iter().skip(said).map(slowness).collect();
    let shown = page.short(texts.len(), OTHERS);
    for (place, text) in texts.iter().take(shown).enumerate() {
        page.labelled(if place == 0 { "slow" } else { "" }, text)?;
    }
    if texts.len() > shown {
        page.labelled("", &format!("… {} more, -v", human::count((texts.len() - shown) as u64)))?;
    }
    if diagnosis.verdict == Verdict::Slow && diagnosis.accused().is_empty() {
        page.labelled("cause", diagnosis.slow.first().map_or(NO_CAUSE, by_itself))?;
    }
    Ok(())
}

/// What is slow by itself, and what to do about it.
fn by_itself(slow: &Slow) -> &'static str {
    match &slow.what {
        SlowKind::Recent(RecentKind::Cni { .. }) => {
            "the plugin itself: look at its log, and at the agent or the address pool that it asks; every new pod waits for it"
        }
        SlowKind::Recent(RecentKind::Hook(_)) => {
            "the hook itself: run it by hand, and look at what it asks; every container that has it starts late"
        }
        SlowKind::Recent(RecentKind::Shim(_)) => {
            "the shim itself, which runs only now and then: look for who stops it (kill -STOP, a freezer), for the CPU quota \
             of its cgroup, and for swapped memory; only its own pod is late"
        }
        _ => NO_CAUSE,
    }
}

/// Why no cause is named.
fn unknown(why: UnknownCause) -> &'static str {
    match why {
        UnknownCause::NoCensus => "unknown: no census was taken",
        UnknownCause::EventsLost => "unknown: no known cause fits what was seen, and events were lost",
        UnknownCause::BusNotFollowed => {
            "unknown: runc waits for systemd over D-Bus, which was not followed to the end; to see who does not answer, \
             run plegtrace --sources all"
        }
        UnknownCause::NothingFits => "unknown: no known cause fits; everything that was seen is below",
    }
}

/// When the stall began.
fn since(snapshot: &Snapshot, since: Since) -> String {
    let before = if since.or_before { " or before" } else { "" };
    format!("{}{before}", when(snapshot, since.at))
}

fn when(snapshot: &Snapshot, at: MonoNs) -> String {
    format!("{}, {} ago", human::clock(snapshot.wall_ns(at)), duration(snapshot.now.since(at)))
}

/// The figure of the node's health, and how it stands to the kubelet's threshold.
fn last_list(snapshot: &Snapshot) -> String {
    let threshold_ns = snapshot.pace().threshold_ns;
    let minutes = threshold_ns / (60 * SECOND_NS);
    let limit = match snapshot.last_list.age(snapshot.now) {
        Some(age) if age.ns > threshold_ns => {
            format!("the kubelet reports \"PLEG is not healthy\" (limit {minutes} min)")
        }
        _ => format!("the kubelet reports \"PLEG is not healthy\" after {minutes} min"),
    };
    match snapshot.last_list {
        // Before the limit it is a prediction of its own.
        LastList::At(at) if snapshot.now.since(at) <= threshold_ns => {
            format!("successful {}", when(snapshot, at))
        }
        LastList::At(at) => format!("successful {}; {limit}", when(snapshot, at)),
        LastList::NotSince(at) => {
            format!("none successful since {} (or before); {limit}", when(snapshot, at))
        }
        LastList::Untraced => "not traced".into(),
    }
}
