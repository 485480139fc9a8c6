//! Requests to Docker's API without an answer: who is to answer, and which of them nobody answers any more.

use plegtrace_common::{
    role::Role,
    wire::{
        docker::{DOCKER_UNSENT, OpenDockerRequest},
        state::MessageKey,
    },
};

use super::Live;
use crate::{
    census,
    cri::DockerCall,
    decode::docker_line,
    input::{MessagesFact, OpenMessageFact},
    kernel::{OpenDockerRequests, Processes},
};

/// Of younger ones nobody asks whether their connection is still there.
const SOCKETS_FROM_NS: u64 = 1_000_000_000;

impl Live {
    /// What the map had at `at_ns`; `None` on a node without Docker. A request that is over is reported once, then forgotten; one
    /// whose answer may have been missed is not reported.
    pub(super) fn open_docker_requests(
        &mut self,
        at_ns: u64,
        read: &OpenDockerRequests,
        processes: &Processes,
    ) -> Option<MessagesFact> {
        let daemons = processes.entries.iter().filter(|(_, watched)| watched.role == Role::Dockerd as u32);
        let watched_ns = daemons.map(|(_, watched)| watched.since_ns).max();
        self.follows_docker |= watched_ns.is_some();
        if !self.follows_docker {
            return None;
        }
        let mut open = Vec::with_capacity(read.entries.len());
        for (key, request) in &read.entries {
            let known = Some(request.peer).filter(|peer| *peer != 0);
            let answerer = known.or_else(|| self.kernel.answerer_of(key)).unwrap_or(0);
            let mut fact = fact(key, request, answerer);
            fact.over = is_over(&fact, at_ns);
            let is_doubtful = !fact.over && watched_ns.is_none_or(|since| since > fact.start_ns);
            if fact.over || is_doubtful {
                self.kernel.forget_docker_request(key);
            }
            if !is_doubtful {
                open.push(fact);
            }
        }
        Some(MessagesFact { at_ns, open, complete: read.complete })
    }
}

/// Is one of both processes gone, or the connection?
fn is_over(request: &OpenMessageFact, at_ns: u64) -> bool {
    let exists = |pid| pid == 0 || census::exists(pid);
    if !exists(request.asker) || !exists(request.answerer) {
        return true;
    }
    at_ns.saturating_sub(request.start_ns) >= SOCKETS_FROM_NS
        && census::unix_sockets_of(request.asker).is_some_and(|there| !there.contains(&request.socket))
}

fn fact(key: &MessageKey, request: &OpenDockerRequest, answerer: u32) -> OpenMessageFact {
    let call = docker_line(&request.head).and_then(DockerCall::read).unwrap_or_default();
    OpenMessageFact {
        socket: key.socket,
        stream: key.stream,
        start_ns: request.start_ns,
        asker: request.tgid,
        answerer,
        service: String::new(),
        method: call.method,
        container: call.container,
        unsent: request.flags & DOCKER_UNSENT != 0,
        over: false,
        unread: None,
        unread_by_answerer: None,
    }
}
