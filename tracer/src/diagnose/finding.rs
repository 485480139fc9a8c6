//! [`Finding`]: a cause recognised on this node.

use std::{cmp::Reverse, collections::BTreeMap};

use super::{Area, Evidence, Proof, Rule, Scene, evidence};
use crate::{
    correlate::Age,
    input::{Component, ContainerFact},
    stuck::{REACH_RELIST, Stuck, StuckKind, Waiter},
    words::{self, human},
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
    /// The process that does not move because of the culprit, when that is another one.
    pub behind: Option<u32>,
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
    /// What else does not move because of the culprit.
    pub(super) explained: Explained,
}

/// What does not move because of a culprit, beside the culprit itself and [`Finding::behind`].
#[derive(Clone, Debug, Default)]
pub(super) struct Explained {
    pub(super) processes: Vec<u32>,
    /// Process and goroutine.
    pub(super) goroutines: Vec<(u32, u64)>,
}

impl Explained {
    /// The requests among those who wait.
    pub(super) fn of_waiters(waiters: &[Waiter]) -> Self {
        let of = |waiter: &Waiter| match waiter {
            Waiter::Requests(request) => request.goids.iter().map(|goid| (request.pid, *goid)).collect(),
            Waiter::Process { .. } | Waiter::Relist { .. } => Vec::new(),
        };
        Self { processes: Vec::new(), goroutines: waiters.iter().flat_map(of).collect() }
    }

    /// Is it this?
    pub(super) fn is(&self, stuck: &Stuck) -> bool {
        let (pid, goids) = match &stuck.what {
            StuckKind::Request(request) => (request.pid, &request.goids),
            StuckKind::Loop(stall) => (stall.oldest.pid, &stall.goids),
            _ => return self.processes.contains(&stuck.what.pid()),
        };
        let is_told = |goid: &u64| self.goroutines.contains(&(pid, *goid));
        !goids.is_empty() && goids.iter().all(is_told)
    }

    fn add(&mut self, other: Self) {
        self.processes.extend(other.processes);
        self.goroutines.extend(other.goroutines);
    }
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
    /// No, but it slows the node down.
    Slow,
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
            behind: None,
            since: None,
            victims: Vec::new(),
            reach: 0,
            evidence: Vec::new(),
            next: Vec::new(),
            confidence: Confidence::High,
            doubts: Vec::new(),
            also: Vec::new(),
            explained: Explained::default(),
        };
        match rule.proof {
            Proof::Real | Proof::Rebuilt | Proof::Scripted => finding,
            Proof::Story => finding.doubted("this rule has never been tested on the real programs"),
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
        let finding = Self {
            culprit: Some(culprit),
            since: Some(stuck.since),
            victims: victims(&stuck.waiters),
            reach: stuck.reach(),
            evidence: evidence::of_stuck(stuck, scene),
            ..finding
        };
        let pid = stuck.what.pid();
        let Some(ago) = scene.not_reached_since(pid) else { return finding };
        let ago = human::duration(ago);
        finding.doubted(format!(
            "process {pid} was last inspected {ago} ago; later censuses were cut short before reaching it"
        ))
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
    pub(super) fn into_notice(mut self) -> Self {
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

    /// Sorts what explains most first. Of two with one culprit it is the one nearer to the kubelet.
    pub(super) fn rank(&self) -> impl Ord + use<> {
        let since = self.since.map_or(0, |since| since.ns);
        let look_alike = self.rule.area == Area::LookAlike;
        let (area, confidence) = (self.rule.area, Reverse(self.confidence));
        (self.severity, Reverse(self.reach), look_alike, Reverse(since), area, confidence, self.rule.id)
    }
}

/// Who is held up: what the node feels first, then how many of which request, then processes.
pub(super) fn victims(waiters: &[Waiter]) -> Vec<String> {
    let lines =
        |kind: fn(&Waiter) -> bool| waiters.iter().filter(move |waiter| kind(waiter)).map(words::waiter_line);
    let mut all: Vec<String> = lines(|waiter| matches!(waiter, Waiter::Relist { .. })).collect();
    let mut counts: BTreeMap<(Component, u32), Vec<(&str, u32)>> = BTreeMap::new();
    for waiter in waiters {
        let Waiter::Requests(request) = waiter else { continue };
        let operations = counts.entry((request.component, request.pid)).or_default();
        match operations.iter_mut().find(|(operation, _)| *operation == request.operation) {
            Some((_, count)) => *count += request.count,
            None => operations.push((&request.operation, request.count)),
        }
    }
    all.extend(counts.iter().map(|((component, pid), operations)| {
        let one = |(operation, count): &(&str, u32)| format!("{count} {}", words::cut(operation, 40));
        let operations: Vec<String> = operations.iter().map(one).collect();
        format!("{} in {} {pid}", operations.join(", "), component.name())
    }));
    all.extend(lines(|waiter| matches!(waiter, Waiter::Process { .. })));
    all
}

/// How far something reaches for which these wait, as [`Finding::reach`].
pub(super) fn reach(waiters: &[Waiter]) -> u8 {
    let of = |waiter: &Waiter| match waiter {
        Waiter::Relist { .. } => REACH_RELIST,
        Waiter::Requests(_) => 2,
        Waiter::Process { .. } => 1,
    };
    waiters.iter().map(of).max().unwrap_or(0)
}

/// One culprit, one finding: the one that explains more of those who wait; what other rules say of it stands behind. A
/// notice never takes the place of a stall.
pub(super) fn fold(findings: &mut Vec<Finding>) {
    let mut kept: Vec<Finding> = Vec::new();
    for mut finding in findings.drain(..) {
        // A culprit whose process is not known is known by who waits for it.
        let pid =
            |finding: &Finding| finding.culprit.as_ref().and_then(|culprit| culprit.pid).or(finding.behind);
        let same = kept.iter_mut().find(|other| pid(other).is_some() && pid(other) == pid(&finding));
        let Some(first) = same else {
            kept.push(finding);
            continue;
        };
        let alike = (finding.severity, finding.reach) == (first.severity, first.reach);
        if alike && finding.victims.len() > first.victims.len() {
            std::mem::swap(first, &mut finding);
        }
        first.explained.add(finding.explained);
        first.explained.processes.extend(finding.behind);
        let ids = [finding.rule.id].into_iter().chain(finding.also);
        let new: Vec<&'static str> =
            ids.filter(|id| *id != first.rule.id && !first.also.contains(id)).collect();
        first.also.extend(new);
    }
    *findings = kept;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::by_id;

    fn sample(id: &str, severity: Severity, victims: usize) -> Finding {
        let culprit =
            Culprit { component: Component::Kubelet, pid: Some(7), container: None, words: String::new() };
        Finding {
            severity,
            culprit: Some(culprit),
            victims: vec![String::new(); victims],
            reach: 3,
            ..Finding::new(by_id(id).unwrap(), "")
        }
    }

    fn folded(first: Finding, second: Finding) -> Vec<(&'static str, Severity, Vec<&'static str>)> {
        let mut findings = vec![first, second];
        fold(&mut findings);
        findings.into_iter().map(|finding| (finding.rule.id, finding.severity, finding.also)).collect()
    }

    /// Of two with one culprit the one with more victims stays, but a notice does not hide a stall.
    #[test]
    fn a_notice_hides_no_stall() {
        let stall = |id, victims| sample(id, Severity::Stall, victims);
        assert_eq!(
            folded(stall("K7", 0), sample("K3", Severity::Notice, 1)),
            [("K7", Severity::Stall, vec!["K3"])]
        );
        assert_eq!(folded(stall("K7", 0), stall("K1", 1)), [("K1", Severity::Stall, vec!["K7"])]);
    }
}
