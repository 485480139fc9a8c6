//! First and last line: who looked at what, and how well.

use std::{collections::BTreeMap, io};

use super::page::Page;
use crate::{
    correlate::{OciRuntime, ProcessKind, Snapshot, TracedProcess, TracedState},
    input::{Component, Cost, VersionFact},
    render::{escape, human},
};

/// `plegtrace 0.1.0   node n1   kernel 6.1   kubelet 1.20.2   …   observed 4.2 s`.
pub(super) fn header(page: &mut Page<'_>) -> io::Result<()> {
    let snapshot = page.snapshot;
    let start = &snapshot.start;
    let mut parts = vec![format!("plegtrace {}", escape::text(&start.tool_version))];
    for (name, value) in [("node", &start.node), ("kernel", &start.kernel)] {
        if !value.is_empty() {
            parts.push(format!("{name} {}", escape::text_to(value, 40)));
        }
    }
    parts.extend(components(page));
    parts.push(observed(page));
    flow(page, &parts)?;
    writeln!(page.out)
}

/// How long calls were seen; without probes nothing was seen between the looks of the census.
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
        if !line.is_empty() && line.chars().count() + 3 + part.chars().count() > page.width {
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

/// Live components: main ones with their versions, helpers with their number.
fn components(page: &Page<'_>) -> Vec<String> {
    let mut versions: BTreeMap<Component, Vec<String>> = BTreeMap::new();
    let mut helpers: BTreeMap<Component, u64> = BTreeMap::new();
    for target in page.snapshot.targets.iter().filter(|target| target.state == TracedState::Live) {
        let component = target.fact.component;
        if component == Component::Kubelet || component.role().is_runtime() {
            let built = target.fact.go_version.as_ref().map(|go| format!("built with {go}"));
            let read = page.snapshot.census.goroutines.iter().find(|fact| fact.pid == target.fact.pid);
            let read = read.map(|fact| format!("built with {}", fact.go_version));
            let told = page.snapshot.version_of(target).map(str::to_owned);
            let version = told.or(built).or(read).unwrap_or_else(|| "?".to_owned());
            let list = versions.entry(component).or_default();
            let version = escape::text_to(&version, 24);
            if !list.contains(&version) {
                list.push(version);
            }
        } else {
            *helpers.entry(component).or_default() += 1;
        }
    }
    let main =
        versions.into_iter().map(|(component, list)| format!("{} {}", component.name(), list.join(" and ")));
    if let Some(conmons) = conmons(page.snapshot) {
        helpers.insert(Component::Conmon, conmons);
    }
    let helpers = helpers.into_iter().map(|(component, n)| human::plural(n, component.name()));
    main.chain(others(page.snapshot)).chain(helpers).collect()
}

/// Programs that are no targets, with their versions: runc, crun, systemd.
fn others(snapshot: &Snapshot) -> impl Iterator<Item = String> {
    let versions = || snapshot.census.versions.iter();
    let is_target = |name: &str| snapshot.targets.iter().any(|target| target.fact.component.name() == name);
    // What is installed as runc says nothing of what CRI-O runs.
    let is_of_node = |fact: &&VersionFact| !(fact.program.starts_with("runc in ") && has_crio(snapshot));
    let told = versions().filter(move |fact| !is_target(&fact.program)).filter(is_of_node);
    let told = told.map(|fact| (escape::text_to(&fact.program, 24), escape::text_to(&fact.version, 24)));
    let crun = OciRuntime::Crun;
    let untold = runs(crun, snapshot) && !versions().any(|fact| fact.program == crun.name());
    let untold = untold.then(|| (crun.name().to_owned(), "?".to_owned()));
    told.chain(untold).map(|(program, version)| format!("{program} {version}"))
}

/// Has the node run this program?
fn runs(wanted: OciRuntime, snapshot: &Snapshot) -> bool {
    let is_it = |kind: &ProcessKind| matches!(kind, ProcessKind::Runc { by, .. } if *by == wanted);
    let processes = &snapshot.processes;
    processes.rows.iter().any(|row| is_it(&row.kind)) || processes.open.iter().any(|open| is_it(&open.kind))
}

fn has_crio(snapshot: &Snapshot) -> bool {
    let is_crio = |target: &TracedProcess| {
        target.fact.component == Component::Crio && target.state == TracedState::Live
    };
    snapshot.targets.iter().any(is_crio)
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
        let (processes, looks) = (round.processes.into(), snapshot.census.rounds);
        parts.push(format!(
            "census: {} at {}, {}",
            human::plural(looks, "look"),
            human::plural(processes, "process"),
            human::plural(goroutines, "goroutine")
        ));
    }
    parts.push(observed(page));
    writeln!(page.out)?;
    flow(page, &parts)
}
