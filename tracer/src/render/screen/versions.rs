//! What runs on the node, in which version.

use std::collections::BTreeMap;

use crate::{
    correlate::{OciRuntime, ProcessKind, Snapshot, TracedProcess, TracedState},
    input::{Component, VersionFact},
    render::{escape, human},
};

/// `plegtrace 0.1.0   n1   2026-11-22 02:41:48Z`.
pub(super) fn header(snapshot: &Snapshot) -> Vec<String> {
    let mut parts = vec![format!("plegtrace {}", escape::text(&snapshot.start.tool_version))];
    if !snapshot.start.node.is_empty() {
        parts.push(escape::text_to(&snapshot.start.node, 40));
    }
    parts.push(human::moment(snapshot.wall_ns(snapshot.now)));
    parts
}

/// `kubelet 1.20.2, containerd 1.6.20, runc 1.1.4, kernel 6.18.44`.
pub(in crate::render) fn versions(snapshot: &Snapshot) -> Vec<String> {
    let mut versions: BTreeMap<Component, Vec<String>> = BTreeMap::new();
    let live = snapshot.targets.iter().filter(|target| target.state == TracedState::Live);
    let is_main = |target: &&TracedProcess| {
        target.fact.component == Component::Kubelet || target.fact.component.role().is_runtime()
    };
    for target in live.filter(is_main) {
        let list = versions.entry(target.fact.component).or_default();
        let version = version(target, snapshot);
        if !list.contains(&version) {
            list.push(version);
        }
    }
    let main =
        versions.into_iter().map(|(component, list)| format!("{} {}", component.name(), list.join(" and ")));
    let kernel = &snapshot.start.kernel;
    let kernel = (!kernel.is_empty()).then(|| format!("kernel {}", escape::text_to(kernel, 40)));
    main.chain(kernel).chain(others(snapshot)).collect()
}

fn version(target: &TracedProcess, snapshot: &Snapshot) -> String {
    let built = target.fact.go_version.as_ref().map(|go| format!("built with {go}"));
    let read = snapshot.census.goroutines.iter().find(|fact| fact.pid == target.fact.pid);
    let read = read.map(|fact| format!("built with {}", fact.go_version));
    let own = snapshot.version_of(target).map(str::to_owned);
    escape::text_to(&own.or(built).or(read).unwrap_or_else(|| "?".to_owned()), 24)
}

/// Programs that are no targets: runc, crun, systemd.
fn others(snapshot: &Snapshot) -> impl Iterator<Item = String> {
    let versions = || snapshot.census.versions.iter();
    let is_target = |name: &str| snapshot.targets.iter().any(|target| target.fact.component.name() == name);
    // What is installed as runc is not what CRI-O runs.
    let is_of_node = |fact: &&VersionFact| !(fact.program.starts_with("runc in ") && has_crio(snapshot));
    let known = versions().filter(move |fact| !is_target(&fact.program)).filter(is_of_node);
    let known = known.map(|fact| (short(&fact.program), escape::text_to(&fact.version, 24)));
    let crun = OciRuntime::Crun;
    let unknown = runs(crun, snapshot) && !versions().any(|fact| fact.program == crun.name());
    let unknown = unknown.then(|| (crun.name().to_owned(), "?".to_owned()));
    known.chain(unknown).map(|(program, version)| format!("{program} {version}"))
}

/// `runc`, of `runc in /usr/local/bin/runc`.
fn short(program: &str) -> String {
    escape::text_to(program.split(' ').next().unwrap_or_default(), 24)
}

/// Has the node run this program?
fn runs(wanted: OciRuntime, snapshot: &Snapshot) -> bool {
    let is_it = |kind: &ProcessKind| matches!(kind, ProcessKind::Runc { by, .. } if *by == wanted);
    let processes = &snapshot.processes;
    processes.rows.iter().any(|row| is_it(&row.kind)) || processes.open.iter().any(|open| is_it(&open.kind))
}

/// Does CRI-O run here?
pub(in crate::render) fn has_crio(snapshot: &Snapshot) -> bool {
    let is_crio = |target: &TracedProcess| {
        target.fact.component == Component::Crio && target.state == TracedState::Live
    };
    snapshot.targets.iter().any(is_crio)
}
