//! The read side of [`Correlator`]: its state at one moment as a [`Snapshot`].

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::{
    Correlator, abandoned,
    caller::Caller,
    inflight::{Goroutine, OpenEntry},
    join::{self, Joined},
    parks::Names,
    processes::Processes,
    request_trees::{Material, Scope},
    rows::{RpcRow, Side},
    shims,
    snapshot::{HookState, ListOutcome, OpenCall, Relist, Snapshot, Tally, Window},
    time::request_time,
    trees,
};
use crate::{
    decode::{Call, MonoNs},
    input::{HookCounters, Layer, LossCount},
    span::Span,
};

impl Correlator {
    /// The node at `now`, which is not before the last event.
    #[must_use]
    pub fn snapshot(&self, now: MonoNs) -> Snapshot {
        let mut relists = self.relists_at(now);
        let mut joined = self.joined(None);
        let answers = self.kept_answers(&joined);
        relists.iter_mut().for_each(|relist| relist.tree.graft(&mut joined.answers));
        let joins = joined.counts;
        let mut names = Names::default();
        relists.iter_mut().for_each(|relist| self.parks.attach(&mut relist.tree.root, &mut names));
        let open = self.open_calls(now, &mut names);
        let traced = |tgid, goid| self.call_since(tgid, goid);
        let census = self.census.view(&traced, &|pid| self.node.no_relist_began(pid), now);
        let material =
            Material { joined, answers, open: &open, census: &census.requests, only: None, ended: None };
        let (requests, no_tree) = self.requests_at(material, &mut names);
        let node = &self.node;
        let losses = self.losses(no_tree, census.unshown);
        let relist_time = self.relist_time_at(&relists, now);
        let request_time = request_time(&requests, now);
        Snapshot {
            now,
            start: node.start.clone(),
            window: Window { from: node.observing_since(), to: now },
            relist_window: Window { from: node.relists_since, to: now },
            targets: node.targets.values().cloned().collect(),
            presences: node.presences.clone(),
            listening: node.listening.clone(),
            armed: node.armed.clone(),
            hooks: self.hook_states(),
            refused: node.refused.clone(),
            last_list: self.last_list(self.last_kept_list(&relists)),
            relists,
            requests,
            relist_time,
            request_time,
            open,
            open_read_at: self.open.read_at,
            open_complete: self.open.complete,
            closed_unseen: self.open.closed(),
            census,
            rows: self.row_list(),
            failing: self.outcomes.view(),
            errors: self.outcomes.errors(),
            processes: self.processes_at(now),
            messages: self.messages.view(now),
            shims_worked: shims::last_work(&self.processes.runs()),
            grpc: self.requests_on_wire.view(now),
            docker: self.docker.view(now),
            other_clients: self.other_clients.view(now),
            bus: self.bus.view(now),
            joins,
            lost_at: losses.iter().map(|loss| self.growth.last(loss, now)).collect(),
            losses,
            tally: self.tally_now(),
            recent: self.recent(now),
            cpu: node.cpu.view(&node.targets),
            pauses: self.pauses.found(),
            cost: node.cost,
            stop: node.stop,
        }
    }

    /// The processes, each runc with its phases.
    fn processes_at(&self, now: MonoNs) -> Processes {
        let mut processes = self.processes.snapshot(now, self.node.observing_since());
        for process in &mut processes.open {
            process.phases = self.phases.phases_of(process.pid, process.start, now, &self.node);
        }
        processes
    }

    /// Start of the oldest traced call that is open on a goroutine.
    pub(super) fn call_since(&self, tgid: u32, goid: u64) -> Option<MonoNs> {
        self.open.on((tgid, goid)).map(OpenEntry::start).min()
    }

    /// A finished relist with its tree.
    pub(super) fn finished_relist(&self, root: &Call, parts: &[Call], now: MonoNs) -> Option<Relist> {
        let hooks = &self.node.hooks;
        let parts = parts.iter().filter_map(|part| trees::finished(part, hooks)).collect();
        Some(trees::relist(trees::finished(root, hooks)?, parts, now))
    }

    fn relists_at(&self, now: MonoNs) -> Vec<Relist> {
        let hooks = &self.node.hooks;
        let done = self.relists.done().filter_map(|done| self.finished_relist(&done.call, &done.parts, now));
        let mut relists: Vec<Relist> = done.collect();
        for goroutine in self.open_relists() {
            let mut spans: Vec<Span> =
                self.open.on(goroutine).filter_map(|entry| trees::open(entry, hooks, &self.parks)).collect();
            // What answers a relist is grafted; a handler on the goroutine itself is a request of its own.
            spans.retain(|span| span.layer() != Layer::Handler);
            spans.sort_by_key(|span| span.id);
            let Some(root) = spans.iter().position(|span| span.layer() == Layer::Relist) else { continue };
            let root = spans.swap_remove(root);
            let finished = self.relists.waiting(goroutine, root.start());
            spans.extend(finished.filter_map(|call| trees::finished(call, hooks)));
            relists.push(trees::relist(root, spans, now));
        }
        trees::sort(&mut relists);
        trees::intervals(&mut relists);
        relists
    }

    /// Handlers and the client calls that waited for them; `only` those that are needed.
    pub(super) fn joined(&self, only: Option<&Scope>) -> Joined {
        let hooks = &self.node.hooks;
        let wanted = |call: &Call| {
            only.is_none_or(|only| {
                call.end >= only.since
                    && hooks.get(&call.hook).is_some_and(|hook| only.operations.contains(&hook.operation))
            })
        };
        let finished = |call: &Call| wanted(call).then(|| trees::finished(call, hooks)).flatten();
        let mut clients: Vec<Span> =
            self.clients.innermost().filter_map(|client| finished(&client.call)).collect();
        let mut handlers: Vec<Span> = self.handlers.iter().filter_map(finished).collect();
        for entry in self.open.entries().filter(|entry| entry.is_open()) {
            let Some(span) = trees::open(entry, hooks, &self.parks) else { continue };
            match span.layer() {
                Layer::Handler => handlers.push(span),
                Layer::KubeletClient => clients.push(span),
                Layer::KubeletCall if !self.has_open_inner((span.id.tgid, span.id.goid), span.start()) => {
                    clients.push(span);
                }
                _ => {}
            }
        }
        join::join(clients, handlers, &mut self.own.clone(), &self.carriers.index())
    }

    /// Is a bare client call open on this goroutine inside the counted one that began at `outer`?
    fn has_open_inner(&self, goroutine: Goroutine, outer: MonoNs) -> bool {
        self.open.on(goroutine).any(|entry| {
            let hook = self.node.hooks.get(&entry.fact.hook);
            hook.is_some_and(|hook| hook.layer == Layer::KubeletClient) && entry.start() >= outer
        })
    }

    fn open_calls(&self, now: MonoNs, names: &mut Names) -> Vec<OpenCall> {
        let hooks = &self.node.hooks;
        let ended = abandoned::ended_clients(&self.open, &self.clients, &self.handlers, hooks);
        let mut waiting: HashMap<&str, Vec<(MonoNs, Option<u32>)>> = HashMap::new();
        for entry in self.open.entries().filter(|entry| entry.is_open()) {
            let Some(hook) = hooks.get(&entry.fact.hook) else { continue };
            let innermost = match hook.layer {
                Layer::KubeletClient => true,
                // The call inside it knows its stream.
                Layer::KubeletCall => !self.has_open_inner((entry.fact.tgid, entry.fact.goid), entry.start()),
                _ => false,
            };
            if innermost {
                waiting.entry(&hook.operation).or_default().push((entry.start(), entry.stream()));
            }
        }
        let call = |entry: &OpenEntry| {
            let span = trees::open(entry, hooks, &self.parks)?;
            let ended = entry.client_ended.max(ended.get(&span.id).copied());
            let waiting = waiting.get(span.operation()).map_or(&[][..], Vec::as_slice);
            let seen = self.node.sees_client_of(span.operation());
            let caller = match abandoned::caller(&span, waiting, ended, seen) {
                Caller::Foreign | Caller::Unknown if self.own.made(&span) => Caller::Own,
                caller => caller,
            };
            Some(OpenCall { age_ns: now.since(span.start()), caller, replied: entry.fact.mark_ns != 0, span })
        };
        let mut open: Vec<OpenCall> =
            self.open.entries().filter(|entry| entry.is_open()).filter_map(call).collect();
        open.sort_by_key(|call| (call.span.start(), call.span.depth, call.span.id));
        open.iter_mut().for_each(|call| self.parks.attach(&mut call.span, names));
        open
    }

    /// The start of the last of these that got its list, of the kubelet that runs. What was seen before a time without probes is not known
    /// to be the last.
    fn last_kept_list(&self, relists: &[Relist]) -> Option<MonoNs> {
        let since = self.node.relists_since;
        let of_now = relists.iter().filter(|relist| self.node.is_kubelet_of_now(relist.root().id.tgid));
        let known = of_now.filter(|relist| relist.list == ListOutcome::Ok && relist.is_of(since));
        known.map(|relist| relist.root().start()).max()
    }

    /// When the kubelet that runs last got its list, by its own clock.
    pub(super) fn own_last_list(&self) -> Option<MonoNs> {
        self.census.last_list(|pid| self.node.is_live(pid))
    }

    fn hook_states(&self) -> Vec<HookState> {
        let state = |(index, hook): (&u32, &Arc<_>)| HookState {
            hook: Arc::clone(hook),
            counters: self.node.counters.get(index).cloned(),
            records: self.records[*index as usize],
            on: self.node.is_on(hook),
        };
        self.node.hooks.iter().map(state).collect()
    }

    fn row_list(&self) -> Vec<RpcRow> {
        let pending =
            self.clients.pending().filter(|client| !client.paired && !self.inside_open_call(&client.call));
        let pending =
            pending.filter_map(|client| Some((client.call, self.node.hooks.get(&client.call.hook)?)));
        let mut rows = self.rows.list(pending);
        let mut feeds: BTreeMap<u32, usize> = BTreeMap::new();
        for hook in rows.iter().flat_map(|row| &row.hooks) {
            *feeds.entry(*hook).or_default() += 1;
        }
        for row in &mut rows {
            // The kernel counts per hook; a row has its figures only when the hook feeds nothing else.
            let own = row.key.side != Side::Bare && row.hooks.iter().all(|hook| feeds[hook] == 1);
            if own && !row.hooks.is_empty() {
                let counters = row.hooks.iter().filter_map(|hook| self.node.counters.get(hook));
                row.kernel = counters.cloned().reduce(sum);
                row.unmatched = row.kernel.as_ref().map_or(0, |kernel| kernel.unmatched);
            }
        }
        rows
    }

    pub(super) fn losses(&self, no_tree: u64, unshown: u64) -> Vec<LossCount> {
        let mut drops = self.drops;
        drops.open_requests += no_tree;
        drops.ended_processes += self.processes.evicted_runs();
        drops.open_calls += self.open.dropped + self.phases.dropped;
        drops.row_calls += self.rows.dropped;
        drops.census += self.census.dropped + unshown;
        drops.processes += self.processes.dropped();
        drops.process_rows += self.processes.uncounted();
        drops.facts += self.node.dropped;
        drops.parks += self.parks.evicted;
        drops.stacks += self.parks.dropped;
        drops.messages += self.messages.dropped
            + self.requests_on_wire.dropped
            + self.docker.dropped
            + self.other_clients.dropped;
        drops.bus_calls += self.bus.dropped;
        let told = self.node.losses.values().filter(|loss| loss.count > 0).cloned();
        told.chain(drops.losses()).collect()
    }

    fn tally_now(&self) -> Tally {
        let waiting =
            self.clients.pending().filter(|client| client.paired || self.inside_open_call(&client.call));
        Tally { covered: self.clients.covered + waiting.count() as u64, ..self.tally }
    }
}

/// Counters of two hooks that stand for the same operation.
fn sum(mut a: HookCounters, b: HookCounters) -> HookCounters {
    a.hits = a.hits.saturating_add(b.hits);
    a.calls = a.calls.saturating_add(b.calls);
    a.failed = a.failed.saturating_add(b.failed);
    a.unmatched = a.unmatched.saturating_add(b.unmatched);
    a.sum_ns = a.sum_ns.saturating_add(b.sum_ns);
    a.max_ns = a.max_ns.max(b.max_ns);
    a.buckets.resize(a.buckets.len().max(b.buckets.len()), 0);
    a.buckets.iter_mut().zip(b.buckets).for_each(|(a, b)| *a = a.saturating_add(b));
    a
}
