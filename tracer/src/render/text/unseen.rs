//! What was not seen, and why: refusals, silent probes, losses, what could not be matched.

use std::{collections::BTreeMap, io};

use super::page::Page;
use crate::{
    correlate::{HookState, Side, Snapshot, TracedState},
    input::{Component, Layer, RefusedFact, Unanswered},
    render::{escape, human},
};

/// Names listed per line.
const NAMES: usize = 4;

/// Writes the section; one line when nothing is known to be missing.
pub(super) fn write(page: &mut Page<'_>) -> io::Result<()> {
    let verbose = page.verbose;
    let mut lines = refused(page.snapshot, verbose);
    lines.extend(losses(page.snapshot, verbose));
    lines.extend(silent(page.snapshot, verbose));
    lines.extend(unmatched(page.snapshot, verbose));
    lines.extend(census(page.snapshot, verbose));
    lines.extend(targets(page.snapshot));
    if lines.is_empty() {
        return page.section("Not seen", "no known gaps");
    }
    page.section("Not seen, and why", "")?;
    for (label, text) in lines {
        page.labelled(label, &text)?;
    }
    Ok(())
}

type Lines = Vec<(&'static str, String)>;

/// Refusals with the same reason together.
fn refused(snapshot: &Snapshot, verbose: bool) -> Lines {
    let mut groups: BTreeMap<(Option<Component>, &str), Vec<&RefusedFact>> = BTreeMap::new();
    for refused in snapshot.refused.iter().filter(|refused| verbose || refused.matters) {
        groups.entry((refused.component, &refused.why)).or_default().push(refused);
    }
    let line = |((component, why), group): ((Option<Component>, &str), Vec<&RefusedFact>)| {
        let mut names: Vec<String> = group.iter().map(|refused| escape::text_to(&refused.what, 60)).collect();
        names.sort_unstable();
        let place = component.map_or_else(String::new, |component| format!("{}: ", component.name()));
        ("refused", format!("{place}{}: {}", listed(&names, verbose), escape::text(why)))
    };
    groups.into_iter().map(line).collect()
}

/// Some names of a list, and how many more there are.
fn listed(names: &[String], verbose: bool) -> String {
    let shown = if verbose || names.len() <= NAMES + 1 { names.len() } else { NAMES };
    let mut text = names[..shown].join(", ");
    if shown < names.len() {
        text.push_str(&format!(" and {} more", human::count((names.len() - shown) as u64)));
    }
    text
}

/// Probes that never fired. For most operations that is normal; for the relist and its list phase it is not.
fn silent(snapshot: &Snapshot, verbose: bool) -> Lines {
    if snapshot.window.from.is_none() {
        return Vec::new();
    }
    let seen = human::duration(snapshot.relist_window.ns());
    let mut lines = Lines::new();
    let mut others: BTreeMap<Component, Vec<String>> = BTreeMap::new();
    let told = |state: &&HookState| verbose || state.hook.layer != Layer::RuncPhase;
    for state in snapshot.hooks.iter().filter(|state| !state.fired()).filter(told) {
        let name = escape::text_to(&state.hook.operation, 60);
        match state.hook.layer {
            // A relist of one pod is not due at any time.
            Layer::Relist | Layer::ListPhase if state.hook.operation != "GetPod" => {
                lines.push(("silent", format!("{name} of the kubelet never fired in {seen}")));
            }
            _ => others.entry(state.hook.component).or_default().push(name),
        }
    }
    for (component, names) in others {
        let hooks = snapshot.hooks.iter().filter(|state| state.hook.component == component).count();
        let list = if verbose { format!(": {}", listed(&names, true)) } else { String::new() };
        let text = format!(
            "{} of {} functions of {} were never called{list}",
            human::count(names.len() as u64),
            human::count(hooks as u64),
            component.name()
        );
        lines.push(("silent", text));
    }
    lines
}

fn losses(snapshot: &Snapshot, verbose: bool) -> Lines {
    let shown = snapshot.losses.iter().filter(|loss| loss.count > 0 && (verbose || loss.is_loss));
    let line = |loss: &crate::input::LossCount| {
        let label = if loss.is_loss { "lost" } else { "counted" };
        let (sentence, reason) = (escape::text(&loss.sentence), escape::text_to(&loss.reason, 40));
        (label, format!("{} × {sentence} ({reason})", human::count(loss.count)))
    };
    shown.map(line).collect()
}

fn unmatched(snapshot: &Snapshot, verbose: bool) -> Lines {
    let mut lines = Lines::new();
    let closed = &snapshot.closed_unseen;
    let mut say = |count: u64, one: &str, text: &str| {
        if count > 0 {
            lines.push(("unmatched", format!("{} {text}", human::plural(count, one))));
        }
    };
    say(closed.ended_unseen, "call", "looked open, but its goroutine is gone: its end was missed");
    say(closed.unwound + snapshot.tally.unwound, "call", "unwound by a panic: in no table");
    say(closed.process_exited, "call", "ended with its process");
    say(snapshot.joins.ambiguous, "handler", "matched more than one client call: joined to none");
    if verbose {
        say(snapshot.joins.foreign, "handler", "had a caller that is not traced");
        say(snapshot.joins.own, "handler", "answered plegtrace itself");
        let ends =
            snapshot.rows.iter().filter(|row| row.key.side == Side::Server).map(|row| row.unmatched).sum();
        say(
            ends,
            "end",
            "of a handler had no start: the call began before the probes, or belongs to another service",
        );
        say(snapshot.tally.restarted, "call", "started twice because its stack grew: counted once");
    }
    if snapshot.open_read_at.is_none() {
        lines.push(("open", "the open calls were not read".into()));
    } else if !snapshot.open_complete {
        lines.push(("open", "only some of the open calls were read".into()));
    }
    lines
}

/// Who did not answer to the census.
fn census(snapshot: &Snapshot, verbose: bool) -> Lines {
    let Some(round) = &snapshot.census.round else { return Lines::new() };
    let shown = if verbose { round.unanswered.len() } else { round.unanswered.len().min(NAMES) };
    let line = |one: &Unanswered| {
        let who = if one.pid == 0 {
            String::new()
        } else {
            format!(" of {} {}", escape::text_to(&one.comm, 20), one.pid)
        };
        ("census", format!("{}{who}: {}", escape::text_to(&one.what, 40), escape::text(&one.why)))
    };
    let mut lines: Lines = round.unanswered[..shown].iter().map(line).collect();
    let more = round.unanswered.len() - shown;
    if more > 0 {
        lines.push(("census", format!("{} more questions unanswered, -v", human::count(more as u64))));
    }
    if round.left_out > 0 {
        let left = human::plural(round.left_out.into(), "process");
        lines.push(("census", format!("{left} left out: too many, or out of time")));
    }
    lines
}

/// Targets that nobody has proved plegtrace on, and those that went away.
fn targets(snapshot: &Snapshot) -> Lines {
    let mut lines = Lines::new();
    for target in &snapshot.targets {
        let (name, pid) = (target.fact.component.name(), target.fact.pid);
        if target.fact.unproved {
            lines.push((
                "unproved",
                format!("{name} {pid}: plegtrace has not been tested on this kind of target yet"),
            ));
        }
        let main = target.fact.component == Component::Kubelet || target.fact.component.role().is_runtime();
        if let TracedState::Gone { at, how } = &target.state
            && main
        {
            let when = human::clock(snapshot.wall_ns(*at));
            lines.push(("gone", format!("{name} {pid} at {when}: {}", escape::text(how))));
        }
    }
    lines
}
