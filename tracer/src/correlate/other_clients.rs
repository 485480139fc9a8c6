//! [`OtherClients`]: who else asks the runtime, by name: `crictl`, a monitoring agent, the kubelet of somebody else.
//!
//! They are facts for the reader, and no rule looks at them: how long they may wait is their own affair.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{
    limits::Limits,
    messages::{MessageState, Messages},
};
use crate::{
    cri::Method,
    decode::{MonoNs, Request, RequestEnd},
    input::{ClientFact, MessagesFact, OtherClientsFact},
};

/// Most names; what is left has none.
const MAX_NAMES: usize = 32;
/// Most processes that are remembered by number.
const MAX_PIDS: usize = 1024;
/// Most methods of one name.
const MAX_METHODS: usize = 64;

/// One name and what its processes asked.
#[derive(Clone, Debug)]
pub struct OtherClient {
    /// Name of its processes; empty when it is not known, or there are too many.
    pub name: String,
    /// Its processes, as far as they are remembered.
    pub pids: BTreeSet<u32>,
    /// What they asked.
    pub requests: Messages,
    /// The process of this name that asks as a kubelet does; the last one that has, when there are several.
    pub like_kubelet: Option<LikeKubelet>,
}

/// A process that asks a runtime as a kubelet does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LikeKubelet {
    /// The process.
    pub pid: u32,
    /// When it got its last list of pods.
    pub last: MonoNs,
}

/// What is kept of them.
#[derive(Debug, Default)]
pub(super) struct OtherClients {
    names: HashMap<u32, String>,
    /// Requests that ended before their client had a name, which is told a moment later.
    ended: Vec<Request>,
    clients: BTreeMap<String, Asked>,
    /// What did not fit.
    pub(super) dropped: u64,
}

#[derive(Debug, Default)]
struct Asked {
    pids: BTreeSet<u32>,
    requests: MessageState,
    /// By process, what it asked of all that a kubelet asks again and again.
    asks: BTreeMap<u32, Asks>,
}

/// What a kubelet asks again and again: pods and containers at each relist, the state of the runtime every few seconds. Tools for people and
/// agents ask for some of that.
#[derive(Clone, Copy, Debug, Default)]
struct Asks {
    pods: u32,
    containers: u32,
    status: u32,
    last: MonoNs,
}

impl Asks {
    /// So often, at least, does it list before it is taken for a kubelet.
    const LISTS: u32 = 3;

    fn add(&mut self, method: &str, end: MonoNs) {
        match Method::from_name(method) {
            Some(Method::ListPodSandbox | Method::StreamPodSandboxes) => {
                self.pods = self.pods.saturating_add(1);
                self.last = self.last.max(end);
            }
            Some(Method::ListContainers | Method::StreamContainers) => {
                self.containers = self.containers.saturating_add(1);
            }
            Some(Method::Status) => self.status = self.status.saturating_add(1),
            _ => {}
        }
    }

    fn is_like_kubelet(&self) -> bool {
        self.pods >= Self::LISTS && self.containers >= Self::LISTS && self.status > 0
    }
}

impl OtherClients {
    /// A request has ended.
    pub(super) fn request(&mut self, request: Request, limits: &Limits) {
        if self.ended.len() < limits.open_calls {
            self.ended.push(request);
        } else {
            self.dropped += 1;
        }
    }

    /// Names were told, and what was open was read.
    pub(super) fn reading(&mut self, fact: OtherClientsFact, limits: &Limits) {
        let limits = Limits { rows: MAX_METHODS, ..*limits };
        for client in fact.clients {
            if self.names.len() >= MAX_PIDS && !self.names.contains_key(&client.pid) {
                // Whoever asks again is told again, or counts as one without a name.
                self.names.clear();
            }
            self.names.insert(client.pid, client.name);
        }
        for request in std::mem::take(&mut self.ended) {
            let (pid, end) = (request.message.asker, request.message.end);
            let asked = self.asked(pid);
            if request.end == RequestEnd::Answered && asked.pids.contains(&pid) {
                asked.asks.entry(pid).or_default().add(&request.message.method, end);
            }
            asked.requests.request(request, &limits);
        }
        let MessagesFact { at_ns, open, complete } = fact.requests;
        let mut of: HashMap<String, Vec<_>> = HashMap::new();
        for request in open {
            self.asked(request.asker);
            of.entry(self.name_of(request.asker)).or_default().push(request);
        }
        for (name, asked) in &mut self.clients {
            let open = of.remove(name).unwrap_or_default();
            asked.requests.reading(MessagesFact { at_ns, open, complete }, &limits);
        }
    }

    /// What the facts that are kept take, bytes.
    pub(super) fn bytes(&self) -> usize {
        let names = self.names.values().map(String::len).sum::<usize>();
        names + self.clients.iter().map(|(name, asked)| name.len() + asked.requests.bytes()).sum::<usize>()
    }

    /// Name under which a process is counted.
    fn name_of(&self, pid: u32) -> String {
        let name = self.names.get(&pid).cloned().unwrap_or_default();
        if self.clients.contains_key(&name) || self.clients.len() < MAX_NAMES { name } else { String::new() }
    }

    fn asked(&mut self, pid: u32) -> &mut Asked {
        let asked = self.clients.entry(self.name_of(pid)).or_default();
        if asked.pids.len() < MAX_PIDS {
            asked.pids.insert(pid);
        }
        asked
    }

    /// What a stream that begins now must know.
    pub(super) fn retold(&self) -> Option<OtherClientsFact> {
        let told = |(pid, name): (&u32, &String)| ClientFact { pid: *pid, name: name.clone() };
        let mut clients: Vec<ClientFact> = self.names.iter().map(told).collect();
        clients.sort_by_key(|client| client.pid);
        let of_all = self.clients.values().filter_map(|asked| asked.requests.retold());
        let requests = of_all.reduce(|mut all, more| {
            all.open.extend(more.open);
            all
        });
        Some(OtherClientsFact { clients, requests: requests? })
    }

    /// Everybody at `now`, by name.
    pub(super) fn view(&self, now: MonoNs) -> Vec<OtherClient> {
        let view = |(name, asked): (&String, &Asked)| OtherClient {
            name: name.clone(),
            pids: asked.pids.clone(),
            requests: asked.requests.view(now),
            like_kubelet: asked
                .asks
                .iter()
                .filter(|(_, asks)| asks.is_like_kubelet())
                .map(|(pid, asks)| LikeKubelet { pid: *pid, last: asks.last })
                .max_by_key(|one| one.last),
        };
        self.clients.iter().map(view).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        decode::{Message, MessageId},
        input::OpenMessageFact,
    };

    fn request(asker: u32, stream: u32, method: &str) -> Request {
        let id = MessageId { socket: u64::from(asker), stream, start: MonoNs(100) };
        let (service, method) = ("runtime.v1.RuntimeService".to_owned(), method.to_owned());
        let message = Message { id, asker, answerer: 20, end: MonoNs(150), service, method };
        Request { message, end: RequestEnd::Answered, bytes: 1, answer_bytes: 2, of_other: true }
    }

    fn open(asker: u32, stream: u32) -> OpenMessageFact {
        let method = "ExecSync".to_owned();
        OpenMessageFact {
            socket: u64::from(asker),
            stream,
            start_ns: 90,
            asker,
            method,
            ..Default::default()
        }
    }

    fn told(clients: &[(u32, &str)], open: Vec<OpenMessageFact>) -> OtherClientsFact {
        let client = |(pid, name): &(u32, &str)| ClientFact { pid: *pid, name: (*name).to_owned() };
        let requests = MessagesFact { at_ns: 200, open, complete: true };
        OtherClientsFact { clients: clients.iter().map(client).collect(), requests }
    }

    /// Method, count and open ones.
    type Row = (String, u64, u64);

    /// Name, processes and rows.
    fn seen(others: &OtherClients) -> Vec<(String, usize, Vec<Row>)> {
        let row = |row: &super::super::MessageRow| (row.method.clone(), row.latency.count(), row.open);
        let client = |it: OtherClient| (it.name, it.pids.len(), it.requests.rows.iter().map(row).collect());
        others.view(MonoNs(300)).into_iter().map(client).collect()
    }

    /// Processes of one name are one client, whose names may come after their requests; what is open is in its row, until it
    /// is not.
    #[test]
    fn by_name() {
        let (mut others, limits) = (OtherClients::default(), Limits::default());
        others.request(request(7, 1, "Version"), &limits);
        others.request(request(8, 1, "Version"), &limits);
        others.request(request(9, 1, "Status"), &limits);
        assert!(others.view(MonoNs(300)).is_empty(), "nobody has a name yet");
        others.reading(told(&[(7, "crictl"), (8, "crictl"), (9, "agent")], vec![open(9, 3)]), &limits);
        let row = |method: &str, count, open| (method.to_owned(), count, open);
        let agent = |open| ("agent".to_owned(), 1, vec![row("ExecSync", 0, open), row("Status", 1, 0)]);
        let crictl = ("crictl".to_owned(), 2, vec![row("Version", 2, 0)]);
        assert_eq!(seen(&others), [agent(1), crictl.clone()]);
        let retold = others.retold().unwrap();
        assert_eq!((retold.clients.len(), &retold.requests.open[..]), (3, &[open(9, 3)][..]));
        others.reading(told(&[], vec![]), &limits);
        let agent = ("agent".to_owned(), 1, vec![row("Status", 1, 0)]);
        assert_eq!(seen(&others), [agent, crictl]);
    }

    /// However many there are, there is a bound, and nothing is counted twice or lost.
    #[test]
    fn there_is_a_bound() {
        let (mut others, limits) = (OtherClients::default(), Limits::default());
        for pid in 0..3000 {
            others.request(request(pid, 1, "Version"), &limits);
            others.reading(told(&[(pid, &format!("c{pid}"))], vec![]), &limits);
        }
        assert!(others.names.len() <= MAX_PIDS && others.clients.len() <= MAX_NAMES + 1);
        let view = others.view(MonoNs(300));
        let count: u64 = view.iter().flat_map(|it| &it.requests.rows).map(|row| row.latency.count()).sum();
        assert_eq!((count, others.dropped), (3000, 0));
    }
}
