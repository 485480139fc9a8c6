//! Everything about the verdict, of which the first screen has what matters most.

use std::io;

use super::{finding, page::Page};
use crate::{
    correlate::{LastList, Snapshot, thresholds::SECOND_NS},
    decode::MonoNs,
    diagnose::Verdict,
    render::{
        escape,
        failing::{advice, effect, error, failure},
        human::{self, duration},
        judgement::{doubt, sentence, slowness},
        screen::{cause, headline, since},
        watched,
        wrap::plain,
    },
};

/// Writes it.
pub(super) fn write(page: &mut Page<'_>) -> io::Result<()> {
    let (snapshot, diagnosis) = (page.snapshot, page.diagnosis);
    page.section("In full", "")?;
    page.labelled("verdict", &headline(snapshot, diagnosis))?;
    if let Some(began) = diagnosis.since {
        page.labelled("since", &since(snapshot, began))?;
    }
    if let Some((first, rest)) = diagnosis.accused().split_first() {
        finding::summary(page, first)?;
        finding::others(page, "besides", rest)?;
    }
    failing(page)?;
    slow(page)?;
    finding::others(page, "notice", diagnosis.split().1)?;
    others(page)?;
    let coming: Vec<String> = diagnosis.predictions.iter().map(|text| escape::line(text)).collect();
    list(page, "coming", &coming)?;
    page.labelled("last list", &last_list(snapshot))?;
    if diagnosis.verdict == Verdict::Healthy {
        page.labelled("runtime", &escape::line(&watched::runtime(snapshot)))?;
        page.labelled("watched", &watched::seen(snapshot))?;
        page.labelled("not", &watched::not_seen(snapshot))?;
    }
    Ok(())
}

/// Reasons and doubts that the verdict has not named and no finding explains.
fn others(page: &mut Page<'_>) -> io::Result<()> {
    let diagnosis = page.diagnosis;
    let named = usize::from(diagnosis.accused().is_empty());
    let mut texts: Vec<String> = diagnosis.unexplained().skip(named).map(sentence).collect();
    texts.extend(diagnosis.doubts.iter().skip(1).map(doubt));
    list(page, "also", &texts)
}

/// What the first failure means and what to do, and the others.
fn failing(page: &mut Page<'_>) -> io::Result<()> {
    let (snapshot, failing) = (page.snapshot, &page.diagnosis.failing);
    let Some((first, rest)) = failing.split_first() else { return Ok(()) };
    if let Some(words) = error(first) {
        page.labelled("error", &words)?;
    }
    page.labelled("hits", effect(first))?;
    page.labelled("do", &plain(advice(first)))?;
    let texts = rest.iter().flat_map(|other| [Some(failure(other, snapshot)), error(other)]);
    list(page, "failing", &texts.flatten().collect::<Vec<_>>())
}

/// What is slow, as far as the verdict has not named it.
fn slow(page: &mut Page<'_>) -> io::Result<()> {
    let diagnosis = page.diagnosis;
    let named = usize::from(diagnosis.accused().is_empty());
    let texts: Vec<String> = diagnosis.slow.iter().skip(named).map(slowness).collect();
    list(page, "slow", &texts)?;
    if let Some(cause) = cause(diagnosis) {
        page.labelled("cause", cause)?;
    }
    Ok(())
}

fn list(page: &mut Page<'_>, label: &str, texts: &[String]) -> io::Result<()> {
    let mut all = texts.iter().enumerate();
    all.try_for_each(|(place, text)| page.labelled(if place == 0 { label } else { "" }, text))
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
            format!("none successful since {} or earlier; {limit}", when(snapshot, at))
        }
        LastList::Untraced => "not traced".into(),
    }
}
