//! R8: a command left a child behind that holds its output open.

use crate::{
    correlate::thresholds::EXEC_OUTPUT_NS,
    diagnose::{Area, Finding, Page, Proof, Rule, Scene},
    input::Component,
    stuck::{Stuck, StuckKind},
    words::{holders, of_pod},
};

pub(super) static RULE: Rule = Rule {
    id: "R8",
    title: "ExecSync waits for output that a left-behind child keeps open",
    area: Area::Runtime,
    min_age_ns: EXEC_OUTPUT_NS,
    proof: Proof::Real,
    page: Page {
        mechanism: "ExecSync (exec probes) returns once the command has exited and its output is closed. A command \
            that leaves a child in the background leaves it the write end of the pipe, so the output is never \
            closed. Each probe adds goroutines, FIFOs and memory to the runtime, until it is OOM-killed.",
        versions: "containerd waits forever unless drain_exec_sync_io_timeout is set (1.7.0, 1.6 backport); \
            CVE-2026-53495 fixed in 1.7.35, 2.0.12, 2.2.8",
        symptoms: &["probe: DeadlineExceeded after 120 s plus its timeout", "containerd grows, then OOM"],
        evidence: &[
            "ExecSync in flight for more than 10 s, waiting for output",
            "the shim's pipe is held open only by a process whose session leader has exited",
        ],
        excluded_by: &["the command itself still runs"],
        next: &[
            "redirect the output of whatever the probe's command starts (>/dev/null 2>&1 </dev/null)",
            "set drain_exec_sync_io_timeout in containerd's configuration",
            "kill the left-behind child: the ExecSync returns at once",
        ],
        trap: "Do not restart the runtime: that frees its memory, but the next probe starts it over.",
        sources: &["containerd#9568", "containerd#9668", "kubernetes#92057", "GHSA-7jxh-36q5-gcqv"],
    },
    examine,
};

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    let mut found: Vec<Finding> = scene.stuck().filter_map(|stuck| finding(stuck, scene)).collect();
    // stdout and stderr of one command are two pipes with one holder.
    found.dedup_by_key(|finding| finding.culprit.as_ref().and_then(|culprit| culprit.pid));
    found
}

fn finding(stuck: &Stuck, scene: &Scene<'_>) -> Option<Finding> {
    let StuckKind::OutputHeld { pipe, shim } = &stuck.what else { return None };
    let others: Vec<_> = pipe.writers.iter().filter(|writer| writer.pid != *shim).cloned().collect();
    let first = others.first()?;
    let pod = of_pod(stuck.container.as_ref());
    let headline =
        format!("{} holds the output of a command{pod} open: its ExecSync waits", holders(&others));
    let finding = Finding::of_stuck(&RULE, headline, Component::Helper, stuck, scene);
    Some(finding.advise([
        format!("`kill {}`: the ExecSync returns at once", first.pid),
        "fix the probe: what it leaves in the background must not keep its output open".to_owned(),
    ]))
}
