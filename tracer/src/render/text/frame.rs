//! The last lines: what was watched, and how well.

use std::{collections::BTreeMap, io};

use super::page::Page;
use crate::{
    correlate::{Snapshot, TracedState},
    input::{Component, Cost},
    render::{human, screen::has_crio, wrap::columns},
};

/// How long calls were seen; without probes nothing was seen between the rounds of the census.
fn observed(page: &Page<'_>) -> String {
    match page.snapshot.window.from {
        Some(_) => format!("observed {}", human::duration(page.snapshot.window.ns())),
        None => "no probes".to_owned(),
    }
}

/// Writes parts three blanks apart, on as many lines as it takes.
fn flow(page: &mut Page<'_>, parts: &[String]) -> io::Result<()> {
    let mut line = String::new();
    for part in parts {
        if !line.is_empty() && columns(&line) + 3 + columns(part) > page.width {
            writeln!(page.out, "{line}")?;
            line.clear();
        }
        if !line.is_empty() {
            line.push_str("   ");
        }
        line.push_str(part);
    }
    writeln!(page.out, "{line}")
}

/// Shims and other helpers, with their number.
fn helpers(snapshot: &Snapshot) -> Vec<String> {
    let mut helpers: BTreeMap<Component, u64> = BTreeMap::new();
    for target in snapshot.targets.iter().filter(|target| target.state == TracedState::Live) {
        let component = target.fact.component;
        if component != Component::Kubelet && !component.role().is_runtime() {
            *helpers.entry(component).or_default() += 1;
        }
    }
    if let Some(conmons) = conmons(snapshot) {
        helpers.insert(Component::Conmon, conmons);
    }
    helpers.into_iter().map(|(component, n)| human::plural(n, component.name())).collect()
}

/// How many conmons watch containers of CRI-O: no probes are in them. Those that watch a command for a moment are its children.
fn conmons(snapshot: &Snapshot) -> Option<u64> {
    let is_crio = |pid: u32| {
        let mut targets = snapshot.targets.iter();
        targets.any(|target| target.fact.pid == pid && target.fact.component == Component::Crio)
    };
    let all = snapshot.census.processes.iter().filter(|seen| seen.fact.component == Component::Conmon);
    let count = all.filter(|seen| !is_crio(seen.fact.parent)).count() as u64;
    (count > 0 && has_crio(snapshot)).then_some(count)
}

/// What everybody else pays: `probes cost 0.2 % in traced programs, 0.5 % in system calls`.
fn in_probes(cost: &Cost) -> Option<String> {
    let share =
        |ns: Option<u64>, of: &str| ns.map(|ns| format!("{} in {of}", human::percent(ns, cost.wall_ns)));
    let shares = [share(cost.probes_ns, "traced programs"), share(cost.syscalls_ns, "system calls")];
    let shares: Vec<String> = shares.into_iter().flatten().collect();
    (!shares.is_empty()).then(|| format!("probes cost {}", shares.join(", ")))
}

/// `probes 61 live, 2 refused (plegtrace doctor)   events 48,211, lost 0   own cost 0.3 % of one core, 21 MiB   …`.
pub(super) fn footer(page: &mut Page<'_>) -> io::Result<()> {
    let snapshot = page.snapshot;
    let sites: u64 = snapshot.hooks.iter().map(|state| u64::from(state.hook.sites)).sum();
    let refused = snapshot.refused.iter().filter(|refused| refused.matters).count();
    let lost = snapshot.real_losses().map(|loss| loss.count).fold(0, u64::saturating_add);
    let mut parts = vec![
        format!(
            "probes {} live, {} refused (plegtrace doctor)",
            human::count(sites),
            human::count(refused as u64)
        ),
        format!("events {}, lost {}", human::count(snapshot.tally.events), human::count(lost)),
    ];
    if let Some(cost) = &snapshot.cost {
        let (cpu, memory) = (human::percent(cost.cpu_ns, cost.wall_ns), human::mebibytes(cost.rss_bytes));
        parts.push(format!("own cost {cpu} of one core, {memory}"));
        parts.extend(in_probes(cost));
    }
    if let Some(round) = &snapshot.census.round {
        let goroutines: u64 = snapshot.census.goroutines.iter().map(|fact| u64::from(fact.total)).sum();
        let (processes, rounds) = (round.processes.into(), snapshot.census.rounds);
        parts.push(format!(
            "census: {} over {}, {}",
            human::plural(rounds, "round"),
            human::plural(processes, "process"),
            human::plural(goroutines, "goroutine")
        ));
    }
    parts.extend(helpers(snapshot));
    parts.push(observed(page));
    writeln!(page.out)?;
    flow(page, &parts)
}
