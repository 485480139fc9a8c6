//! The verdict with its causes.

use serde::Serialize;

use super::{
    doc::At,
    facts::{ContainerDoc, component},
    failing::FailingDoc,
    slow::SlowDoc,
    verdict::{DoubtDoc, ReasonDoc},
};
use crate::{
    correlate::Snapshot,
    diagnose::{Culprit, Diagnosis, Evidence, Excluded, Finding, Link, Severity, UnknownCause},
    render::{escape, wrap::plain},
};

/// What the snapshot means.
#[derive(Debug, Serialize)]
pub(super) struct DiagnosisDoc<'a> {
    verdict: &'static str,
    since_at: Option<At>,
    or_before: bool,
    reasons: Vec<ReasonDoc<'a>>,
    failing: Vec<FailingDoc<'a>>,
    slow: Vec<SlowDoc<'a>>,
    doubts: Vec<DoubtDoc>,
    unknown_cause: Option<&'static str>,
    findings: Vec<FindingDoc<'a>>,
    excluded: Vec<ExcludedDoc<'a>>,
    predictions: Vec<String>,
    chain: Vec<LinkDoc>,
}

/// One party of the chain of who waits for whom.
#[derive(Debug, Serialize)]
struct LinkDoc {
    name: String,
    pid: Option<u32>,
    depth: usize,
    sentence: String,
    age_ns: Option<u64>,
    at_least: Option<bool>,
    end: bool,
}

#[derive(Debug, Serialize)]
struct FindingDoc<'a> {
    id: &'static str,
    title: &'static str,
    area: &'static str,
    proof: &'static str,
    severity: &'static str,
    confidence: &'static str,
    doubts: Vec<String>,
    headline: String,
    culprit: Option<CulpritDoc<'a>>,
    age_ns: Option<u64>,
    at_least: Option<bool>,
    reach: u8,
    victims: Vec<String>,
    evidence: Vec<EvidenceDoc>,
    next: Vec<String>,
    trap: String,
    also: &'a [&'static str],
}

#[derive(Debug, Serialize)]
struct CulpritDoc<'a> {
    component: &'static str,
    pid: Option<u32>,
    container: Option<ContainerDoc<'a>>,
    sentence: String,
}

#[derive(Debug, Serialize)]
struct EvidenceDoc {
    source: &'static str,
    sentence: String,
}

#[derive(Debug, Serialize)]
struct ExcludedDoc<'a> {
    what: &'static str,
    why: &'a str,
}

impl<'a> DiagnosisDoc<'a> {
    pub(super) fn new(diagnosis: &'a Diagnosis, snapshot: &Snapshot) -> Self {
        let excluded = |excluded: &'a Excluded| ExcludedDoc { what: excluded.what, why: &excluded.why };
        Self {
            verdict: diagnosis.verdict.name(),
            since_at: diagnosis.since.map(|since| At::new(snapshot, since.at)),
            or_before: diagnosis.since.is_some_and(|since| since.or_before),
            reasons: ReasonDoc::list(diagnosis),
            failing: FailingDoc::list(diagnosis, snapshot),
            slow: SlowDoc::list(diagnosis),
            doubts: DoubtDoc::list(diagnosis),
            unknown_cause: diagnosis.unknown_cause.map(UnknownCause::name),
            findings: diagnosis.findings.iter().map(finding).collect(),
            excluded: diagnosis.excluded.iter().map(excluded).collect(),
            predictions: lines(&diagnosis.predictions),
            chain: diagnosis.chain.iter().map(link).collect(),
        }
    }
}

fn link(link: &Link) -> LinkDoc {
    LinkDoc {
        name: escape::text(&link.name),
        pid: link.pid,
        depth: link.depth,
        sentence: escape::line(&link.words),
        age_ns: link.age.map(|age| age.ns),
        at_least: link.age.map(|age| age.at_least),
        end: link.is_end,
    }
}

fn lines(texts: &[String]) -> Vec<String> {
    texts.iter().map(|text| escape::line(text)).collect()
}

fn finding(finding: &Finding) -> FindingDoc<'_> {
    let rule = finding.rule;
    FindingDoc {
        id: rule.id,
        title: rule.title,
        area: rule.area.name(),
        proof: rule.proof.name(),
        severity: match finding.severity {
            Severity::Stall => "stall",
            Severity::Slow => "slow",
            Severity::Notice => "notice",
        },
        confidence: finding.confidence.name(),
        doubts: lines(&finding.doubts),
        headline: escape::line(&finding.headline),
        culprit: finding.culprit.as_ref().map(culprit),
        age_ns: finding.since.map(|since| since.ns),
        at_least: finding.since.map(|since| since.at_least),
        reach: finding.reach,
        victims: lines(&finding.victims),
        evidence: finding.evidence.iter().map(evidence).collect(),
        next: finding.next.iter().map(|text| escape::line(&plain(text))).collect(),
        trap: plain(rule.page.trap),
        also: &finding.also,
    }
}

fn culprit(culprit: &Culprit) -> CulpritDoc<'_> {
    CulpritDoc {
        component: component(culprit.component),
        pid: culprit.pid,
        container: culprit.container.as_ref().map(ContainerDoc::from),
        sentence: escape::line(&culprit.words),
    }
}

fn evidence(evidence: &Evidence) -> EvidenceDoc {
    EvidenceDoc { source: evidence.source.name(), sentence: escape::line(&evidence.text) }
}
