//! [`Correlator::take_finished`]: relists and requests that have ended, each handed out once, as soon as no record can
//! change it any more that comes in time.
//!
//! Nothing is kept for that but one moment: trees are made of the calls that are kept for pictures, and only of those that
//! ended since the last time. Whoever never asks pays nothing; whoever asks too seldom is told that something is missing.

use std::collections::HashSet;

use super::{
    correlator::Correlator,
    inflight::OpenEntry,
    parks::Names,
    relist::Done,
    request_trees::{Material, Scope},
    requests::RequestTree,
    snapshot::Relist,
};
use crate::{
    decode::{Call, MonoNs},
    input::Layer,
    span::{Span, SpanId},
};

/// Something that has ended, as a tree.
#[derive(Clone, Debug, PartialEq)]
pub enum Finished {
    /// A relist.
    Relist(Relist),
    /// A request outside of relists, or a relist of one pod.
    Request(RequestTree),
}

impl Finished {
    /// The relist or request itself.
    #[must_use]
    pub fn root(&self) -> &Span {
        match self {
            Self::Relist(relist) => relist.root(),
            Self::Request(request) => request.root(),
        }
    }
}

/// By what they are sorted: when they ended, and which they are.
type Order = (MonoNs, SpanId);

/// How far finished trees were taken.
#[derive(Clone, Debug, Default)]
pub(super) struct Taken {
    /// All that had ended by then was handed out; `None` until somebody asks.
    until: Option<MonoNs>,
    /// Handlers that had ended by then and wait for the call that they answer: they belong into its tree.
    answers: HashSet<SpanId>,
    /// Something ended in time and was given up, or came too late, before it was handed out.
    incomplete: bool,
}

impl Taken {
    /// A call that may be the root of a tree came, or is given up: was it handed out?
    pub(super) fn late(&mut self, call: &Call) {
        self.incomplete |= self.until.is_some_and(|until| call.end <= until);
    }

    /// A call that may be the root of a tree is given up.
    pub(super) fn gone(&mut self, call: &Call) {
        self.incomplete |= self.until.is_some_and(|until| call.end > until);
    }
}

impl Correlator {
    /// Hands out every relist and request that has ended since the last time, by their ends, and says whether that is all of
    /// them: some may have been given up to make room before, or their records came later than any are waited for.
    ///
    /// With `last` also what has just ended, of which a record may still be missing: at the end of a stream.
    pub fn take_finished(&mut self, last: bool, sink: &mut dyn FnMut(Finished)) -> bool {
        let until = if last { self.newest } else { self.newest.minus(self.limits.reorder_ns) };
        let since = self.taken.until;
        let ended = |call: &Call| since.is_none_or(|since| call.end > since) && call.end <= until;
        let (found, answers) = self.finished(&ended);
        found.into_iter().for_each(|(_, finished)| sink(finished));
        self.taken.answers = answers;
        self.taken.until = Some(until.max(since.unwrap_or_default()));
        !std::mem::take(&mut self.taken.incomplete)
    }

    /// The trees of all that ended when `ended` says, by end; and handlers that are in none of them because the call that
    /// they answer lasts.
    fn finished(&self, ended: &dyn Fn(&Call) -> bool) -> (Vec<(Order, Finished)>, HashSet<SpanId>) {
        let relists: Vec<&Done> = self.relists.done().filter(|done| ended(&done.call)).collect();
        let pods: Vec<&Done> = self.relists.pods().filter(|done| ended(&done.call)).collect();
        let clients = self.clients.all().filter(|client| client.outermost()).map(|client| &client.call);
        let waited = |call: &&Call| self.taken.answers.contains(&call.id().into());
        let handlers = self.handlers.iter().filter(|call| ended(call) || waited(call));
        let roots = clients.filter(|call| ended(call)).chain(handlers);
        let requests: Vec<&Call> = roots.chain(pods.iter().map(|done| &done.call)).collect();
        let around: Vec<&Done> = relists.iter().chain(&pods).copied().collect();
        let Some(scope) = self.scope(&around, &requests) else { return <_>::default() };
        let ids: HashSet<SpanId> = requests.iter().map(|call| call.id().into()).collect();
        let mut joined = self.joined(Some(&scope));
        let mut answers: HashSet<SpanId> =
            joined.answers.values().map(|handler| handler.id).filter(|id| ids.contains(id)).collect();
        let mut names = Names::default();
        let mut found = Vec::new();
        for done in relists {
            let Some(mut relist) = self.finished_relist(&done.call, &done.parts, self.newest) else {
                continue;
            };
            relist.tree.graft(&mut joined.answers);
            self.parks.attach(&mut relist.tree.root, &mut names);
            relist.interval_ns = self.relist_before(&done.call).map(|before| done.call.start.since(before));
            found.push(((done.call.end, relist.root().id), Finished::Relist(relist)));
        }
        let census = self.census.view(&|tgid, goid| self.call_since(tgid, goid), &|_| None, self.newest);
        let material = Material {
            joined,
            answers: HashSet::new(),
            open: &[],
            census: &census.requests,
            only: Some(&scope),
            ended: Some(&ids),
        };
        let requests = self.trees_of(material, &self.relisting(), &mut names);
        found.extend(requests.into_iter().map(|request| {
            let root = request.root();
            ((root.end.unwrap_or_default(), root.id), Finished::Request(request))
        }));
        found.sort_by_key(|(order, _)| *order);
        for (_, finished) in &found {
            finished.root().walk().for_each(|span| _ = answers.remove(&span.id));
        }
        (found, answers)
    }

    /// What is looked at for these relists and requests; `None` when there are none.
    pub(super) fn scope(&self, relists: &[&Done], requests: &[&Call]) -> Option<Scope> {
        let inside = relists.iter().flat_map(|done| done.parts.iter().chain([&done.call]));
        let calls = inside.chain(requests.iter().copied());
        let since = calls.clone().map(|call| call.start).min()?;
        let operation = |call: &Call| Some(self.node.hooks.get(&call.hook)?.operation.clone());
        Some(Scope { operations: calls.filter_map(operation).collect(), since })
    }

    /// The start of the relist before this one in the same process.
    fn relist_before(&self, call: &Call) -> Option<MonoNs> {
        let order = |call: &Call| (call.start, SpanId::from(call.id()));
        let done = self.relists.done().map(|done| &done.call).filter(|other| other.tgid == call.tgid);
        let before = done.filter(|other| order(other) < order(call)).map(|other| other.start);
        let open = self.open_relists().into_iter().filter(|(tgid, _)| *tgid == call.tgid);
        let open = open.flat_map(|goroutine| self.open.on(goroutine)).filter(|entry| self.is_relist(entry));
        before.chain(open.map(OpenEntry::start).filter(|start| *start < call.start)).max()
    }

    fn is_relist(&self, entry: &OpenEntry) -> bool {
        self.node.hooks.get(&entry.fact.hook).is_some_and(|hook| hook.layer == Layer::Relist)
    }
}
