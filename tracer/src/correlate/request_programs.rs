//! Hangs the programs that ran for a request below its handler.

use std::{cmp::Reverse, collections::HashMap, sync::Arc};

use super::{
    census::Request,
    correlator::Correlator,
    processes::{ProcessEnd, ProcessKind, Run},
    requests::{
        RequestTree,
        belongs::{self, Asker, Belongs},
    },
};
use crate::{
    cri::{Method, Subject},
    decode::{CallResult, MonoNs},
    input::{Component, Layer},
    span::{Label, MAX_LEVELS, Span, SpanId, SpanKind},
};

/// Deepest nesting of programs.
const LEVELS: usize = MAX_LEVELS / 2;
/// Programs below one handler, or one program; the longest stay.
const PROGRAMS: usize = 32;

/// The method of each hook on a handler that makes the runtime start programs, by the index of the hook.
type Methods = Vec<Option<Method>>;

impl Correlator {
    /// Puts programs into the trees of requests. `census` tells what open requests are about.
    pub(super) fn hang_programs(&self, trees: &mut [RequestTree], census: &[Request]) {
        let family = Family::new(self.processes.runs());
        let Some(first) = family.runs.first().map(|run| run.start) else { return };
        let methods = self.methods();
        let mut askers = self.askers(&methods, census, first);
        let tops: Vec<Arc<Run>> = family.tops.iter().map(|&place| Arc::clone(&family.runs[place])).collect();
        let forgotten = |method| {
            let same = (0..).zip(&methods).filter(|(_, other)| **other == Some(method));
            same.map(|(hook, _)| self.requests.forgotten.until(hook)).max().unwrap_or_default()
        };
        let found = belongs::find(&tops, &mut askers, &forgotten);
        let hang = Hang { family: &family, read_at: self.processes.read_at(), found: &found };
        for tree in trees.iter_mut() {
            let (mut container, mut left_out) = (None, 0);
            each_handler(&mut tree.tree.root, &mut |handler| {
                let on = (handler.id.tgid, handler.id.goid);
                let place = askers.binary_search_by_key(&(handler.start(), on), |it| (it.start, it.on));
                let Ok(asker) = place else { return };
                left_out += hang.below(handler, asker);
                container.clone_from(&askers[asker].id);
            });
            (tree.container, tree.left_out) = (container, left_out);
        }
    }

    fn methods(&self) -> Methods {
        let mut methods = Methods::new();
        for (index, hook) in self.node.hooks.iter().filter(|(_, hook)| hook.layer == Layer::Handler) {
            methods.resize(methods.len().max(*index as usize + 1), None);
            methods[*index as usize] = starter(&hook.operation);
        }
        methods
    }

    /// All requests that can have started programs at `first` or later, by start; those that began before the probes
    /// too, as far as the census sees them.
    fn askers(&self, methods: &Methods, census: &[Request], first: MonoNs) -> Vec<Asker> {
        let method_of = |hook: u32| methods.get(hook as usize).copied().flatten();
        let mut early: HashMap<(u32, u64), &str> = self.census.inside().collect();
        let finished = self.handlers.iter().filter_map(|call| {
            let (method, end) = (method_of(call.hook)?, Some(call.answered()));
            Some(Asker { method, on: (call.tgid, call.goid), start: call.start, end, id: None })
        });
        let open = self.open.entries().filter(|entry| entry.is_open()).filter_map(|entry| {
            let (method, fact) = (method_of(entry.fact.hook)?, &entry.fact);
            let end = (fact.mark_ns != 0).then_some(MonoNs(fact.mark_ns));
            let on = (fact.tgid, fact.goid);
            Some(Asker { method, on, start: entry.start(), end, id: about(method, on, census) })
        });
        let mut askers = Vec::new();
        for asker in finished.chain(open) {
            if !early.is_empty() {
                early.remove(&asker.on);
            }
            if asker.lasts_to() >= first {
                askers.push(asker);
            }
        }
        askers.extend(early.into_iter().filter_map(|(on, operation)| {
            let method = starter(operation)?;
            Some(Asker { method, on, start: MonoNs(0), end: None, id: about(method, on, census) })
        }));
        askers.sort_by_key(|asker| (asker.start, asker.on));
        askers
    }
}

/// The method of a handler, when it makes the runtime start programs.
fn starter(operation: &str) -> Option<Method> {
    Method::from_name(operation).filter(|method| method.starts_programs())
}

/// The container or sandbox that an open request is about, as its stack tells.
fn about(method: Method, on: (u32, u64), census: &[Request]) -> Option<String> {
    let mine = |request: &&Request| request.pid == on.0 && request.goids.contains(&on.1);
    let request = census.iter().find(mine).filter(|request| request.target_known)?;
    let of_pod = matches!(method.facts().subject, Subject::Pod | Subject::NewPod);
    match request.containers.as_slice() {
        all @ [first, ..] if of_pod => {
            let sandbox = first.sandbox.clone()?;
            all.iter().all(|other| other.sandbox.as_ref() == Some(&sandbox)).then_some(sandbox)
        }
        [only] => Some(only.id.clone()),
        _ => None,
    }
}

/// Programs, and which started which.
struct Family {
    runs: Vec<Arc<Run>>,
    children: HashMap<usize, Vec<usize>>,
    /// Those that no other one started.
    tops: Vec<usize>,
}

impl Family {
    fn new(runs: Vec<Arc<Run>>) -> Self {
        let mut by_pid: HashMap<u32, Vec<usize>> = HashMap::new();
        runs.iter().enumerate().for_each(|(place, run)| by_pid.entry(run.pid).or_default().push(place));
        let (mut children, mut tops): (HashMap<usize, Vec<usize>>, Vec<usize>) = <_>::default();
        for (place, run) in runs.iter().enumerate() {
            let same = run.parent.and_then(|pid| by_pid.get(&pid)).into_iter().flatten();
            match same.copied().find(|&other| other != place && run.is_child_of(&runs[other])) {
                Some(parent) => children.entry(parent).or_default().push(place),
                None => tops.push(place),
            }
        }
        Self { runs, children, tops }
    }
}

struct Hang<'a> {
    family: &'a Family,
    read_at: Option<MonoNs>,
    found: &'a Belongs,
}

impl Hang<'_> {
    /// Puts the programs of a request below its handler; how many are left out.
    fn below(&self, handler: &mut Span, asker: usize) -> u64 {
        let tops = self.family.tops.iter().zip(&self.found.of);
        let mine = tops.filter(|(_, of)| **of == Some(asker)).map(|(&top, _)| self.part(top, 0));
        let left_out = place(handler, mine.collect());
        left_out + self.found.doubts[asker]
    }

    /// A program with what it ran, and its rank among others.
    fn part(&self, at: usize, level: usize) -> (Rank, Span) {
        let run = &self.family.runs[at];
        let mut span = span(run, self.read_at);
        let children = self.family.children.get(&at).filter(|_| level < LEVELS);
        let children = children.into_iter().flatten().map(|&child| self.part(child, level + 1)).collect();
        // What a program left behind when it ended says nothing about the request.
        place(&mut span, children);
        (if matches!(run.kind, ProcessKind::RuncInit { .. }) { Rank::Waits } else { Rank::Works }, span)
    }
}

/// Which of two programs that run at the same time decides how long it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Works,
    /// `runc init` waits for its runc, which runs hooks meanwhile.
    Waits,
}

/// Puts spans below another, the open and the longest first, as long as they lie in it and one after the other; how many
/// did not fit.
fn place(parent: &mut Span, mut parts: Vec<(Rank, Span)>) -> u64 {
    let end = |span: &Span| span.end.unwrap_or(MonoNs(u64::MAX));
    parts.sort_by_key(|(rank, part)| (*rank, Reverse(end(part).since(part.start())), part.id));
    let mut left_out = 0;
    for (_, part) in parts {
        let beside = |other: &Span| end(other) <= part.start() || end(&part) <= other.start();
        let room = parent.children.len() < PROGRAMS && parent.children.iter().all(beside);
        if room && parent.covers(&part) {
            parent.children.push(part);
        } else {
            left_out += 1;
        }
    }
    parent.children.sort_by_key(|child| (child.start(), child.id));
    left_out
}

fn span(run: &Run, read_at: Option<MonoNs>) -> Span {
    let component = match &run.kind {
        ProcessKind::Runc { .. } | ProcessKind::RuncInit { .. } => Component::Runc,
        ProcessKind::Shim { .. } => Component::Shim,
        ProcessKind::Component(component) => *component,
        _ => Component::Helper,
    };
    Span {
        id: SpanId::of_process(run.pid, run.start),
        kind: SpanKind::Process(Label { component, operation: run.kind.to_string().into() }),
        stream: None,
        carried: None,
        end: run.end.map(|(end, _)| end),
        result: match run.end {
            Some((_, ProcessEnd::Exited(0) | ProcessEnd::BecameWorkload)) => CallResult::Ok,
            Some((_, ProcessEnd::Exited(_) | ProcessEnd::Killed(_))) => CallResult::Failed,
            Some((_, ProcessEnd::Replaced)) | None => CallResult::Unknown,
        },
        depth: 0,
        liveness: None,
        restarted: false,
        parked: None,
        known_to: read_at.filter(|_| run.end.is_none()),
        parks: Vec::new(),
        children: Vec::new(),
    }
}

fn each_handler(span: &mut Span, then: &mut impl FnMut(&mut Span)) {
    for child in &mut span.children {
        each_handler(child, then);
    }
    if span.layer() == Layer::Handler {
        then(span);
    }
}
