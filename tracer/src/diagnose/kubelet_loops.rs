//! What rules about a loop of the kubelet have in common, and who holds the lock for which one waits.

use super::{Evidence, Finding, Rule, Scene, Source, finding::Explained, kubelet_work};
use crate::{
    correlate::{Again, BusyLoop, LoopWait},
    input::{Component, GoroutineGroup},
    stuck::{LoopStall, Stuck, StuckKind},
    words::{
        self, go_stack,
        human::{count, duration},
    },
};

/// A finding about a loop that hangs: what stops with it, and its stack.
pub(super) fn finding(
    rule: &'static Rule,
    headline: String,
    stall: &LoopStall,
    stuck: &Stuck,
    scene: &Scene<'_>,
) -> Finding {
    let finding = Finding::of_stuck(rule, headline, Component::Kubelet, stuck, scene);
    let evidence = told(stall, scene);
    Finding {
        victims: vec![stall.oldest.kind.stops().to_owned()],
        evidence,
        explained: explained(stall),
        ..finding
    }
}

/// The goroutines of a stall.
pub(super) fn explained(stall: &LoopStall) -> Explained {
    let goroutines = stall.goids.iter().map(|goid| (stall.oldest.pid, *goid)).collect();
    Explained { processes: Vec::new(), goroutines }
}

/// Where it waits, that it has not gone on, and that relists do.
pub(super) fn told(stall: &LoopStall, scene: &Scene<'_>) -> Vec<Evidence> {
    let one = &stall.oldest;
    let (looks, wait_ns) = (one.looks, one.wait_ns());
    let still = match one.asks_again_ns() {
        Some(ns) if one.limit_ns().is_some_and(|limit| wait_ns < limit) => again(&one.again, ns),
        _ => format!("{looks} looks found the same stack: it has not gone on for {}", duration(wait_ns)),
    };
    let stack = go_stack(kubelet_part(one), false);
    let mut all = vec![
        Evidence::new(Source::Goroutines, format!("{}; {still}", words::loop_stall(stall))),
        Evidence::new(Source::Goroutines, format!("goroutine {}: {stack}", one.goid)),
    ];
    all.extend(kubelet_work::relists_go_on(scene));
    all
}

/// `found so at 7 looks over 72 s, and once between two requests`.
fn again(again: &Again, ns: u64) -> String {
    let pauses = match again.pauses {
        0 => String::new(),
        1 => ", and once between two requests".to_owned(),
        many => format!(", and {} times between two requests", count(u64::from(many))),
    };
    format!("found so at {} looks over {}{pauses}", count(u64::from(again.looks)), duration(ns))
}

/// Its functions from the innermost on that is no part of Go or of gRPC.
fn kubelet_part(one: &BusyLoop) -> &[String] {
    let others = ["runtime.", "sync.", "internal/", "net/", "google.golang.org/grpc"];
    let own = |frame: &String| {
        let name = frame.rsplit_once("/vendor/").map_or(frame.as_str(), |(_, name)| name);
        !others.iter().any(|part| name.starts_with(part))
    };
    let from = one.frames.iter().position(own).unwrap_or(0);
    &one.frames[from..]
}

/// Who holds the lock for which a loop waits.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HeldBy<'a> {
    /// The goroutine that waits for it has it, further out.
    Itself,
    /// Another goroutine in a function of the same structure, and what that waits for.
    Other { group: &'a GoroutineGroup, wait: LoopWait },
    /// No goroutine, or more than one, shows it.
    Unknown,
}

/// Looks for it among the goroutines of the kubelet. A lock is a field of the structure of which the function is that wants it; whoever has
/// it is most likely in a function of the same structure, and waits for something else there.
pub(super) fn held_by<'a>(one: &BusyLoop, scene: &Scene<'a>) -> HeldBy<'a> {
    let LoopWait::Lock { by: Some(by) } = &one.wait else { return HeldBy::Unknown };
    let Some(structure) = structure(by) else { return HeldBy::Unknown };
    let is_in = |frame: &String| frame.starts_with(structure);
    if one.frames.iter().skip_while(|frame| *frame != by).skip(1).any(is_in) {
        return HeldBy::Itself;
    }
    let of_kubelet = scene.snapshot.census.goroutines.iter().filter(|fact| fact.pid == one.pid);
    let candidates = of_kubelet.flat_map(|fact| &fact.groups).filter(|group| {
        let others = !group.goids.contains(&one.goid) && group.frames.iter().any(is_in);
        others && group.state != "running"
    });
    let mut found = candidates.filter_map(|group| {
        let wait = LoopWait::of_goroutine(group);
        let queues = matches!(&wait, LoopWait::Lock { by: Some(other) }
            if is_in(other) && !group.frames.iter().skip_while(|frame| *frame != other).skip(1).any(is_in));
        // In its own select it waits for work.
        let rests = group.frames.iter().find(|frame| !frame.starts_with("runtime.")).is_some_and(is_in);
        (!queues && !rests).then_some((group, wait))
    });
    match (found.next(), found.next()) {
        (Some((group, wait)), None) => HeldBy::Other { group, wait },
        _ => HeldBy::Unknown,
    }
}

/// `…/manager.(*manager).` of a method; `None` for a function.
fn structure(function: &str) -> Option<&str> {
    let end = function.find(").")?;
    Some(&function[..end + 2])
}

/// Loops of the kubelet that hang.
pub(super) fn stalls<'a>(scene: &Scene<'a>) -> impl Iterator<Item = (&'a Stuck, &'a LoopStall)> {
    scene.stuck().filter_map(|stuck| match &stuck.what {
        StuckKind::Loop(stall) => Some((stuck, stall.as_ref())),
        _ => None,
    })
}
