//! What "healthy" is said of: what was watched by probes that are on, by name, and what was not. A verdict claims no more.

use crate::correlate::Snapshot;

/// What the runtime says of itself.
#[must_use]
pub(super) fn runtime(snapshot: &Snapshot) -> String {
    let says = snapshot.census.round.as_ref().and_then(|round| round.says.as_ref());
    let conditions = says.map_or(&[][..], |says| &says.conditions).iter();
    let names: Vec<&str> = conditions
        .filter(|condition| condition.is_required())
        .map(|condition| condition.name.as_str())
        .collect();
    if names.is_empty() {
        return "not asked whether it is ready: a node can be NotReady all the same".to_owned();
    }
    format!("ready, it says ({}); NotReady for another reason: plegtrace explain L1", names.join(", "))
}

/// What was seen.
#[must_use]
pub(super) fn seen(snapshot: &Snapshot) -> String {
    let seen = parts(snapshot).into_iter().filter_map(|(part, is_seen)| is_seen.then_some(part));
    let loops = snapshot.watches_loops().then_some("loops of the kubelet");
    seen.chain(loops).collect::<Vec<_>>().join(", ")
}

/// What was not, first what could have been.
#[must_use]
pub(super) fn not_seen(snapshot: &Snapshot) -> String {
    let missing = parts(snapshot).into_iter().filter_map(|(part, is_seen)| (!is_seen).then_some(part));
    let loops = (!snapshot.watches_loops()).then_some("other loops of the kubelet");
    missing.chain(["volumes", "image pulls"]).chain(loops).collect::<Vec<_>>().join(", ")
}

fn parts(snapshot: &Snapshot) -> [(&'static str, bool); 5] {
    let follows_programs = snapshot.processes.read_at.is_some();
    [
        ("relists", snapshot.sees_relists()),
        ("CRI calls", snapshot.sees_calls()),
        ("runc", follows_programs),
        ("network plugins", follows_programs),
        ("D-Bus", snapshot.bus.complete),
    ]
}
