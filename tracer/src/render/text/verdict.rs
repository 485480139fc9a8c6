//! The verdict: one line, then since when, what else, and what the kubelet thinks of it.

use std::io;

use super::{
    page::{Page, fold},
    processes, stuck,
};
use crate::{
    correlate::{
        Age, Doubt, LastList, ListOutcome, Outcome, Reason, Snapshot,
        thresholds::{CRI_DEADLINE_NS, LAST_LIST_NS, PLEG_THRESHOLD_NS},
    },
    decode::MonoNs,
    render::{
        escape,
        human::{self, duration},
    },
};

/// The verdict in one line, without colour: for progress lines and logs.
#[must_use]
pub fn headline(snapshot: &Snapshot) -> String {
    let (word, text) = verdict(snapshot);
    format!("{word}  {text}")
}

fn verdict(snapshot: &Snapshot) -> (&'static str, String) {
    match &snapshot.outcome {
        Outcome::Healthy { window_ns } => {
            let relists = human::plural(snapshot.relists.len() as u64, "relist");
            ("HEALTHY", format!("{relists} in {}, nothing held up", duration(*window_ns)))
        }
        Outcome::Stalled { reasons } => ("STALL", reasons.first().map_or_else(String::new, sentence)),
        Outcome::CannotTell { why } => ("CANNOT TELL", why.first().map_or_else(String::new, doubt)),
    }
}

/// Writes verdict and what belongs to it.
pub(super) fn write(page: &mut Page<'_>) -> io::Result<()> {
    let snapshot = page.snapshot;
    let (word, text) = verdict(snapshot);
    let (word, others): (String, Vec<String>) = match &snapshot.outcome {
        Outcome::Healthy { .. } => (page.paint.good(word), Vec::new()),
        Outcome::Stalled { reasons } => {
            (page.paint.bad(word), reasons.iter().skip(1).map(sentence).collect())
        }
        Outcome::CannotTell { why } => (page.paint.doubt(word), why.iter().skip(1).map(doubt).collect()),
    };
    for (line, text) in fold(&text, page.width - 13).iter().enumerate() {
        let word = if line == 0 { word.as_str() } else { "" };
        writeln!(page.out, "{word}  {text}")?;
    }
    if let Some(text) = since(snapshot) {
        page.labelled("since", &text)?;
    }
    for (place, text) in others.iter().enumerate() {
        page.labelled(if place == 0 { "also" } else { "" }, text)?;
    }
    page.labelled("last list", &last_list(snapshot))
}

/// A reason in words.
#[must_use]
pub fn sentence(reason: &Reason) -> String {
    match reason {
        Reason::Down { component, evidence } => {
            format!("{} does not run: {}", component.name(), escape::text(evidence))
        }
        Reason::Stuck(stuck) => stuck::sentence(stuck),
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
            if *oldest_ns > CRI_DEADLINE_NS {
                text.push_str(" (older than the kubelet's deadline of 2 min)");
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
        Doubt::NoRelist { window_ns } => format!(
            "no relist began in {}, although one is due each second: one may hang since before plegtrace started",
            duration(*window_ns)
        ),
        Doubt::ListUnknown => "relists ended, but not seen whether their lists succeeded".into(),
        Doubt::NotArmed => "the probes were never on".into(),
        Doubt::OpenUnread => "the calls open now could not be read in full".into(),
        Doubt::Lost { count, sentence } => {
            format!("{} lost: {}", human::plural(*count, "event"), escape::text(sentence))
        }
    }
}

fn age_of(age: Age) -> String {
    format!("{}{} ago", if age.at_least { "≥ " } else { "" }, duration(age.ns))
}

/// When the trouble began: with the first relist after the last good one, or with the oldest stuck call.
fn since(snapshot: &Snapshot) -> Option<String> {
    let good = match snapshot.last_list {
        LastList::At(at) => Some(at),
        LastList::NotSince(_) | LastList::Untraced => None,
    };
    let bad = snapshot.relists.iter().find(|relist| {
        matches!(relist.list, ListOutcome::Failed | ListOutcome::Pending)
            && good.is_none_or(|good| relist.root().start() > good)
    });
    let Outcome::Stalled { reasons } = &snapshot.outcome else { return None };
    let oldest = reasons.iter().filter_map(|reason| match reason {
        Reason::RelistOpen { age_ns, .. } => Some(*age_ns),
        Reason::Stuck(stuck) => Some(stuck.since.ns),
        Reason::Abandoned { oldest_ns, .. }
        | Reason::CallsOpen { oldest_ns, .. }
        | Reason::ProcessesOpen { oldest_ns, .. } => Some(*oldest_ns),
        Reason::Down { .. } | Reason::ListStale { .. } => None,
    });
    let calls = oldest.max().map(|age| snapshot.now.minus(age));
    let began = bad.map(|relist| relist.root().start()).into_iter().chain(calls).min()?;
    let before = if bad.is_some() && good.is_none() { " or before" } else { "" };
    Some(format!("{}{before}", when(snapshot, began)))
}

fn when(snapshot: &Snapshot, at: MonoNs) -> String {
    format!("{}, {} ago", human::clock(snapshot.wall_ns(at)), duration(snapshot.now.since(at)))
}

/// The figure of the node's health, and how it stands to the kubelet's threshold.
fn last_list(snapshot: &Snapshot) -> String {
    let age = snapshot.last_list.age(snapshot.now);
    let limit = match age {
        Some(age) if age.ns > PLEG_THRESHOLD_NS => {
            "the kubelet reports \"PLEG is not healthy\" (limit 3 min)".to_owned()
        }
        Some(Age { at_least: false, ns }) if ns > LAST_LIST_NS => {
            format!(
                "the kubelet reports \"PLEG is not healthy\" in {} unless one succeeds",
                duration(PLEG_THRESHOLD_NS - ns)
            )
        }
        _ => "the kubelet reports \"PLEG is not healthy\" after 3 min".to_owned(),
    };
    match snapshot.last_list {
        LastList::At(at) if snapshot.now.since(at) <= LAST_LIST_NS => {
            format!("successful {}", when(snapshot, at))
        }
        LastList::At(at) => format!("successful {}; {limit}", when(snapshot, at)),
        LastList::NotSince(at) => {
            format!("none successful since {} (or before); {limit}", when(snapshot, at))
        }
        LastList::Untraced => "not traced".into(),
    }
}
