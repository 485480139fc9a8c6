//! A [`Snapshot`] → a [`Diagnosis`]: is the node held up, since when, by which known cause, by what evidence, and what to
//! do next. It is the only judge: there is no other verdict.
//!
//! Each cause is one file in `rules`, with an id that never changes. A rule looks at the snapshot and returns findings
//! only when the evidence it requires is there; what a rule cannot prove, it says as a doubt, which lowers its confidence.
//! Findings are ranked by how far they reach (the relist, requests, one pod), then by age: the oldest thing that holds
//! others up wins over the one that alarms. Overload is said only when nothing else is. When nothing fits, the diagnosis
//! says so, and the facts stand for themselves.

mod api_connections;
mod bus;
mod chain;
mod device;
mod docker_lock;
mod evidence;
mod excluded;
mod exits;
mod failing;
mod finding;
mod health;
mod held_off;
mod kernel_victims;
mod kernel_wait;
pub mod known;
mod kubelet_loops;
mod kubelet_work;
mod networks;
mod newer;
mod paused;
mod prediction;
mod reason;
mod rule;
pub mod rules;
mod scene;
mod settled;
mod size;
mod slow;
mod stale;
mod startup;
mod unit;
mod unmount;
mod unnamed;
mod verdict;

use crate::{
    correlate::Snapshot,
    stuck::{self, Stuck},
};

pub use chain::Link;
pub use evidence::{Evidence, Source};
pub use excluded::Excluded;
pub use failing::{FailedProgram, Failing};
pub use finding::{Confidence, Culprit, Finding, Severity};
pub use reason::{Doubt, Peer, Reason};
pub use rule::{Area, Page, Proof, Rule};
pub use scene::Scene;
pub use slow::{Slow, SlowKind};
pub use unnamed::Sign;
pub use verdict::{Since, UnknownCause, Verdict};

/// What the snapshot means.
#[derive(Clone, Debug)]
pub struct Diagnosis {
    /// In one word. [`Self::reasons`], [`Self::doubts`] and [`Self::findings`] never contradict it.
    pub verdict: Verdict,
    /// When the stall began; `None` when there is none, or nothing tells.
    pub since: Option<Since>,
    /// What is held up, the weightiest first. Not empty only when there is a stall; a stall that only a finding tells has
    /// none.
    pub reasons: Vec<Reason>,
    /// What takes too long, relists first; not empty exactly when the verdict is [`Verdict::Slow`].
    pub slow: Vec<Slow>,
    /// What fails every time; not empty exactly when the verdict is [`Verdict::Failing`].
    pub failing: Vec<Failing>,
    /// Why there is no answer; not empty exactly when there is none.
    pub doubts: Vec<Doubt>,
    /// What does not move, what holds others up first.
    pub stuck: Vec<Stuck>,
    /// Known causes, the one that explains most first.
    pub findings: Vec<Finding>,
    /// Why no cause is named; `None` when one is, or there is no stall.
    pub unknown_cause: Option<UnknownCause>,
    /// What was looked at and is not the cause.
    pub excluded: Vec<Excluded>,
    /// What the kubelet will do next, and when.
    pub predictions: Vec<String>,
    /// Who waits for whom, down to what does not move; empty where nobody waits in a chain.
    pub chain: Vec<Link>,
}

impl Diagnosis {
    /// The first finding, stall or notice.
    #[must_use]
    pub fn first(&self) -> Option<&Finding> {
        self.findings.first()
    }

    /// Findings that hold something up or slow it down, and those that do not.
    #[must_use]
    pub fn split(&self) -> (&[Finding], &[Finding]) {
        // Notices sort last.
        let accused = self.findings.partition_point(|finding| finding.severity != Severity::Notice);
        self.findings.split_at(accused)
    }

    /// The finding a report is about: the cause of the stall or of the slowness, or the first notice where there is neither.
    #[must_use]
    pub fn main(&self) -> Option<&Finding> {
        let (accused, notices) = self.split();
        if matches!(self.verdict, Verdict::Stall | Verdict::Slow) { accused.first() } else { notices.first() }
    }

    /// Findings that explain why the node is held up or slow: none when it is neither.
    #[must_use]
    pub fn accused(&self) -> &[Finding] {
        self.split().0
    }

    /// Is this reason a consequence of what was found?
    #[must_use]
    pub fn explains(&self, reason: &Reason) -> bool {
        verdict::explains(self.accused(), reason)
    }

    /// Reasons that no finding explains.
    pub fn unexplained(&self) -> impl Iterator<Item = &Reason> {
        self.reasons.iter().filter(|reason| !self.explains(reason))
    }
}

/// Asks every rule.
#[must_use]
pub fn diagnose(snapshot: &Snapshot) -> Diagnosis {
    let stuck = stuck::find(snapshot);
    let mut reasons = health::reasons(snapshot, &stuck);
    reasons.retain(|reason| paused::holds(reason, snapshot));
    let mut slow = slow::find(snapshot);
    let scene = Scene { snapshot, stuck: &stuck, reasons: &reasons, slow: &slow };
    let single = rules::ALL.iter().filter(|rule| rule.area != Area::Overload);
    let mut findings: Vec<Finding> = single.flat_map(|rule| (rule.examine)(&scene)).collect();
    // Overload is the excuse that hides one stuck process.
    let may_be_overload = scene.oldest_changes() || held_off::explains_all(scene);
    if findings.iter().all(|finding| finding.severity == Severity::Notice) {
        let overload = rules::ALL.iter().filter(|rule| rule.area == Area::Overload && may_be_overload);
        findings.extend(overload.flat_map(|rule| (rule.examine)(&scene)));
        if !may_be_overload {
            findings.extend(rules::quotas(&scene));
        }
    }
    let mut findings: Vec<Finding> =
        findings.into_iter().map(|finding| paused::weigh(finding, snapshot)).collect();
    findings.sort_by_key(Finding::rank);
    finding::fold(&mut findings);
    let excluded = excluded::find(&scene, &findings);
    let accused = findings.first().filter(|finding| finding.severity == Severity::Stall);
    let stall = accused.is_some() || !reasons.is_empty();
    let failing = if stall { Vec::new() } else { failing::find(snapshot) };
    // What fails matters more than that it does so slowly.
    if stall || !failing.is_empty() {
        slow.clear();
    }
    let is_answered = stall || !failing.is_empty() || !slow.is_empty();
    let doubts = if is_answered { Vec::new() } else { health::doubts(snapshot) };
    let mut diagnosis = Diagnosis {
        verdict: match (stall, failing.is_empty(), slow.is_empty(), doubts.is_empty()) {
            (true, ..) => Verdict::Stall,
            (false, false, ..) => Verdict::Failing,
            (false, true, false, _) => Verdict::Slow,
            (false, true, true, true) => Verdict::Healthy,
            (false, true, true, false) => Verdict::CannotTell,
        },
        since: if stall { verdict::since(snapshot, &reasons, accused) } else { None },
        unknown_cause: (stall && accused.is_none()).then(|| UnknownCause::of_snapshot(snapshot)),
        excluded,
        predictions: prediction::find(snapshot),
        slow,
        failing,
        doubts,
        reasons,
        stuck,
        findings,
        chain: Vec::new(),
    };
    diagnosis.chain = chain::of(&diagnosis, snapshot);
    diagnosis
}
