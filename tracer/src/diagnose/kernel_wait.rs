//! [`findings`]: what does not move because the kernel, or a server far away, does not answer it.

use crate::{
    diagnose::{
        Culprit, Evidence, Finding, Rule, Scene, Source,
        kernel_victims::{self, Victim},
        scene::{parked_in, parks_of},
    },
    input::{Component, ParkedThreads},
    stuck::{Stuck, StuckKind},
    words::{self, of_pod},
};

/// A place in the kernel where things wait.
pub(super) struct Wait {
    /// Do these threads wait there?
    pub(super) is: fn(&ParkedThreads) -> bool,
    /// Why, as the end of a sentence.
    pub(super) why: &'static str,
    /// Whom they wait for.
    pub(super) culprit: &'static str,
}

/// One for each thing that waits there for longer than the rule allows.
pub(super) fn findings(rule: &'static Rule, wait: &Wait, scene: &Scene<'_>) -> Vec<Finding> {
    let stuck = scene.stuck().filter_map(|stuck| finding(rule, wait, stuck, scene));
    let victims = kernel_victims::find(scene, wait.is);
    stuck.chain(victims.iter().map(|victim| of_victim(rule, wait, victim))).collect()
}

fn of_victim(rule: &'static Rule, wait: &Wait, victim: &Victim<'_>) -> Finding {
    let (pod, call, why) = (of_pod(victim.container()), access(victim.park), wait.why);
    let headline = format!("{}{pod} hangs in {call}: {why}", victim.who);
    victim.finding(rule, headline, wait.culprit.to_owned()).advise(rule.page.next.iter().copied())
}

fn finding(rule: &'static Rule, wait: &Wait, stuck: &Stuck, scene: &Scene<'_>) -> Option<Finding> {
    let park = parked_in(parks_of(stuck, scene)?, wait.is)?;
    if stuck.since.ns < rule.min_age_ns || !was_found_before(stuck.what.pid(), park, scene) {
        return None;
    }
    let (component, who) = match &stuck.what {
        StuckKind::Process { command, comm, pid, .. } => {
            (Component::Helper, format!("{} (pid {pid})", words::command_words(command, comm)))
        }
        StuckKind::Request(request) => (request.component, words::requests(request)),
        _ => return None,
    };
    let (pod, call, why) = (of_pod(stuck.container.as_ref()), access(park), wait.why);
    let headline = format!("{who}{pod} hangs in {call}: {why}");
    let culprit = Culprit {
        component,
        pid: Some(stuck.what.pid()),
        container: stuck.container.clone(),
        words: wait.culprit.to_owned(),
    };
    let finding =
        Finding { culprit: Some(culprit), ..Finding::of_stuck(rule, headline, component, stuck, scene) };
    // Of a process, the places of its threads are in the evidence already.
    let finding = match &stuck.what {
        StuckKind::Request(_) => finding.seen(Evidence::new(Source::Census, words::park_line(park, false))),
        _ => finding,
    };
    Some(finding.advise(rule.page.next.iter().copied()))
}

/// Did an earlier look find the thread in the same call? What is old and only passes through the kernel does not wait there.
fn was_found_before(pid: u32, park: &ParkedThreads, scene: &Scene<'_>) -> bool {
    let census = &scene.snapshot.census;
    let mut threads =
        census.processes.iter().filter(|seen| seen.fact.pid == pid).flat_map(|seen| &seen.blocked);
    let found = threads.find(|thread| thread.tid == park.tid);
    let last = census.round.as_ref().map_or(0, |round| round.ended_ns);
    found.is_some_and(|thread| thread.since.0 < last)
}

/// `openat of /run/x.lock`.
pub(super) fn access(park: &ParkedThreads) -> String {
    let call = park.syscall.as_ref();
    let name = call.and_then(|call| call.name.as_deref()).unwrap_or("its access");
    match call.and_then(|call| call.path.as_deref()) {
        Some(path) => format!("{name} of {}", words::cut(path, 60)),
        None => name.to_owned(),
    }
}
