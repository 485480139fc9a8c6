//! gRPC requests that have not ended, of the kubelet and of others: which of them nobody answers any more.

use std::collections::HashMap;

use super::Live;
use crate::{
    census,
    input::{MessagesFact, OpenMessageFact, OtherClientsFact},
    kernel::{OpenRequests, Processes},
};

/// Of younger ones nobody asks whether their connection is still there.
const SOCKETS_FROM_NS: u64 = 1_000_000_000;
impl Live {
    /// What the maps had at `at_ns`, of clients that are traced and of others, if there is something to say of these. A request
    /// that is over is reported once, then forgotten; one whose answer may have been missed is not reported.
    pub(super) fn open_requests(
        &mut self,
        at_ns: u64,
        read: &OpenRequests,
        others: &OpenRequests,
        processes: &Processes,
    ) -> (MessagesFact, Option<OtherClientsFact>) {
        let open = self.still_open(at_ns, read, processes, false);
        let mut of_others = self.still_open(at_ns, others, processes, true);
        of_others.retain(|request| !census::is_our_child(request.asker));
        if read.complete && others.complete {
            self.requests.keep(at_ns, open.iter().chain(&of_others));
        }
        let clients = self.requests.others.tell(&of_others, |pid| self.kernel.client_name(pid));
        let others = clients.map(|clients| OtherClientsFact {
            clients,
            requests: MessagesFact { at_ns, open: of_others, complete: others.complete },
        });
        (MessagesFact { at_ns, open, complete: read.complete }, others)
    }

    /// Those of one map, without those whose answers may have been missed.
    fn still_open(
        &mut self,
        at_ns: u64,
        read: &OpenRequests,
        processes: &Processes,
        of_others: bool,
    ) -> Vec<OpenMessageFact> {
        let mut open = Vec::with_capacity(read.entries.len());
        let mut sockets = HashMap::new();
        for (key, request) in &read.entries {
            let known = Some(request.peer).filter(|peer| *peer != 0);
            let answerer = known.or_else(|| self.kernel.answerer_of(key)).unwrap_or(0);
            let mut fact = self.requests.fact(key, request, answerer, of_others);
            let exists = |pid| pid == 0 || census::exists(pid);
            fact.over |= !exists(fact.asker) || !exists(answerer);
            let is_old = at_ns.saturating_sub(request.start_ns) >= SOCKETS_FROM_NS;
            if !fact.over && is_old {
                let there = sockets.entry(fact.asker).or_insert_with(|| census::unix_sockets_of(fact.asker));
                fact.over = there.as_ref().is_some_and(|there| !there.contains(&key.socket));
            }
            let is_doubtful =
                !fact.over && self.requests.is_doubtful(key, request, answerer, &processes.entries);
            if fact.over || is_doubtful {
                if of_others {
                    self.kernel.forget_other_request(key);
                } else {
                    self.kernel.forget_request(key);
                }
            }
            if is_doubtful {
                self.requests.doubted += 1;
            } else {
                open.push(fact);
            }
        }
        open
    }
}
