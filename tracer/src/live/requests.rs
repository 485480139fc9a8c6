//! gRPC requests of the kubelet: what each calls, who is to answer, and which of them nobody answers any more.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use bytes::Bytes;
use plegtrace_common::{
    key::Watched,
    kind::RecKind,
    rec::{
        BLOCK_CUT, BLOCK_FIRST, BLOCK_FROM_START, BLOCK_LAST, BlockRec, CALL_OK, CallRec, RequestRec, how,
    },
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
    input::{Frame, HookFact, Layer, LossCount, MessagesFact, OpenMessageFact},
    kernel::{OpenCalls, OpenRequests, Processes},
    wire::{Fragment, Naming, Witnesses, witnesses::ClientCall},
};

/// Of younger ones nobody asks whether their connection is still there.
const SOCKETS_FROM_NS: u64 = 1_000_000_000;
/// How long a client may need to see that its server goes away; until then it may ask once more.
const GOING_NS: u64 = 10_000_000_000;
/// After this time every record of a moment has been handed over, also by a program that was interrupted.
const SETTLED_NS: u64 = 50_000_000;
/// Most connections of which is kept what their servers said.
const MAX_NOTES: usize = 512;

/// A function that sends or serves requests.
#[derive(Clone, Debug)]
enum Hooked {
    /// A method of the client: its name.
    Client(Arc<str>),
    /// A handler: its path.
    Handler(Arc<str>),
}

/// What is known of requests besides the kernel's map.
#[derive(Debug, Default)]
pub(super) struct Requests {
    /// Requests are followed.
    follows: bool,
    naming: Naming,
    witnesses: Witnesses,
    /// What hooks witness, by their number.
    hooks: HashMap<u32, Hooked>,
    /// Records that were lost so far, of all kinds.
    lost: u64,
    /// Until then nothing was lost that the witnesses should have seen.
    whole_until_ns: u64,
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

    /// From now on requests are followed.
    pub(super) fn follow(&mut self) {
        self.follows = true;
    }

    /// Learns the hooks of a plan that has grown.
    pub(super) fn learn(&mut self, hooks: &[HookFact]) {
        let hooked = |hook: &HookFact| match hook.layer {
            Layer::KubeletClient => Some(Hooked::Client(hook.operation.as_str().into())),
            Layer::Handler => Some(Hooked::Handler(format!("/{}/{}", hook.service, hook.operation).into())),
            _ => None,
        };
        self.hooks = hooks.iter().filter_map(|hook| Some((hook.index, hooked(hook)?))).collect();
    }

    /// A call has ended: it may say what a request was.
    fn call(&mut self, rec: &CallRec) {
        let end_ns = rec.header.ts_ns;
        match self.hooks.get(&rec.hook) {
            Some(Hooked::Handler(path)) => self.witnesses.handler(path, rec.start_ns),
            Some(Hooked::Client(method)) if rec.flags & CALL_OK != 0 => self.witnesses.call(ClientCall {
                pid: rec.header.tgid,
                method: Arc::clone(method),
                start_ns: rec.start_ns,
                end_ns,
            }),
            Some(Hooked::Client(_)) | None => {}
        }
    }

    /// Gives names to requests, with the handlers that were open at `at_ns`, before the last records were handed over.
    pub(super) fn conclude(&mut self, at_ns: u64, open: &OpenCalls) {
        for (_, call) in &open.entries {
            if let Some(Hooked::Handler(path)) = self.hooks.get(&call.hook) {
                self.witnesses.handler(path, call.start_ns);
            }
        }
        if !open.complete {
            self.witnesses.missed(at_ns);
        }
        let until_ns = self.whole_until_ns.min(at_ns).saturating_sub(SETTLED_NS);
        for lesson in self.witnesses.conclude(until_ns) {
            self.naming.witness(lesson.socket, lesson.stream, &lesson.path);
        }
    }

    /// So many records were lost until `now_ns`.
    pub(super) fn counted(&mut self, now_ns: u64, counts: &[LossCount]) {
        let lost = counts.iter().filter(|count| count.is_loss).map(|count| count.count).sum();
        if std::mem::replace(&mut self.lost, lost) == lost {
            self.whole_until_ns = now_ns;
        } else {
            self.witnesses.missed(now_ns);
        }
    }

    /// A record as it may enter the stream: header blocks end here, and requests have their name from here on.
    pub(super) fn name(&mut self, frame: Frame) -> Option<Frame> {
        match frame.kind {
            RecKind::Block => {
                if let Ok(rec) = BlockRec::ref_from_bytes(&frame.bytes) {
                    self.naming.take(&fragment(rec));
                    self.witnesses.sent(rec.header.tgid, rec.socket, rec.stream, rec.header.ts_ns);
                }
                None
            }
            RecKind::Call if self.follows => {
                if let Ok(rec) = CallRec::ref_from_bytes(&frame.bytes) {
                    self.call(rec);
                }
                Some(frame)
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
                "names_contradicted",
                "what was learnt of the names of requests could not all be true: they were unknown again",
                self.naming.contradicted,
                false,
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

    /// Records of calls of the kubelet and of handlers teach the names of a connection that is older than us, unless something was
    /// lost meanwhile.
    #[test]
    fn calls_teach_names() {
        const S: u64 = 1_000_000_000;
        let hook = |index, layer, service: &str| HookFact {
            index,
            layer,
            component: crate::input::Component::Kubelet,
            exe: String::new(),
            operation: "Status".into(),
            service: service.into(),
            symbol: String::new(),
            long_lived: false,
            sites: 1,
        };
        let hooks =
            [hook(1, Layer::KubeletClient, "remote"), hook(2, Layer::Handler, "runtime.v1.RuntimeService")];
        let names = |lost: u64| {
            let mut requests = Requests::default();
            requests.follow();
            requests.learn(&hooks);
            for number in 0..3 {
                let at = (u64::from(number) + 1) * S;
                let stream = 2 * number + 1;
                requests.name(block(stream, number.into(), at + 20));
                requests.name(call(2, at + 30, at + 40, 0));
                requests.name(call(1, at, at + 60, CALL_OK));
                let loss = loss(lost * u64::from(number));
                requests.counted(at + S / 2, &[loss]);
                requests.conclude(at + S / 2, &OpenCalls { entries: Vec::new(), complete: true });
            }
            requests.naming.name(3, 1)
        };
        assert_eq!(names(0), "runtime.v1.RuntimeService/Status");
        assert!(names(1).starts_with("unknown#"), "{}", names(1));
    }

    fn loss(count: u64) -> LossCount {
        let [stage, reason, sentence] = ["ring", "full", "lost"].map(str::to_owned);
        LossCount { stage, reason, sentence, count, is_loss: true }
    }

    /// The newest entry of a table that is older than we.
    fn block(stream: u32, offset: u64, ts_ns: u64) -> Frame {
        let mut rec = BlockRec {
            header: RecHeader { kind: RecKind::Block as u16, tgid: 10, ..rec(0, 0, ts_ns).header },
            socket: 3,
            joined_ns: 80,
            offset: 40 + offset,
            stream,
            len: 1,
            flags: BLOCK_FIRST | BLOCK_LAST,
            reserved: 0,
            bytes: [0; plegtrace_common::wire::request::BLOCK],
        };
        rec.bytes[0] = 0xbe;
        Frame { header: rec.header, kind: RecKind::Block, bytes: Bytes::copy_from_slice(rec.as_bytes()) }
    }

    fn call(hook: u32, start_ns: u64, end_ns: u64, flags: u32) -> Frame {
        let header = RecHeader { kind: RecKind::Call as u16, tgid: 10, ..rec(0, 0, end_ns).header };
        let rec = CallRec {
            header,
            start_ns,
            mark_ns: 0,
            goid: 1,
            g_addr: 0,
            hook,
            flags,
            depth: 0,
            start_tid: 1,
            parked_ns: 0,
            short_ns: 0,
            parks: 0,
            reserved: 0,
        };
        Frame { header, kind: RecKind::Call, bytes: Bytes::copy_from_slice(rec.as_bytes()) }
    }
}
