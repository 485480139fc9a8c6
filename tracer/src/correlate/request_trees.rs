//! Recent and open calls → the trees of requests ([`super::requests`] keeps them).

use std::{
    cmp::Reverse,
    collections::{BTreeSet, HashMap, HashSet},
};

use super::{
    caller::Caller,
    census::Request,
    correlator::Correlator,
    inflight::Goroutine,
    join::Joined,
    parks::Names,
    requests::{Forgotten, PER_OPERATION, RequestTree, WORTH_KEEPING_NS, is_of_relist, longest},
    snapshot::OpenCall,
    trees,
};
use crate::{
    decode::MonoNs,
    input::Layer,
    span::{Span, SpanId, SpanSource, Tree},
};

/// The tree of a request is to begin here.
#[derive(Debug)]
struct Root {
    span: Span,
    caller: Caller,
}

/// What trees are made of, besides the calls that are kept.
pub(super) struct Material<'a> {
    /// Client calls and handlers; what belongs into relists is taken out.
    pub(super) joined: Joined,
    /// Kept requests that turn out to be answers to client calls.
    pub(super) answers: HashSet<SpanId>,
    /// Open calls with their callers.
    pub(super) open: &'a [OpenCall],
    /// Requests as their stacks show them.
    pub(super) census: &'a [Request],
    /// Only what is needed to find these; `None`: everything.
    pub(super) only: Option<&'a Scope>,
    /// All of these that have ended, and none that is open; `None`: open ones, and the longest that have ended.
    pub(super) ended: Option<&'a HashSet<SpanId>>,
}

/// Operations of some requests, and when the first of these began: no call that ended before can be a part of one.
#[derive(Debug)]
pub(super) struct Scope {
    pub(super) operations: BTreeSet<String>,
    pub(super) since: MonoNs,
}

impl Material<'_> {
    pub(super) fn wants(&self, operation: &str) -> bool {
        self.only.is_none_or(|only| only.operations.contains(operation))
    }
}

impl Correlator {
    /// The requests of a snapshot, and how many open ones have no tree.
    pub(super) fn requests_at(&self, material: Material<'_>, names: &mut Names) -> (Vec<RequestTree>, u64) {
        let relisting = self.relisting();
        let answers = material.answers.clone();
        let mut found = self.trees_of(material, &relisting, names);
        let kept = self.requests.kept.iter();
        let kept = kept.filter(|kept| !is_of_relist(kept, &relisting) && !answers.contains(&kept.root().id));
        let finished = found.extract_if(.., |found| !found.root().is_open()).collect();
        let finished = longest(finished, kept.cloned().collect(), self.limits.requests);
        let left_out = found.len().saturating_sub(self.limits.open_requests);
        found.truncate(self.limits.open_requests);
        found.extend(finished);
        (found, left_out as u64)
    }

    /// Keeps the trees of slow requests when so much has come that something may soon be forgotten.
    pub(super) fn keep_slow_requests_if_due(&mut self) {
        if self.requests.is_due(self.processes.ended_runs(), &self.limits) {
            self.keep_slow_requests(self.newest);
        }
    }

    /// Before recent calls, parks and processes are forgotten: keeps the trees of slow requests.
    pub(super) fn keep_slow_requests(&mut self, now: MonoNs) {
        let Some(slow) = self.slow() else { return };
        let joined = self.joined(Some(&slow));
        let answers = self.kept_answers(&joined);
        let material = Material {
            joined,
            answers: HashSet::new(),
            open: &[],
            census: &[],
            only: Some(&slow),
            ended: None,
        };
        let mut found = self.trees_of(material, &self.relisting(), &mut Names::default());
        // The call that a handler answers can come a little later than its end.
        let settled = now.minus(self.limits.reorder_ns);
        // Of those that began before, not all was looked at.
        let whole = |root: &Span| root.start() >= slow.since && root.end.is_some_and(|end| end <= settled);
        found.retain(|found| whole(found.root()));
        self.requests.keep(found, &answers, self.limits.requests);
    }

    /// What must be looked at to find requests slow enough to be kept; `None`: nothing.
    fn slow(&self) -> Option<Scope> {
        let clients = self.clients.all().filter(|client| client.outermost()).map(|client| &client.call);
        let mut longest = Longest::default();
        let pods = self.relists.pods().map(|done| &done.call);
        for call in clients.chain(&self.handlers).chain(pods) {
            let ns = call.answered().since(call.start);
            if ns < WORTH_KEEPING_NS || !longest.wants(ns, call.id().into()) {
                continue;
            }
            let hook = self.node.hooks.get(&call.hook).filter(|hook| !hook.long_lived);
            if let Some(hook) = hook.filter(|hook| self.requests.wants(&hook.operation, ns, call.id().into()))
            {
                longest.add(ns, call.id().into(), (call.start, hook.operation.clone()));
            }
        }
        let (starts, mut operations): (Vec<MonoNs>, BTreeSet<String>) = longest.all().unzip();
        let since = starts.into_iter().min()?;
        let inside = self.relists.pods().filter(|done| done.call.start >= since).flat_map(|done| &done.parts);
        operations.extend(inside.filter_map(|part| Some(self.node.hooks.get(&part.hook)?.operation.clone())));
        Some(Scope { operations, since })
    }

    /// Goroutines whose calls belong to relists.
    pub(super) fn relisting(&self) -> HashSet<Goroutine> {
        let open = self.open_relists().into_iter().chain(self.inside(Layer::PodRelist));
        self.relists.goroutines().chain(open).collect()
    }

    /// Open requests, oldest first, and the longest of those that have ended.
    pub(super) fn trees_of(
        &self,
        mut material: Material<'_>,
        relisting: &HashSet<Goroutine>,
        names: &mut Names,
    ) -> Vec<RequestTree> {
        let pods = self.pod_relists(&material);
        let mut roots = self.client_roots(&material, relisting);
        roots.extend(self.handler_roots(&mut material));
        roots.sort_by_key(|root| (root.span.start(), root.span.id));
        // What lies beyond the bound is not built, only counted.
        let mut open = 0;
        let bound = self.limits.open_requests;
        let mut parts = self.parts(&roots);
        self.forget_lost_answers(&mut material.joined);
        let mut trees = Vec::with_capacity(roots.len());
        for root in roots {
            open += usize::from(root.span.is_open());
            let whole = !root.span.is_open() || open <= bound;
            let parts = parts.remove(&root.span.id).filter(|_| whole).unwrap_or_default();
            let mut tree = Tree::build(root.span, parts);
            tree.graft(&mut material.joined.answers);
            if whole {
                self.parks.attach(&mut tree.root, names);
            }
            trees.push(RequestTree { tree, caller: root.caller, container: None, left_out: 0 });
        }
        for (root, parts) in pods {
            let mut tree = Tree::build(root, parts);
            tree.graft(&mut material.joined.answers);
            self.parks.attach(&mut tree.root, names);
            trees.push(RequestTree { tree, caller: Caller::NotAsked, container: None, left_out: 0 });
        }
        trees.sort_by_key(|tree| (tree.root().start(), tree.root().id));
        self.hang_programs(&mut trees, material.census);
        trees
    }

    /// Client calls of the kubelet outside of relists.
    fn client_roots(&self, material: &Material<'_>, relisting: &HashSet<Goroutine>) -> Vec<Root> {
        let hooks = &self.node.hooks;
        let mut longest = Picked::new(material.ended);
        for client in self.clients.all().filter(|client| client.outermost()) {
            let (call, ns) = (&client.call, client.call.duration_ns());
            let wanted = longest.wants(ns, call.id().into());
            let Some(hook) = hooks.get(&call.hook).filter(|_| wanted) else { continue };
            let alone = client.layer == Layer::KubeletCall || !self.inside_open_call(call);
            let other = hook.long_lived || relisting.contains(&(call.tgid, call.goid));
            if alone && !other && material.wants(&hook.operation) {
                longest.add(ns, call.id().into(), *call);
            }
        }
        let finished = longest.all().filter_map(|call| trees::finished(&call, hooks));
        let mut roots: Vec<Root> = finished.map(|span| Root { span, caller: Caller::NotAsked }).collect();
        let mut open: HashMap<Goroutine, Span> = HashMap::new();
        let entries = self.open.entries().filter(|entry| entry.is_open() && material.ended.is_none());
        for entry in entries {
            let Some(span) = trees::open(entry, hooks, &self.parks) else { continue };
            let on = (span.id.tgid, span.id.goid);
            let client = matches!(span.layer(), Layer::KubeletCall | Layer::KubeletClient);
            if !client || span.is_long_lived() || relisting.contains(&on) || !material.wants(span.operation())
            {
                continue;
            }
            let outer = |span: &Span| (span.start(), span.depth, span.id);
            let kept = open.entry(on).or_insert_with(|| span.clone());
            if outer(&span) < outer(kept) {
                *kept = span;
            }
        }
        roots.extend(open.into_values().map(|span| Root { span, caller: Caller::NotAsked }));
        roots
    }

    /// Handlers whose caller is somebody else, or not certain.
    fn handler_roots(&self, material: &mut Material<'_>) -> Vec<Root> {
        let callers: HashMap<SpanId, &OpenCall> =
            material.open.iter().map(|call| (call.span.id, call)).collect();
        let forgotten = self.forgotten_clients();
        let mut longest = Picked::new(material.ended);
        let mut roots = Vec::new();
        for (span, ambiguous) in std::mem::take(&mut material.joined.loose) {
            if span.is_open() && material.ended.is_some() {
                continue;
            }
            if span.is_open() {
                let call = callers.get(&span.id).filter(|call| !call.replied && call.caller != Caller::Own);
                roots.extend(call.map(|call| Root { span, caller: call.caller }));
                continue;
            }
            let (ns, id) = (span.duration_ns(span.start()), span.id);
            let known = || forgotten.get(span.operation()).is_none_or(|until| *until < span.start());
            if longest.wants(ns, id) && known() {
                longest.add(ns, id, (span, ambiguous));
            }
        }
        roots.extend(longest.all().map(|(span, ambiguous)| {
            let seen = self.node.sees_client_of(span.operation());
            let caller = if ambiguous || !seen { Caller::Unknown } else { Caller::Foreign };
            Root { span, caller }
        }));
        roots
    }

    /// For each operation of which calls are no longer kept: when the youngest of those ended.
    fn forgotten(&self, what: &Forgotten, layers: impl Fn(Layer) -> bool) -> HashMap<&str, MonoNs> {
        let mut forgotten: HashMap<&str, MonoNs> = HashMap::new();
        for (index, hook) in self.node.hooks.iter().filter(|(_, hook)| layers(hook.layer)) {
            let until = what.until(*index);
            if until > MonoNs(0) {
                let last = forgotten.entry(&hook.operation).or_default();
                *last = until.max(*last);
            }
        }
        forgotten
    }

    fn forgotten_clients(&self) -> HashMap<&str, MonoNs> {
        let clients = |layer| matches!(layer, Layer::KubeletCall | Layer::KubeletClient);
        self.forgotten(&self.clients.forgotten, clients)
    }

    /// An answer is not certain when another handler that could have been it, or another call that it could have answered,
    /// is no longer known.
    fn forget_lost_answers(&self, joined: &mut Joined) {
        let handlers = self.forgotten(&self.requests.forgotten, |layer| layer == Layer::Handler);
        let clients = self.forgotten_clients();
        if !handlers.is_empty() || !clients.is_empty() {
            joined.answers.retain(|client, handler| {
                let before = |forgotten: &HashMap<&str, MonoNs>, start: MonoNs| {
                    forgotten.get(handler.operation()).is_none_or(|until| *until < start)
                };
                before(&handlers, client.start) && before(&clients, handler.start())
            });
        }
    }

    /// Kept handlers that turn out to answer a client call for certain: they have no tree of their own.
    pub(super) fn kept_answers(&self, joined: &Joined) -> HashSet<SpanId> {
        let clients = self.forgotten_clients();
        let certain =
            |handler: &&Span| clients.get(handler.operation()).is_none_or(|until| *until < handler.start());
        self.requests.answers(joined.answers.values().filter(certain))
    }

    /// The client calls inside each root that is one.
    fn parts(&self, roots: &[Root]) -> HashMap<SpanId, Vec<Span>> {
        let hooks = &self.node.hooks;
        let mut by_goroutine: HashMap<Goroutine, Vec<&Span>> = HashMap::new();
        for Root { span, .. } in roots.iter().filter(|root| root.span.layer() != Layer::Handler) {
            by_goroutine.entry((span.id.tgid, span.id.goid)).or_default().push(span);
        }
        let mut parts: HashMap<SpanId, Vec<Span>> = HashMap::new();
        let mut add = |part: Span| {
            let around = by_goroutine.get(&(part.id.tgid, part.id.goid)).into_iter().flatten();
            let around = around.filter(|root| root.id != part.id && root.covers(&part));
            if let Some(root) = around.max_by_key(|root| root.start()) {
                parts.entry(root.id).or_default().push(part);
            }
        };
        for client in self.clients.all().filter(|client| client.layer == Layer::KubeletClient) {
            if by_goroutine.contains_key(&(client.call.tgid, client.call.goid)) {
                trees::finished(&client.call, hooks).into_iter().for_each(&mut add);
            }
        }
        for goroutine in by_goroutine.keys() {
            let open = self.open.on(*goroutine).filter_map(|entry| trees::open(entry, hooks, &self.parks));
            open.filter(|span| span.layer() == Layer::KubeletClient).for_each(&mut add);
        }
        parts
    }
}

/// Finished calls that get a tree.
#[derive(Debug)]
pub(super) enum Picked<'a, T> {
    Longest(Longest<T>),
    /// Those of a list.
    Listed(&'a HashSet<SpanId>, Vec<T>),
}

impl<'a, T> Picked<'a, T> {
    pub(super) fn new(list: Option<&'a HashSet<SpanId>>) -> Self {
        list.map_or_else(|| Self::Longest(Longest::default()), |list| Self::Listed(list, Vec::new()))
    }

    pub(super) fn wants(&self, ns: u64, id: SpanId) -> bool {
        match self {
            Self::Longest(longest) => longest.wants(ns, id),
            Self::Listed(list, _) => list.contains(&id),
        }
    }

    pub(super) fn add(&mut self, ns: u64, id: SpanId, item: T) {
        match self {
            Self::Longest(longest) => longest.add(ns, id, item),
            Self::Listed(_, picked) => picked.push(item),
        }
    }

    pub(super) fn all(self) -> impl Iterator<Item = T> {
        let (longest, listed) = match self {
            Self::Longest(longest) => (longest, Vec::new()),
            Self::Listed(_, picked) => (Longest::default(), picked),
        };
        longest.all().chain(listed)
    }
}

/// The hook of a call; what has none is a sort of its own.
fn slot(id: SpanId) -> usize {
    if let SpanSource::Call(hook) = id.source { hook as usize } else { 0 }
}

/// The longest of each hook.
#[derive(Debug)]
pub(super) struct Longest<T>(Vec<Vec<(Reverse<u64>, SpanId, T)>>);

impl<T> Default for Longest<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Longest<T> {
    /// Is a call that took so long among them?
    fn wants(&self, ns: u64, id: SpanId) -> bool {
        let kept = self.0.get(slot(id)).filter(|kept| kept.len() >= PER_OPERATION);
        let last = kept.and_then(|kept| kept.last());
        last.is_none_or(|(last, last_id, _)| (Reverse(ns), id) < (*last, *last_id))
    }

    /// Takes a call that is one of them; its hook is one that was announced.
    fn add(&mut self, ns: u64, id: SpanId, item: T) {
        let place = slot(id);
        if self.0.len() <= place {
            self.0.resize_with(place + 1, Vec::new);
        }
        let kept = &mut self.0[place];
        let at = kept.partition_point(|(ns_, id_, _)| (*ns_, *id_) <= (Reverse(ns), id));
        kept.insert(at, (Reverse(ns), id, item));
        kept.truncate(PER_OPERATION);
    }

    fn all(self) -> impl Iterator<Item = T> {
        self.0.into_iter().flatten().map(|(_, _, item)| item)
    }
}
