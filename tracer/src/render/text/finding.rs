//! Findings: who is to blame, why we think so, what it is not, what to do next.

use std::io;

use super::page::Page;
use crate::{
    diagnose::Finding,
    render::{escape, screen, wrap::plain},
    words,
};

/// The lines below the verdict: since when, who is to blame, who is held up.
pub(super) fn summary(page: &mut Page<'_>, finding: &Finding) -> io::Result<()> {
    if let Some(culprit) = &finding.culprit {
        page.labelled("culprit", &escape::line(&culprit.words))?;
        if let Some(container) = &culprit.container {
            page.labelled("pod", &escape::line(&words::container_line(container)))?;
        }
    }
    for (place, victim) in finding.victims.iter().enumerate() {
        page.labelled(if place == 0 { "victims" } else { "" }, &escape::line(victim))?;
    }
    if !finding.also.is_empty() {
        page.labelled("rules", &format!("{} recognise the same culprit", finding.also.join(", ")))?;
    }
    Ok(())
}

/// Findings after the first, one line each.
pub(super) fn others(page: &mut Page<'_>, label: &str, findings: &[Finding]) -> io::Result<()> {
    for (place, finding) in findings.iter().enumerate() {
        let age = finding.since.map(|since| format!(", {}", words::age(since))).unwrap_or_default();
        let text = format!(
            "{}  {}{age} (confidence {})",
            finding.rule.id,
            finding.headline,
            finding.confidence.name()
        );
        page.labelled(if place == 0 { label } else { "" }, &escape::line(&text))?;
    }
    Ok(())
}

/// Evidence, exclusions, advice and confidence of the first finding.
pub(super) fn write(page: &mut Page<'_>) -> io::Result<()> {
    let diagnosis = page.diagnosis;
    let Some(finding) = diagnosis.main() else { return Ok(()) };
    page.section("Why we think so", "")?;
    for (place, evidence) in finding.evidence.iter().enumerate() {
        page.indented(&(place + 1).to_string(), &escape::line(&evidence.text))?;
    }
    excluded(page)?;
    next(page, finding)?;
    confidence(page, finding)
}

fn excluded(page: &mut Page<'_>) -> io::Result<()> {
    let part = |excluded: &crate::diagnose::Excluded| format!("{} ({})", excluded.what, excluded.why);
    let parts: Vec<String> = page.diagnosis.excluded.iter().map(part).collect();
    if parts.is_empty() {
        return Ok(());
    }
    page.section("It is not", "")?;
    page.indented("", &parts.join(", "))
}

fn next(page: &mut Page<'_>, finding: &Finding) -> io::Result<()> {
    page.section("Next", &format!("plegtrace explain {}", finding.rule.id))?;
    for (place, step) in finding.next.iter().enumerate() {
        let number = (place + 1).to_string();
        page.lines(&number, &screen::step(step, page.width - number.len() - 4))?;
    }
    page.indented("!", &plain(finding.rule.page.trap))
}

fn confidence(page: &mut Page<'_>, finding: &Finding) -> io::Result<()> {
    page.section("Confidence", finding.confidence.name())?;
    finding.doubts.iter().try_for_each(|doubt| page.indented("?", &escape::line(doubt)))
}
