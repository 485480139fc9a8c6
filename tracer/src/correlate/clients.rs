//! [`Clients`]: the kubelet's recent client calls by end time, paired over their two layers.
//!
//! A call of the bare service normally runs inside a counted call, which ends a little later. Which of them stand alone
//! is therefore known only after a while ([`Limits::reorder_ns`](super::Limits)).

use std::collections::VecDeque;

use super::{needed::Needed, requests::Forgotten};
use crate::{
    decode::{Call, MonoNs},
    input::Layer,
};

/// A client call and whether it has its partner on the other layer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Client {
    pub(super) call: Call,
    pub(super) layer: Layer,
    /// A bare call inside a counted one, or a counted call with a bare one inside.
    pub(super) paired: bool,
}

impl Client {
    /// Is this the innermost client call, the one that waits for the runtime?
    pub(super) fn innermost(&self) -> bool {
        self.layer == Layer::KubeletClient || !self.paired
    }

    /// Is this the outermost client call, the one that the kubelet counts where it does?
    pub(super) fn outermost(&self) -> bool {
        self.layer == Layer::KubeletCall || !self.paired
    }
}

/// The recent client calls, oldest end first.
#[derive(Debug, Default)]
pub(super) struct Clients {
    calls: VecDeque<Client>,
    /// Calls at the front whose row is decided.
    settled: usize,
    /// Bare calls found inside counted ones, among those that have left.
    pub(super) covered: u64,
    /// Calls that made room.
    pub(super) forgotten: Forgotten,
}

impl Clients {
    /// Takes a finished client call. A bare call that comes too late to wait for its partner is handed back: its row
    /// is decided now.
    pub(super) fn insert(&mut self, call: Call, layer: Layer) -> Option<Call> {
        let at =
            self.calls.partition_point(|other| (other.call.end, other.call.id()) <= (call.end, call.id()));
        let paired = match layer {
            Layer::KubeletCall => self.pair_inner(&call, at),
            _ => self.pair_outer(&call, at),
        };
        let settled = at < self.settled;
        self.calls.insert(at, Client { call, layer, paired });
        if !settled {
            return None;
        }
        self.settled += 1;
        match (layer, paired) {
            (Layer::KubeletClient, false) => return Some(call),
            (Layer::KubeletClient, true) => self.covered += 1,
            _ => {}
        }
        None
    }

    /// Marks the bare calls inside a counted call; they ended before it.
    fn pair_inner(&mut self, outer: &Call, at: usize) -> bool {
        let mut found = false;
        // Equal ends may be sorted behind it.
        let last =
            (at..self.calls.len()).find(|&i| self.calls[i].call.end > outer.end).unwrap_or(self.calls.len());
        for client in self.calls.range_mut(..last).rev() {
            if client.call.end < outer.start {
                break;
            }
            if client.layer == Layer::KubeletClient && contains(outer, &client.call) {
                client.paired = true;
                found = true;
            }
        }
        found
    }

    /// Marks the counted call around a bare one, when it has come first.
    fn pair_outer(&mut self, inner: &Call, at: usize) -> bool {
        let first = (0..at).rev().find(|&i| self.calls[i].call.end < inner.end).map_or(0, |i| i + 1);
        let outer =
            |client: &&mut Client| client.layer == Layer::KubeletCall && contains(&client.call, inner);
        match self.calls.range_mut(first..).find(outer) {
            Some(client) => {
                client.paired = true;
                true
            }
            None => false,
        }
    }

    /// Decides the rows of all calls that ended before `until`, keeps at most `bound`, and hands over bare ones.
    /// What makes room goes to `gone`.
    pub(super) fn settle(
        &mut self,
        until: MonoNs,
        bound: usize,
        mut bare: impl FnMut(&Call),
        mut gone: impl FnMut(&Call),
    ) {
        while self.settled < self.calls.len() {
            let crowded = self.settled == 0 && self.calls.len() > bound;
            let client = self.calls[self.settled];
            if client.call.end >= until && !crowded {
                break;
            }
            match (client.layer, client.paired) {
                (Layer::KubeletClient, false) => bare(&client.call),
                (Layer::KubeletClient, true) => self.covered += 1,
                _ => {}
            }
            self.settled += 1;
            self.shrink(bound, &mut gone);
        }
        self.shrink(bound, &mut gone);
    }

    fn shrink(&mut self, bound: usize, gone: &mut impl FnMut(&Call)) {
        while self.calls.len() > bound && self.settled > 0 {
            if let Some(client) = self.calls.pop_front() {
                self.forgotten.add(&client.call);
                gone(&client.call);
            }
            self.settled -= 1;
        }
    }

    /// Gives up what is not needed, among the calls whose row is decided.
    pub(super) fn age(&mut self, needed: &Needed, mut gone: impl FnMut(&Call)) {
        let (mut place, mut left) = (0, 0);
        self.calls.retain(|client| {
            let wanted = place >= self.settled || needed.wants_call(&client.call);
            place += 1;
            if !wanted {
                left += 1;
                self.forgotten.add(&client.call);
                gone(&client.call);
            }
            wanted
        });
        self.settled -= left;
    }

    /// A hook stands for something else from now on: forgets the calls of what it stood for.
    pub(super) fn forget_hook(&mut self, hook: u32) {
        let pending = self.pending().filter(|client| client.call.hook == hook).count();
        self.covered += pending as u64;
        let settled = self.calls.range(..self.settled).filter(|client| client.call.hook != hook).count();
        self.calls.retain(|client| client.call.hook != hook);
        self.settled = settled;
    }

    /// Bare calls whose row is not decided yet.
    pub(super) fn pending(&self) -> impl Iterator<Item = &Client> {
        self.calls.range(self.settled..).filter(|client| client.layer == Layer::KubeletClient)
    }

    /// All recent calls.
    pub(super) fn all(&self) -> impl Iterator<Item = &Client> {
        self.calls.iter()
    }

    /// All recent calls that wait for a runtime themselves.
    pub(super) fn innermost(&self) -> impl Iterator<Item = &Client> {
        self.calls.iter().filter(|client| client.innermost())
    }
}

/// Does `inner` run inside `outer`, on the same goroutine?
fn contains(outer: &Call, inner: &Call) -> bool {
    (outer.tgid, outer.goid) == (inner.tgid, inner.goid)
        && outer.start <= inner.start
        && inner.end <= outer.end
        && (outer.depth == 0 || inner.depth == 0 || outer.depth < inner.depth)
}
