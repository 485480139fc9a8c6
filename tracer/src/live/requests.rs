//! gRPC requests of the kubelet: what each calls, who is to answer, and which of them nobody answers any more.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use plegtrace_common::{
    key::Watched,
    kind::RecKind,
    rec::{BLOCK_CUT, BLOCK_FIRST, BLOCK_FROM_START, BLOCK_LAST, BlockRec, RequestRec, how},
    role::Role,
    wire::{
        request::{NAME, OpenRequest},
        state::MessageKey,
    },
};
use zerocopy::{FromBytes, IntoBytes};

use super::Live;
use crate::{
    census,
    decode::request_names,
    input::{Frame, LossCount, MessagesFact, OpenMessageFact},
    kernel::{OpenRequests, Processes},
    wire::{Fragment, Naming},
};

/// Of younger ones nobody asks whether their connection is still there.
const SOCKETS_FROM_NS: u64 = 1_000_000_000;
/// How long a client may need to see that its server goes away; until then it may ask once more.
const GOING_NS: u64 = 10_000_000_000;
/// Most connections of which is kept what their servers said.
const MAX_NOTES: usize = 512;

/// What is known of requests besides the kernel's map.
#[derive(Debug, Default)]
pub(super) struct Requests {
    naming: Naming,
    /// When processes were begun to be watched: answers from before were not seen.
    watched_ns: HashMap<u32, u64>,
    /// Until when answers of a connection may have been missed.
    doubts: HashMap<u64, u64>,
    /// The same of every connection, once more are in doubt than are kept.
    all_doubted_until: u64,
    /// The last stream that a server will serve, and when it said so.
    last: HashMap<u64, (u32, u64)>,
    /// Requests that are in no list because their answers may have been missed.
    doubted: u64,
}

impl Requests {
    /// A process is watched since `now_ns`.
    pub(super) fn watch(&mut self, pid: u32, role: Role, now_ns: u64) {
        if matches!(role, Role::Containerd | Role::Crio | Role::CriDockerd) {
            self.watched_ns.retain(|pid, _| census::exists(*pid));
            self.watched_ns.insert(pid, now_ns);
        }
    }

    /// A record as it may enter the stream: header blocks end here, and requests have their name from here on.
    pub(super) fn name(&mut self, frame: Frame) -> Option<Frame> {
        match frame.kind {
            RecKind::Block => {
                if let Ok(rec) = BlockRec::ref_from_bytes(&frame.bytes) {
                    self.naming.take(&fragment(rec));
                }
                None
            }
            RecKind::Request => {
                let rec = RequestRec::read_from_bytes(&frame.bytes).ok()?;
                let rec = self.named(rec)?;
                Some(Frame { bytes: Bytes::copy_from_slice(rec.as_bytes()), ..frame })
            }
            _ => Some(frame),
        }
    }

    fn named(&mut self, mut rec: RequestRec) -> Option<RequestRec> {
        match rec.how {
            how::IN_DOUBT => {
                self.doubt(rec.socket, rec.header.ts_ns);
                None
            }
            how::GOING_AWAY => {
                if self.last.len() < MAX_NOTES || self.last.contains_key(&rec.socket) {
                    self.last.insert(rec.socket, (rec.stream, rec.header.ts_ns));
                } else {
                    self.doubt(rec.socket, rec.header.ts_ns);
                }
                None
            }
            _ => {
                let name = self.naming.end(rec.socket, rec.stream);
                let len = name.len().min(NAME - 1);
                rec.name[..len].copy_from_slice(&name.as_bytes()[..len]);
                Some(rec)
            }
        }
    }

    /// Answers on this connection may have been missed until `until_ns`.
    fn doubt(&mut self, socket: u64, until_ns: u64) {
        if self.doubts.len() < MAX_NOTES || self.doubts.contains_key(&socket) {
            self.doubts.insert(socket, until_ns);
        } else {
            self.all_doubted_until = self.all_doubted_until.max(until_ns);
        }
    }

    /// May answers to this request have been missed, because of who answers or what was written?
    fn is_doubtful(
        &self,
        key: &MessageKey,
        open: &OpenRequest,
        answerer: u32,
        processes: &[(u32, Watched)],
    ) -> bool {
        let until = self.doubts.get(&key.socket).copied().unwrap_or(0).max(self.all_doubted_until);
        let missed = open.start_ns <= until;
        let may_answer = |(pid, watched): &&(u32, Watched)| {
            if answerer == 0 { watched.role == open.role } else { *pid == answerer }
        };
        let since =
            |(pid, watched): &(u32, Watched)| self.watched_ns.get(pid).copied().unwrap_or(watched.since_ns);
        let watched = processes.iter().filter(may_answer).map(since).max();
        missed || watched.is_none_or(|since| since > open.start_ns)
    }

    fn fact(&self, key: &MessageKey, open: &OpenRequest, answerer: u32, is_gone: bool) -> OpenMessageFact {
        let (service, method) = request_names(&self.naming.name(key.socket, key.stream)).unwrap_or_default();
        let refused = self.last.get(&key.socket).is_some_and(|(last, _)| key.stream > *last);
        OpenMessageFact {
            socket: key.socket,
            stream: key.stream,
            start_ns: open.start_ns,
            asker: open.tgid,
            answerer,
            service,
            method,
            unsent: false,
            over: is_gone || refused,
        }
    }

    pub(super) fn losses(&self) -> impl Iterator<Item = LossCount> + use<> {
        let all = [
            (
                "header_block_missed",
                "header blocks of requests to the runtime were not seen whole: some requests have no name",
                self.naming.missed,
                true,
            ),
            (
                "connections_forgotten",
                "too many connections to the runtime: requests on those unused for longest have no name",
                self.naming.forgotten,
                true,
            ),
            (
                "request_in_doubt",
                "requests to the runtime whose answers may have been missed are not shown as open",
                self.doubted,
                false,
            ),
        ];
        all.into_iter().filter(|(_, _, count, _)| *count > 0).map(|(reason, sentence, count, is_loss)| {
            LossCount {
                stage: "wire".to_owned(),
                reason: reason.to_owned(),
                sentence: sentence.to_owned(),
                count,
                is_loss,
            }
        })
    }
}

impl Live {
    /// What the map had at `at_ns`. A request that is over is reported once, then forgotten; one whose answer may have been
    /// missed is not reported.
    pub(super) fn open_requests(
        &mut self,
        at_ns: u64,
        read: &OpenRequests,
        processes: &Processes,
    ) -> MessagesFact {
        let mut open = Vec::with_capacity(read.entries.len());
        let mut sockets = HashMap::new();
        for (key, request) in &read.entries {
            let known = Some(request.peer).filter(|peer| *peer != 0);
            let answerer = known.or_else(|| self.kernel.answerer_of(key)).unwrap_or(0);
            let mut fact = self.requests.fact(key, request, answerer, false);
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
                self.kernel.forget_request(key);
            }
            if is_doubtful {
                self.requests.doubted += 1;
            } else {
                open.push(fact);
            }
        }
        if read.complete {
            let sockets: HashSet<u64> = open.iter().map(|it| it.socket).collect();
            let open: HashSet<(u64, u32)> = open.iter().map(|it| (it.socket, it.stream)).collect();
            self.requests.naming.keep(at_ns, |socket, stream| open.contains(&(socket, stream)));
            self.requests.last.retain(|socket, (_, since_ns)| {
                sockets.contains(socket) || at_ns.saturating_sub(*since_ns) < GOING_NS
            });
            self.requests.doubts.retain(|_, until| *until >= at_ns);
        }
        MessagesFact { at_ns, open, complete: read.complete }
    }
}

fn fragment(rec: &BlockRec) -> Fragment<'_> {
    let is = |flag| rec.flags & flag != 0;
    let bytes = usize::try_from(rec.len).ok().and_then(|len| rec.bytes.get(..len));
    Fragment {
        socket: rec.socket,
        joined_ns: rec.joined_ns,
        from_start: is(BLOCK_FROM_START),
        offset: rec.offset,
        stream: rec.stream,
        at_ns: rec.header.ts_ns,
        first: is(BLOCK_FIRST),
        last: is(BLOCK_LAST),
        len: rec.len,
        bytes: bytes.filter(|_| !is(BLOCK_CUT)),
    }
}

#[cfg(test)]
mod tests {
    use plegtrace_common::{ABI_VERSION, header::RecHeader};

    use super::*;

    const KEY: MessageKey = MessageKey { asker: 1, answerer: 2, socket: 3, stream: 5, reserved: 0 };

    fn open(start_ns: u64) -> OpenRequest {
        let role = Role::Containerd as u32;
        OpenRequest { start_ns, bytes: 0, answer_bytes: 0, tgid: 10, tid: 11, peer: 0, role }
    }

    fn rec(how: u32, stream: u32, ts_ns: u64) -> RequestRec {
        let kind = RecKind::Request as u16;
        let len = u32::try_from(size_of::<RequestRec>()).unwrap();
        RequestRec {
            header: RecHeader { ts_ns, len, kind, abi: ABI_VERSION, tgid: 20, tid: 21 },
            start_ns: 100,
            socket: 3,
            bytes: 0,
            answer_bytes: 0,
            stream,
            asker: 10,
            answerer: 20,
            how,
            name: [0; NAME],
        }
    }

    /// A request is believed to be open only if its answer would have been seen: whoever may answer was watched before it
    /// was sent.
    #[test]
    fn only_of_watched_runtimes() {
        let mut requests = Requests::default();
        requests.watch(20, Role::Containerd, 1000);
        requests.watched_ns.insert(21, 3000);
        let found = |pid, role: Role| (pid, Watched::found(role));
        let first = found(20, Role::Containerd);
        let doubtful = |start, answerer, processes: &[(u32, Watched)]| {
            requests.is_doubtful(&KEY, &open(start), answerer, processes)
        };
        assert!(!doubtful(2000, 20, &[first]) && !doubtful(2000, 0, &[first]));
        assert!(doubtful(999, 20, &[first]) && doubtful(999, 0, &[first]), "it was sent before");
        assert!(doubtful(2000, 0, &[]) && doubtful(2000, 20, &[]), "nobody who answers is watched");
        assert!(doubtful(2000, 0, &[found(22, Role::Crio)]), "only one of another kind");
        let second = found(21, Role::Containerd);
        assert!(doubtful(2000, 0, &[first, second]), "it may have been the one that began later");
        assert!(!doubtful(2000, 20, &[first, second]));
    }

    /// What a server may have answered while nobody could tell is in doubt; what it will not answer is over.
    #[test]
    fn what_servers_say_of_connections() {
        let mut requests = Requests::default();
        requests.watched_ns.insert(20, 0);
        let runtime = [(20, Watched::found(Role::Containerd))];
        assert_eq!(requests.named(rec(how::IN_DOUBT, 0, 500)), None);
        assert!(requests.is_doubtful(&KEY, &open(500), 20, &runtime));
        assert!(!requests.is_doubtful(&KEY, &open(501), 20, &runtime));
        assert!(!requests.is_doubtful(&MessageKey { socket: 4, ..KEY }, &open(500), 20, &runtime));
        assert_eq!(requests.named(rec(how::GOING_AWAY, 5, 600)), None);
        assert!(!requests.fact(&KEY, &open(500), 20, false).over, "the last one that is served");
        assert!(requests.fact(&MessageKey { stream: 7, ..KEY }, &open(500), 20, false).over);
        assert!(requests.fact(&KEY, &open(500), 20, true).over);
    }

    /// More connections in doubt than are kept put all of them in doubt: no doubt is lost.
    #[test]
    fn a_crowd_of_doubts_doubts_all() {
        let mut requests = Requests::default();
        requests.watched_ns.insert(20, 0);
        let runtime = [(20, Watched::found(Role::Containerd))];
        for socket in 1000..1000 + MAX_NOTES as u64 {
            assert_eq!(requests.named(RequestRec { socket, ..rec(how::IN_DOUBT, 0, 500) }), None);
        }
        assert!(!requests.is_doubtful(&KEY, &open(500), 20, &runtime), "another connection");
        assert_eq!(requests.named(rec(how::IN_DOUBT, 0, 500)), None);
        assert_eq!(requests.doubts.len(), MAX_NOTES);
        assert!(requests.is_doubtful(&KEY, &open(500), 20, &runtime));
        assert!(!requests.is_doubtful(&KEY, &open(501), 20, &runtime), "it was sent later");
    }

    /// More servers go away than notes are kept: what one of the others will not answer is in doubt at least.
    #[test]
    fn a_crowd_goes_away() {
        let mut requests = Requests::default();
        requests.watched_ns.insert(20, 0);
        for socket in 1000..1000 + MAX_NOTES as u64 {
            requests.named(RequestRec { socket, ..rec(how::GOING_AWAY, 1, 500) });
        }
        requests.named(rec(how::GOING_AWAY, 1, 600));
        assert_eq!(requests.last.len(), MAX_NOTES);
        let runtime = [(20, Watched::found(Role::Containerd))];
        assert!(requests.is_doubtful(&KEY, &open(500), 20, &runtime));
        let noted = MessageKey { socket: 1000, ..KEY };
        assert!(requests.fact(&noted, &open(500), 20, false).over, "no note is lost");
    }

    /// Header blocks do not enter the stream; what they say does, as the names of requests.
    #[test]
    fn names_come_from_header_blocks() {
        let mut requests = Requests::default();
        let literal = b"\x44\x06/a.B/C";
        let mut block = BlockRec {
            header: RecHeader { kind: RecKind::Block as u16, ..rec(0, 0, 90).header },
            socket: 3,
            joined_ns: 80,
            offset: 0,
            stream: 5,
            len: 8,
            flags: BLOCK_FIRST | BLOCK_LAST | BLOCK_FROM_START,
            reserved: 0,
            bytes: [0xee; plegtrace_common::wire::request::BLOCK],
        };
        block.bytes[..8].copy_from_slice(literal);
        let frame = |header, kind, bytes: &[u8]| Frame { header, kind, bytes: Bytes::copy_from_slice(bytes) };
        assert!(requests.name(frame(block.header, RecKind::Block, block.as_bytes())).is_none());
        let fact = requests.fact(&KEY, &open(90), 20, false);
        assert_eq!((fact.service.as_str(), fact.method.as_str()), ("a.B", "C"));
        assert_eq!((fact.socket, fact.stream, fact.asker, fact.answerer), (3, 5, 10, 20));
        let ended = rec(how::ANSWERED, 5, 120);
        let named = requests.name(frame(ended.header, RecKind::Request, ended.as_bytes())).unwrap();
        let named = RequestRec::read_from_bytes(&named.bytes).unwrap();
        assert_eq!(&named.name[..7], b"a.B/C\0\0");
        assert_eq!(RequestRec { name: [0; NAME], ..named }, ended, "nothing else is changed");
        // A block of which a part is missing is not believed.
        let cut = BlockRec { flags: block.flags | BLOCK_CUT, stream: 7, offset: 8, ..block };
        assert!(requests.name(frame(cut.header, RecKind::Block, cut.as_bytes())).is_none());
        assert_eq!(requests.fact(&MessageKey { stream: 7, ..KEY }, &open(90), 20, false).method, "");
        let told: Vec<_> = requests.losses().map(|loss| (loss.reason, loss.count, loss.is_loss)).collect();
        assert_eq!(told, [("header_block_missed".to_owned(), 1, true)]);
    }
}
