//! The verdict: one line, then since when, what else, and what the kubelet thinks of it.

use std::io;

use super::{
    finding,
    page::{Page, fold},
    processes,
};
use crate::{
    correlate::{
        Age, Doubt, LastList, ListOutcome, Outcome, REACH_RELIST, Reason, Snapshot,
        thresholds::{RELIST_PERIOD_NS, SECOND_NS},
    },
    cri::Method,
    decode::MonoNs,
    diagnose::{Diagnosis, Finding, Verdict},
    render::{
        escape,
        human::{self, duration},
    },
    words,
};

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
            let relists = human::plural(snapshot.relists.len() as u64, "relist");
            let window = duration(snapshot.relist_window.ns());
            let due = if snapshot.relists.is_empty() { " (the kubelet follows events)" } else { "" };
            ("HEALTHY".into(), format!("{relists} in {window}{due}, nothing held up"))
        }
        Verdict::Stall => match (accused(diagnosis).first(), reasons(snapshot).first()) {
            (Some(finding), _) => (format!("STALL {}", finding.rule.id), escape::line(&finding.headline)),
            (None, reason) => ("STALL".into(), reason.map_or_else(String::new, sentence)),
        },
        Verdict::CannotTell => {
            ("CANNOT TELL".into(), doubts(snapshot).first().map_or_else(String::new, doubt))
        }
    }
}

/// Findings that explain a stall: none when there is no stall.
pub(super) fn accused(diagnosis: &Diagnosis) -> &[Finding] {
    diagnosis.split().0
}

fn reasons(snapshot: &Snapshot) -> &[Reason] {
    match &snapshot.outcome {
        Outcome::Stalled { reasons } => reasons,
        Outcome::Healthy { .. } | Outcome::CannotTell { .. } => &[],
    }
}

fn doubts(snapshot: &Snapshot) -> &[Doubt] {
    match &snapshot.outcome {
        Outcome::CannotTell { why } => why,
        Outcome::Healthy { .. } | Outcome::Stalled { .. } => &[],
    }
}

/// Writes verdict and what belongs to it.
pub(super) fn write(page: &mut Page<'_>) -> io::Result<()> {
    let (snapshot, diagnosis) = (page.snapshot, page.diagnosis);
    let (word, text) = verdict(snapshot, diagnosis);
    let word = match diagnosis.verdict {
        Verdict::Healthy => page.paint.good(&word),
        Verdict::Stall => page.paint.bad(&word),
        Verdict::CannotTell => page.paint.doubt(&word),
    };
    for (line, text) in fold(&text, page.width - 13).iter().enumerate() {
        let word = if line == 0 { word.as_str() } else { "" };
        writeln!(page.out, "{word}  {text}")?;
    }
    if let Some(text) = since(snapshot, diagnosis) {
        page.labelled("since", &text)?;
    }
    let accused = accused(diagnosis);
    if let Some((first, rest)) = accused.split_first() {
        finding::summary(page, first)?;
        finding::others(page, "besides", rest)?;
    }
    finding::others(page, "notice", diagnosis.split().1)?;
    others(page)?;
    if diagnosis.verdict == Verdict::Stall && accused.is_empty() {
        page.labelled("cause", &untold(snapshot))?;
    }
    for (place, text) in diagnosis.predictions.iter().enumerate() {
        page.labelled(if place == 0 { "coming" } else { "" }, &escape::line(text))?;
    }
    page.labelled("last list", &last_list(snapshot))?;
    if diagnosis.verdict == Verdict::Healthy {
        page.labelled(
            "NotReady?",
            "then not because of the runtime: look at the way to the API server, plegtrace explain L1",
        )?;
    }
    Ok(())
}

/// Reasons and doubts that the first line has not said and no finding explains.
fn others(page: &mut Page<'_>) -> io::Result<()> {
    let (snapshot, diagnosis) = (page.snapshot, page.diagnosis);
    let explained = accused(diagnosis);
    let skip = usize::from(explained.is_empty());
    let left =
        reasons(snapshot).iter().skip(skip).filter(|reason| !explains(explained, reason)).map(sentence);
    let mut texts: Vec<String> = left.collect();
    if diagnosis.verdict == Verdict::CannotTell {
        texts.extend(doubts(snapshot).iter().skip(1).map(doubt));
    }
    let shown = page.short(texts.len(), OTHERS);
    for (place, text) in texts.iter().take(shown).enumerate() {
        page.labelled(if place == 0 { "also" } else { "" }, text)?;
    }
    if texts.len() > shown {
        page.labelled("", &format!("… {} more, -v", human::count((texts.len() - shown) as u64)))?;
    }
    Ok(())
}

/// Is a reason a consequence of what was found?
fn explains(findings: &[Finding], reason: &Reason) -> bool {
    let culprit = |pid: u32| {
        findings
            .iter()
            .any(|finding| finding.culprit.as_ref().is_some_and(|culprit| culprit.pid == Some(pid)))
    };
    let reach = findings.iter().map(|finding| finding.reach).max().unwrap_or(0);
    match reason {
        Reason::Stuck(stuck) => culprit(stuck.what.pid()),
        Reason::RelistOpen { .. } | Reason::ListStale { .. } => reach == REACH_RELIST,
        Reason::Down { .. } => reach == REACH_RELIST,
        Reason::CallsOpen { .. } => reach >= 2,
        Reason::Abandoned { .. } | Reason::ProcessesOpen { .. } => false,
    }
}

/// Why no cause is named.
fn untold(snapshot: &Snapshot) -> String {
    if snapshot.census.round.is_none() {
        return "cannot tell: nobody looked at what waits for what (no census)".to_owned();
    }
    match snapshot.real_losses().next() {
        Some(_) => "cannot tell: no known cause fits what was seen, and events were lost".to_owned(),
        None => "cannot tell: no known cause fits what was seen; below is all of it".to_owned(),
    }
}

/// A reason in words.
#[must_use]
pub fn sentence(reason: &Reason) -> String {
    match reason {
        Reason::Down { component, evidence } => {
            format!("{} does not run: {}", component.name(), escape::text(evidence))
        }
        Reason::Stuck(stuck) => escape::line(&words::sentence(stuck)),
        Reason::RelistOpen { age_ns, waiting_in: Some(operation) } => {
            format!("relist open {}, waiting in {}", duration(*age_ns), escape::text(operation))
        }
        Reason::RelistOpen { age_ns, waiting_in: None } => {
            format!("relist open {}, in no call that is traced", duration(*age_ns))
        }
        Reason::ListStale { age, failing: true } => {
            format!("relists fail, last successful list {}", age_of(*age))
        }
        Reason::ListStale { age, failing: false } => format!("last successful list {}", age_of(*age)),
        Reason::Abandoned { operation, component, count, oldest_ns } => format!(
            "{} abandoned {} in {} (the kubelet gave up), oldest {}",
            human::count(*count),
            escape::text(operation),
            component.name(),
            duration(*oldest_ns)
        ),
        Reason::CallsOpen { operation, component, count, oldest_ns, .. } => {
            let calls = if *count == 1 { "" } else { &format!("{} calls of ", human::count(*count)) };
            let oldest = if *count == 1 { "open" } else { "open, oldest" };
            let mut text = format!(
                "{calls}{} in {} {oldest} {}",
                escape::text(operation),
                component.name(),
                duration(*oldest_ns)
            );
            let deadline = Method::from_name(operation).and_then(Method::deadline_ns);
            if let Some(limit) = deadline.filter(|limit| oldest_ns > limit) {
                let limit = human::minutes(limit);
                text.push_str(&format!(" (older than the kubelet's deadline of {limit})"));
            }
            text
        }
        Reason::ProcessesOpen { kind, count, oldest_ns, pid, container } => {
            let many = if *count == 1 { "" } else { &format!("{} × ", human::count(*count)) };
            let oldest = if *count == 1 { "runs" } else { "run, oldest" };
            let container = container.as_deref().map(|id| format!(", container {}", processes::short(id)));
            format!(
                "{many}{} {oldest} {} (pid {pid}{})",
                escape::text(&kind.to_string()),
                duration(*oldest_ns),
                container.unwrap_or_default()
            )
        }
    }
}

/// A doubt in words.
#[must_use]
pub fn doubt(doubt: &Doubt) -> String {
    match doubt {
        Doubt::NoKubelet => "no kubelet runs here, so no relist can be seen".into(),
        Doubt::RelistUntraced => {
            "relists of this kubelet cannot be traced (plegtrace doctor says why)".into()
        }
        Doubt::NoRelist { window_ns, period_ns } => {
            let due = match *period_ns {
                RELIST_PERIOD_NS => "each second".to_owned(),
                period_ns => format!("every {}", duration(period_ns)),
            };
            format!(
                "no relist began in {}, although one is due {due}: one may hang since before plegtrace started",
                duration(*window_ns)
            )
        }
        Doubt::ListUnknown => "relists ended, but not seen whether their lists succeeded".into(),
        Doubt::NotArmed => "the probes were never on".into(),
        Doubt::OpenUnread => "the calls open now could not be read in full".into(),
        Doubt::NoCensus => {
            "nobody looked at processes and goroutines: what was stuck before the probes is not known".into()
        }
        Doubt::CensusCut => "no look at the processes of the node came to its end".into(),
        Doubt::GoroutinesUnread { component, why } => {
            format!("the goroutines of {} could not be read: {}", component.name(), escape::text(why))
        }
        Doubt::Lost { count, sentence } => {
            format!("{} lost: {}", human::plural(*count, "event"), escape::text(sentence))
        }
    }
}

fn age_of(age: Age) -> String {
    format!("{}{} ago", if age.at_least { "≥ " } else { "" }, duration(age.ns))
}

/// When the trouble began: with the first relist after the last good one, or with the oldest stuck call.
fn since(snapshot: &Snapshot, diagnosis: &Diagnosis) -> Option<String> {
    let good = match snapshot.last_list {
        LastList::At(at) => Some(at),
        LastList::NotSince(_) | LastList::Untraced => None,
    };
    let bad = snapshot.relists.iter().find(|relist| {
        matches!(relist.list, ListOutcome::Failed | ListOutcome::Pending)
            && good.is_none_or(|good| relist.root().start() > good)
    });
    if diagnosis.verdict != Verdict::Stall {
        return None;
    }
    let oldest = reasons(snapshot).iter().filter_map(|reason| match reason {
        Reason::RelistOpen { age_ns, .. } => Some(*age_ns),
        Reason::Stuck(stuck) => Some(stuck.since.ns),
        Reason::Abandoned { oldest_ns, .. }
        | Reason::CallsOpen { oldest_ns, .. }
        | Reason::ProcessesOpen { oldest_ns, .. } => Some(*oldest_ns),
        Reason::Down { .. } | Reason::ListStale { .. } => None,
    });
    let found = accused(diagnosis).first().and_then(|finding| finding.since).map(|since| since.ns);
    let calls = oldest.chain(found).max().map(|age| snapshot.now.minus(age));
    let began = bad.map(|relist| relist.root().start()).into_iter().chain(calls).min()?;
    let at_least =
        accused(diagnosis).first().and_then(|finding| finding.since).is_some_and(|since| since.at_least);
    let before = if at_least || bad.is_some() && good.is_none() { " or before" } else { "" };
    Some(format!("{}{before}", when(snapshot, began)))
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
