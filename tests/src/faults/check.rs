//! Whether a report is right about a fault: the cause first, with its culprit, severity and exit code, in time.

use std::time::Duration;

use plegtrace::diagnose::rules;
use plegtrace_lab::fault::{FORK_STORM, Facts, Kind};
use serde_json::Value;

use super::{Case, Injected, said};
use crate::program::Ended;

/// A report as a program reads it, with the exit code that goes with it.
#[derive(Clone, Debug)]
pub struct Report {
    /// The document.
    pub document: Value,
    /// The exit code.
    pub code: Option<i32>,
}

impl Report {
    /// What a run printed with `-o json`.
    ///
    /// # Panics
    ///
    /// It is no document.
    #[must_use]
    pub fn of(ended: &Ended) -> Report {
        let document = serde_json::from_str(&ended.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}\n{}", ended.stdout, ended.stderr));
        Report { document, code: ended.status.code() }
    }
}

/// What is told of relists, without their trees.
fn relists(report: &Value) -> Value {
    let mut relists = report["relists"].clone();
    for relist in relists.as_array_mut().unwrap() {
        relist.as_object_mut().unwrap().remove("tree");
    }
    relists
}

/// The moment of the report, and of the probes.
fn moments(report: &Value) -> (u64, u64) {
    let at = |moment: &Value| moment["mono_ns"].as_u64().unwrap();
    (at(&report["taken_at"]), at(&report["observed"]["from_at"]))
}

/// Is the culprit the one that the fault made, and the container its? `midway`: it was named before the fault was all
/// there, which for a restart means: before the new process answered.
fn check_culprit(kind: Kind, finding: &Value, facts: &Facts, midway: bool) {
    let culprit = &finding["culprit"];
    let pid = culprit["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
    match kind {
        // There is no process any more, or no single one.
        Kind::ContainerdKilled | Kind::KubeletKilled | Kind::ExecStorm | Kind::SilentApiServer => {
            assert_eq!(pid, None, "{kind:?}: {culprit}");
        }
        Kind::SilentRegistry => {
            assert_eq!(pid, None, "{kind:?}: {culprit}");
            let sentence = culprit["sentence"].as_str().unwrap();
            assert!(sentence.starts_with("the registry behind 127.0.0.1:"), "{culprit}");
        }
        Kind::ContainerdRestarted if midway && pid.is_none() => {
            assert!(culprit["sentence"].as_str().unwrap().contains("killed by signal 9"), "{finding}");
        }
        // What hangs, waits or is frozen is the victim itself.
        Kind::Rc93 | Kind::Rc93Standalone | Kind::OrphanedInit | Kind::ContainerFrozen | Kind::Freezing => {
            assert!(facts.victims.contains(&pid.unwrap()), "{kind:?}: {facts:?}\n{finding}");
        }
        _ => {
            let is_told = |pid: &u32| finding["victims"].to_string().contains(&format!("(pid {pid})"));
            if kind == Kind::CniFlock {
                let lock = finding["headline"].as_str().unwrap().contains(" file lock ");
                assert!(lock && facts.victims.iter().any(is_told), "{facts:?}\n{finding:#}");
            }
            let pid = pid.unwrap_or_else(|| panic!("{kind:?} has no culprit: {finding}"));
            assert!(facts.culprits.contains(&pid), "{kind:?}: {facts:?}\n{finding}");
        }
    }
    let container = &culprit["container"];
    let known = |id: &Value| id.as_str().is_some_and(|id| facts.ids.iter().any(|known| known == id));
    if !facts.ids.is_empty() {
        let named = known(&container["id"]) || known(&container["sandbox"]);
        assert!(named, "{kind:?}: not {:?} in\n{finding}", facts.ids);
    }
}

/// When a fault was named.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    /// After it could be: it was there, as old as it has to be, and the probes were, too.
    pub after: Duration,
    /// After the start of plegtrace, or of the fault's being as old as it has to be.
    pub since_start: Duration,
}

/// On a busy machine the kubelet, too, waits for the processor that the hog has, a thread of the tester, or the storm: that is true.
fn is_hogged_too(case: &Case, finding: &Value) -> bool {
    let headline = finding["headline"].as_str().unwrap();
    let who_has_it = match case.kind {
        Kind::Hog => headline.ends_with(&case.tester.to_string()),
        Kind::ForkStorm => headline.contains(FORK_STORM),
        _ => false,
    };
    who_has_it && finding["id"] == "O1" && headline.starts_with("kubelet waits for a CPU")
}

/// How bad it is. What makes every relist slow holds one up when that is open for five seconds at the moment of the report. A quota also holds
/// up the programs that its daemon runs; where one of those is old itself, it is worth a look beside a cause that is not known.
fn severity(kind: Kind, report: &Value) -> &'static str {
    if kind == Kind::Quota && !report["diagnosis"]["unknown_cause"].is_null() {
        return "notice";
    }
    let holds_up = |reason: &Value| kind == Kind::Quota || reason["kind"] == "relist_open";
    let held_up = report["diagnosis"]["reasons"].as_array().unwrap().iter().any(holds_up);
    if held_up && said::severity(kind) == "slow" { "stall" } else { said::severity(kind) }
}

/// When a fault is there, and as old as it has to be, at the latest.
fn old_enough_ns(kind: Kind, injected: &Injected) -> u64 {
    let rule = rules::by_id(kind.root_cause().expect("a fault has a cause")).unwrap();
    // An unmount begins when all is made that it has to write.
    let unmounts = matches!(kind, Kind::SlowUmount | Kind::UmountHostage);
    let began = if unmounts { injected.to_ns } else { injected.from_ns };
    injected.to_ns.max(began + rule.min_age_ns)
}

/// From when on the observer of this report could name it, on the monotonic clock.
///
/// # Panics
///
/// The fault has no cause, or the report no moment.
#[must_use]
pub fn possible_ns(kind: Kind, report: &Report, injected: &Injected) -> u64 {
    old_enough_ns(kind, injected).max(moments(&report.document).1)
}

/// The report of one observer: the cause first, with its culprit, severity and exit code, and nobody else.
///
/// # Panics
///
/// It is not.
pub fn check(case: &Case, report: &Report) -> Named {
    let Case { kind, observer, facts, injected, .. } = case;
    let (kind, document) = (*kind, &report.document);
    let findings = document["diagnosis"]["findings"].as_array().unwrap();
    let id = kind.root_cause().expect("a fault has a cause");
    let text = serde_json::to_string_pretty(&document["diagnosis"]).unwrap();
    let stuck = serde_json::to_string_pretty(&document["stuck"]).unwrap();
    let first = findings.first().unwrap_or_else(|| {
        panic!("{kind:?} {observer:?}: nothing is named\n{text}\n{stuck}\n{}", relists(document))
    });
    assert_eq!(first["id"], id, "{kind:?} {observer:?}\n{text}\n{stuck}");
    let (taken, armed) = moments(document);
    check_culprit(kind, first, facts, taken < injected.to_ns);
    let others = findings[1..].iter().filter(|other| !is_hogged_too(case, other));
    let others: Vec<&Value> = others.map(|other| &other["headline"]).collect();
    assert!(others.is_empty(), "{kind:?} {observer:?} also blames {others:#?}");
    said::check_stuck(kind, document, facts);
    let severity = severity(kind, document);
    assert_eq!(first["severity"], severity, "{kind:?} {observer:?}: {text}");
    let code = i32::from(severity != "notice" || kind == Kind::Quota);
    assert_eq!(report.code, Some(code), "{kind:?} {observer:?}: {text}");

    let possible = old_enough_ns(kind, injected);
    let since = |moment: u64| Duration::from_nanos(taken.saturating_sub(moment));
    Named { after: since(possible.max(armed)), since_start: since(possible.max(injected.late_ns)) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What is merely slow is a stall once it holds something up: a hog a relist, a quota also a program of the runtime.
    #[test]
    fn what_is_held_up() {
        let severity = |kind, reasons: &[&str]| {
            let reasons: Vec<Value> = reasons.iter().map(|kind| json!({ "kind": kind })).collect();
            severity(kind, &json!({ "diagnosis": { "reasons": reasons } }))
        };
        assert_eq!((severity(Kind::Quota, &[]), severity(Kind::Hog, &[])), ("slow", "slow"));
        assert_eq!(severity(Kind::Hog, &["relist_open"]), "stall");
        assert_eq!(severity(Kind::Quota, &["processes_open"]), "stall");
        assert_eq!(severity(Kind::Hog, &["processes_open"]), "slow", "the hog holds up no runc");
        assert_eq!(severity(Kind::ExecStorm, &["relist_open"]), "notice");
        let unknown =
            json!({ "diagnosis": { "reasons": [{ "kind": "stuck" }], "unknown_cause": "nothing_fits" } });
        assert_eq!(super::severity(Kind::Quota, &unknown), "notice");
    }
}
