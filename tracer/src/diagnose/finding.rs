//! [`Finding`]: a cause recognised on this node.

use std::cmp::Reverse;

use super::{Area, Evidence, Proof, Rule, Scene, evidence};
use crate::{
    correlate::{Age, Stuck, Waiter},
    input::{Component, ContainerFact},
    words,
};

/// A known cause, recognised. Texts are raw.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Which.
    pub rule: &'static Rule,
    /// Does it hold anything up?
    pub severity: Severity,
    /// What happens on this node, in one sentence.
    pub headline: String,
    /// Who is to blame.
    pub culprit: Option<Culprit>,
    /// For how long.
    pub since: Option<Age>,
    /// Who is held up, the nearest first.
    pub victims: Vec<String>,
    /// How far it reaches: 3 holds up the relist, 2 requests, 1 other processes, 0 nobody that is known.
    pub reach: u8,
    /// What speaks for it.
    pub evidence: Vec<Evidence>,
    /// What to do, the first thing first.
    pub next: Vec<String>,
    /// How sure that is.
    pub confidence: Confidence,
    /// Why not more.
    pub doubts: Vec<String>,
    /// Ids of other rules that recognise the same culprit.
    pub also: Vec<&'static str>,
}

/// Who is to blame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Culprit {
    /// What it is to the node.
    pub component: Component,
    /// Process; `None` when there is none any more.
    pub pid: Option<u32>,
    /// Container and pod it belongs to, or works for.
    pub container: Option<ContainerFact>,
    /// In words.
    pub words: String,
}

/// Does a finding hold anything up?
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Yes.
    Stall,
    /// Not yet, not any more, or nobody that is known.
    Notice,
}

/// How sure a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Confidence {
    /// One of several explanations.
    Low,
    /// The best explanation; something that would prove it was not seen.
    Medium,
    /// Everything required was seen.
    High,
}

impl Confidence {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

impl Finding {
    /// Without evidence yet. High confidence, except for rules that only stories prove.
    pub(super) fn new(rule: &'static Rule, headline: impl Into<String>) -> Self {
        let finding = Self {
            rule,
            severity: Severity::Stall,
            headline: headline.into(),
            culprit: None,
            since: None,
            victims: Vec::new(),
            reach: 0,
            evidence: Vec::new(),
            next: Vec::new(),
            confidence: Confidence::High,
            doubts: Vec::new(),
            also: Vec::new(),
        };
        match rule.proof {
            Proof::Real | Proof::Rebuilt => finding,
            Proof::Story => finding.doubted("this rule was never tried on the real programs"),
        }
    }

    /// About a thing that does not move, with everybody who waits for it.
    pub(super) fn of_stuck(
        rule: &'static Rule,
        headline: impl Into<String>,
        component: Component,
        stuck: &Stuck,
        scene: &Scene<'_>,
    ) -> Self {
        let finding = Self::new(rule, headline);
        let culprit = Culprit {
            component,
            pid: Some(stuck.what.pid()),
            container: stuck.container.clone(),
            words: words::what(stuck),
        };
        Self {
            culprit: Some(culprit),
            since: Some(stuck.since),
            victims: stuck.waiters.iter().map(victim).collect(),
            reach: stuck.reach(),
            evidence: evidence::of_stuck(stuck, scene),
            ..finding
        }
    }

    /// Less sure, because of this.
    #[must_use]
    pub(super) fn doubted(mut self, why: impl Into<String>) -> Self {
        self.confidence = match self.confidence {
            Confidence::High => Confidence::Medium,
            Confidence::Medium | Confidence::Low => Confidence::Low,
        };
        self.doubts.push(why.into());
        self
    }

    /// It holds nobody up.
    #[must_use]
    pub(super) fn as_notice(mut self) -> Self {
        self.severity = Severity::Notice;
        self
    }

    /// With something to do about it.
    #[must_use]
    pub(super) fn advise<S: Into<String>>(mut self, next: impl IntoIterator<Item = S>) -> Self {
        self.next.extend(next.into_iter().map(Into::into));
        self
    }

    /// With one more observation.
    #[must_use]
    pub(super) fn seen(mut self, evidence: Evidence) -> Self {
        self.evidence.push(evidence);
        self
    }

    /// Sorts what explains most first.
    pub(super) fn rank(
        &self,
    ) -> (Severity, Reverse<u8>, u8, Reverse<u64>, Reverse<Confidence>, &'static str) {
        let since = self.since.map_or(0, |since| since.ns);
        // Who does not run at all explains everything that waits.
        let look_alike = u8::from(self.rule.area == Area::LookAlike);
        (
            self.severity,
            Reverse(self.reach),
            look_alike,
            Reverse(since),
            Reverse(self.confidence),
            self.rule.id,
        )
    }
}

fn victim(waiter: &Waiter) -> String {
    match waiter {
        Waiter::Requests(request) => format!("{}, {}", words::requests(request), words::age(request.since)),
        Waiter::Process { .. } | Waiter::Relist { .. } => words::waiter_line(waiter),
    }
}

/// One culprit, one finding: what other rules say of it stands behind the one that reaches farthest.
pub(super) fn fold(findings: &mut Vec<Finding>) {
    let mut kept: Vec<Finding> = Vec::new();
    for finding in findings.drain(..) {
        let pid = |finding: &Finding| finding.culprit.as_ref().and_then(|culprit| culprit.pid);
        let same = kept.iter_mut().find(|other| pid(other).is_some() && pid(other) == pid(&finding));
        match same {
            Some(first) if first.rule.id != finding.rule.id => first.also.push(finding.rule.id),
            Some(_) => {}
            None => kept.push(finding),
        }
    }
    *findings = kept;
}
