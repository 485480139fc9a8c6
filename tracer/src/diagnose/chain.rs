//! [`Link`]: who waits for whom, from the relist down to what does not move. Words and figures of the whole picture, for
//! every form of the report.

use super::{Culprit, Diagnosis, Finding, Reason};
use crate::{
    correlate::{Age, Relist, Request, RequestTree, Snapshot, WaitsFor},
    input::{Command, Component, Layer},
    span::{Span, critical_path},
    stuck::{Stuck, StuckKind, Waiter},
    words,
};

/// One party. Texts are raw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Name of its program.
    pub name: String,
    /// Its process, when it is known.
    pub pid: Option<u32>,
    /// How many parties are between it and the first one.
    pub depth: usize,
    /// What it does, or fails to do.
    pub words: String,
    /// For how long.
    pub age: Option<Age>,
    /// Nothing that is known keeps it: here it ends.
    pub is_end: bool,
}

/// The chain of a diagnosis: that of its cause, else of what holds up most; empty where nobody waits in a chain.
pub(super) fn of(diagnosis: &Diagnosis, snapshot: &Snapshot) -> Vec<Link> {
    let stuck = |pids: &[Option<u32>]| {
        let is_it = |stuck: &&Stuck| pids.contains(&Some(stuck.what.pid()));
        diagnosis.stuck.iter().find(is_it)
    };
    if let Some(finding) = diagnosis.accused().first() {
        let culprit = finding.culprit.as_ref().and_then(|culprit| culprit.pid);
        let found = stuck(&[finding.behind]).filter(|_| finding.behind.is_some());
        let own = stuck(&[culprit]).map(words::fault);
        let found = found.or_else(|| stuck(&[culprit]));
        return found.map_or_else(Vec::new, |stuck| of_finding(finding, stuck, own, snapshot));
    }
    match diagnosis.reasons.first() {
        Some(Reason::Stuck(stuck)) => of_stuck(stuck, snapshot),
        Some(Reason::RelistOpen { .. } | Reason::CallsOpen { .. } | Reason::Abandoned { .. }) => {
            of_spans(snapshot)
        }
        _ => Vec::new(),
    }
}

/// What is stuck, and behind it the culprit where that is another process; `own`: what that one fails to do.
fn of_finding(finding: &Finding, stuck: &Stuck, own: Option<String>, snapshot: &Snapshot) -> Vec<Link> {
    let mut links = of_stuck(stuck, snapshot);
    let Some(culprit) = &finding.culprit else { return links };
    let known = links.iter().any(|link| link.pid.is_some() && link.pid == culprit.pid);
    if known || culprit.pid.is_none() || matches!(stuck.what, StuckKind::Bus(_)) {
        return links;
    }
    let depth = links.len();
    links.iter_mut().for_each(|link| link.is_end = false);
    let (name, words) = named(culprit);
    let words = own.unwrap_or(words);
    links.push(Link { name, pid: culprit.pid, depth, words, age: None, is_end: true });
    links
}

/// The name of a culprit, and the rest of its words: `lab-agent 7, the agent of the plugin`.
fn named(culprit: &Culprit) -> (String, String) {
    let component = if culprit.component == Component::Helper { "process" } else { culprit.component.name() };
    let pid = culprit.pid.map(|pid| format!(" {pid}")).unwrap_or_default();
    match culprit.words.split_once(&pid) {
        Some((name, rest)) if !pid.is_empty() && !name.is_empty() && !name.contains(' ') => {
            (name.to_owned(), rest.trim_start_matches([',', ':', ' ']).to_owned())
        }
        _ => (component.to_owned(), culprit.words.clone()),
    }
}

/// Everybody who waits for a thing, the farthest first, and the thing.
fn of_stuck(stuck: &Stuck, snapshot: &Snapshot) -> Vec<Link> {
    let mut links = Vec::new();
    let mut depth = 0;
    for waiter in &stuck.waiters {
        if let Waiter::Relist { pid, age } = waiter {
            links.push(relist(*pid, *age, stuck, snapshot));
            depth = 1;
        }
    }
    let requests = groups(&stuck.waiters);
    for level in (0..=requests.iter().map(|(level, _)| *level).max().unwrap_or(0)).rev() {
        let of_level: Vec<&Request> =
            requests.iter().filter(|(at, _)| *at == level).map(|(_, request)| request).collect();
        let is_held = |request: &Request| {
            let waits = |(_, other): &(usize, Request)| {
                other.pid == request.pid
                    && request.holds.iter().any(|lock| other.waits_for == WaitsFor::Lock(*lock))
            };
            requests.iter().any(waits)
        };
        links.extend(of_level.iter().map(|request| of_request(request, depth, is_held(request))));
        depth += usize::from(!of_level.is_empty());
    }
    let processes = stuck.waiters.iter().filter(|waiter| matches!(waiter, Waiter::Process { .. }));
    let processes: Vec<(usize, &Waiter)> = processes.enumerate().collect();
    for (place, waiter) in processes.into_iter().rev() {
        let Waiter::Process { component, command, comm, pid, phases } = waiter else { continue };
        let is_init = matches!(command, Some(Command::Runc { sub, .. }) if sub == "init");
        // An init waits beside the chain, for the runc that made it.
        if links.iter().any(|link| link.pid == Some(*pid)) || is_init && place > 0 {
            continue;
        }
        let name = words::process_name(*component, command.as_ref(), comm);
        let words = words::waits_for_child(command.as_ref(), comm, phases);
        links.push(Link { name, pid: Some(*pid), depth, words, age: None, is_end: false });
        depth += 1;
    }
    let (mut name, pid) = words::party(stuck);
    // One process has one name.
    if let Some(same) = links.iter().find(|link| pid.is_some() && link.pid == pid) {
        name.clone_from(&same.name);
    }
    let words = words::fault(stuck);
    links.push(Link { name, pid, depth, words, age: Some(stuck.since), is_end: true });
    links
}

/// The relist, and in which call of it.
fn relist(pid: u32, age: Age, stuck: &Stuck, snapshot: &Snapshot) -> Link {
    let mut all = snapshot.census.requests.iter().filter(|request| request.pid == pid && request.is_relist());
    let by_stack = all.find_map(|request| match &request.waits_for {
        WaitsFor::Runtime { operation } => operation.clone(),
        _ => None,
    });
    let open = snapshot.relists.iter().find(|relist| relist.root().is_open());
    let by_probe = open.and_then(super::evidence::innermost_call).map(|call| call.operation().to_owned());
    let operation = by_probe.or(by_stack).map(|operation| format!(", in {}", words::cut(&operation, 40)));
    let is_own = stuck.what.pid() == pid;
    let words = format!("relist{}", operation.filter(|_| !is_own).unwrap_or_default());
    Link {
        name: Component::Kubelet.name().to_owned(),
        pid: Some(pid),
        depth: 0,
        words,
        age: Some(age),
        is_end: false,
    }
}

/// `is_held`: the one before waits for what these hold.
fn of_request(request: &Request, depth: usize, is_held: bool) -> Link {
    Link {
        name: request.component.name().to_owned(),
        pid: Some(request.pid),
        depth,
        words: if is_held { words::holding(request) } else { words::waiting(request) },
        age: Some(request.since),
        is_end: false,
    }
}

/// Requests that wait alike as one, each with how many locks are between it and the thing.
fn groups(waiters: &[Waiter]) -> Vec<(usize, Request)> {
    let mut groups: Vec<(usize, Request)> = Vec::new();
    for waiter in waiters {
        let Waiter::Requests(request) = waiter else { continue };
        let level = match request.waits_for {
            WaitsFor::Lock(lock) => {
                let holds =
                    |(_, other): &&(usize, Request)| other.pid == request.pid && other.holds.contains(&lock);
                groups.iter().find(holds).map_or(0, |(level, _)| level + 1)
            }
            _ => 0,
        };
        let alike = |(at, other): &&mut (usize, Request)| {
            let of = |request: &Request| {
                (request.pid, request.operation.clone(), request.holds.clone(), request.target_known)
            };
            *at == level && of(other) == of(request) && other.waits_for == request.waits_for
        };
        match groups.iter_mut().find(alike) {
            Some((_, first)) => {
                first.count += request.count;
                first.since = if request.since.ns > first.since.ns { request.since } else { first.since };
            }
            None => groups.push((level, request.clone())),
        }
    }
    groups
}

/// What probes saw begin and not end: the relist or request that is open for longest, down to the innermost call.
fn of_spans(snapshot: &Snapshot) -> Vec<Link> {
    let relist = snapshot.relists.iter().map(Relist::root).find(|root| root.is_open());
    let request = snapshot.requests.iter().map(RequestTree::root).find(|root| root.is_open());
    let Some(root) = relist.or(request) else { return Vec::new() };
    let path: Vec<&Span> =
        critical_path(root, snapshot.now).into_iter().filter(|span| span.is_open()).collect();
    let mut links: Vec<Link> = Vec::new();
    for span in path {
        let pid = span.id.tgid;
        // Of each process the outermost call has the age, the innermost says where it is.
        let name = call(span);
        match links.last_mut().filter(|last| last.pid == Some(pid)) {
            Some(last) if span.layer() == Layer::KubeletCall => last.words.push_str(&format!(", in {name}")),
            Some(_) => {}
            None => links.push(Link {
                name: span.component().name().to_owned(),
                pid: Some(pid),
                depth: links.len(),
                words: name,
                age: Some(Age { ns: span.duration_ns(snapshot.now), at_least: false }),
                is_end: false,
            }),
        }
    }
    if let Some(last) = links.last_mut() {
        last.is_end = true;
    }
    links
}

fn call(span: &Span) -> String {
    match span.layer() {
        Layer::Relist => "relist".to_owned(),
        Layer::PodRelist => "relist of one pod".to_owned(),
        _ => words::cut(span.operation(), 40),
    }
}
