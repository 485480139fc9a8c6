//! gRPC requests of the kubelet: what each calls, who is to answer, and which of them nobody answers any more.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use bytes::Bytes;
use plegtrace_common::{
    key::{self, Watched},
    kind::RecKind,
    rec::{
        BLOCK_CUT, BLOCK_FIRST, BLOCK_FROM_START, BLOCK_LAST, BLOCK_OTHER, BLOCK_TRAILERS, BlockRec,
        CALL_FAILED, CALL_OK, CallRec, DockerRec, RequestRec, how,
    },
    role::Role,
    wire::{
        request::{NAME, OpenRequest},
        state::MessageKey,
    },
};
use zerocopy::{FromBytes, IntoBytes};

use super::{errors::Errors, others::Others};
use crate::{
    census,
    decode::{docker_line, request_names},
    input::{ErrorsFact, Frame, HookFact, Layer, LearntFact, LossCount, NamesFact, OpenMessageFact},
    kernel::OpenCalls,
    wire::{Fragment, Naming, Witnesses, naming::Learnt, witnesses::ClientCall},
};

/// After this time every record of a moment has been handed over, also by a program that was interrupted.
const SETTLED_NS: u64 = 50_000_000;
/// Most connections of which is kept what their servers said.
const MAX_NOTES: usize = 512;
/// How long a client may need to see that its server goes away; until then it may ask once more.
const GOING_NS: u64 = 10_000_000_000;

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
    /// The same of clients that are not traced: what is missed of them says nothing about the node.
    other_naming: Naming,
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
    pub(super) doubted: u64,
    /// Clients that are not traced.
    pub(super) others: Others,
    /// What the runtime said of calls that failed.
    errors: Errors,
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
            Some(Hooked::Handler(path)) => {
                self.witnesses.handler(path, rec.start_ns, key::stream(rec.stream));
                if rec.flags & CALL_FAILED != 0 {
                    self.errors.failed(path, rec.header.tgid, key::stream(rec.stream), end_ns);
                }
            }
            Some(Hooked::Client(method)) if rec.flags & CALL_OK != 0 => self.witnesses.call(ClientCall {
                pid: rec.header.tgid,
                method: Arc::clone(method),
                start_ns: rec.start_ns,
                end_ns,
                stream: key::stream(rec.stream),
            }),
            Some(Hooked::Client(_)) | None => {}
        }
    }

    /// Gives names to requests, with the handlers that were open at `at_ns`, before the last records were handed over.
    pub(super) fn conclude(&mut self, at_ns: u64, open: &OpenCalls) {
        for (_, call) in &open.entries {
            if let Some(Hooked::Handler(path)) = self.hooks.get(&call.hook) {
                self.witnesses.handler(path, call.start_ns, key::stream(call.stream));
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

    /// Names that have become known since the last time.
    pub(super) fn learnt(&mut self) -> Option<NamesFact> {
        let learnt = self.naming.take_learnt();
        self.errors.learn(&learnt);
        let fact = |learnt: Learnt| {
            let (service, method) = request_names(&learnt.name)?;
            Some(LearntFact { unknown: learnt.unknown, service, method })
        };
        let names: Vec<LearntFact> = learnt.into_iter().filter_map(fact).collect();
        (!names.is_empty()).then_some(NamesFact { names })
    }

    /// What the runtime said of calls of methods that have a name, since the last time.
    pub(super) fn errors(&mut self) -> Option<ErrorsFact> {
        self.errors.fresh()
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
                    if rec.flags & BLOCK_TRAILERS != 0 {
                        // What others than the kubelet asked for says nothing of its failures.
                        if self.naming.follows(rec.socket) {
                            self.errors.take(self.naming.name(rec.socket, rec.stream), rec);
                        }
                        return None;
                    }
                    if rec.flags & BLOCK_OTHER != 0 {
                        self.other_naming.take(&fragment(rec));
                        return None;
                    }
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
                if rec.how & how::OTHER != 0 && !self.others.ended(rec.asker) {
                    return None;
                }
                Some(Frame { bytes: Bytes::copy_from_slice(rec.as_bytes()), ..frame })
            }
            RecKind::Docker => {
                let mut rec = DockerRec::read_from_bytes(&frame.bytes).ok()?;
                let len = docker_line(&rec.head).map_or(0, str::len);
                rec.head[len..].fill(0);
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
                let of_other = rec.how & how::OTHER != 0;
                let naming = if of_other { &mut self.other_naming } else { &mut self.naming };
                let name = naming.end(rec.socket, rec.stream);
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
    pub(super) fn is_doubtful(
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

    pub(super) fn fact(
        &self,
        key: &MessageKey,
        open: &OpenRequest,
        answerer: u32,
        is_other: bool,
    ) -> OpenMessageFact {
        let naming = if is_other { &self.other_naming } else { &self.naming };
        let (service, method) = request_names(&naming.name(key.socket, key.stream)).unwrap_or_default();
        let refused = self.last.get(&key.socket).is_some_and(|(last, _)| key.stream > *last);
        OpenMessageFact {
            socket: key.socket,
            stream: key.stream,
            start_ns: open.start_ns,
            asker: open.tgid,
            answerer,
            service,
            method,
            container: String::new(),
            unsent: false,
            over: refused,
            unread: None,
            unread_by_answerer: None,
        }
    }

    /// Forgets what is only needed for requests that are open: these are all.
    pub(super) fn keep<'a>(&mut self, at_ns: u64, open: impl Iterator<Item = &'a OpenMessageFact>) {
        let open: HashSet<(u64, u32)> = open.map(|it| (it.socket, it.stream)).collect();
        let sockets: HashSet<u64> = open.iter().map(|(socket, _)| *socket).collect();
        self.naming.keep(at_ns, |socket, stream| open.contains(&(socket, stream)));
        self.other_naming.keep(at_ns, |socket, stream| open.contains(&(socket, stream)));
        self.last.retain(|socket, (_, since_ns)| {
            sockets.contains(socket) || at_ns.saturating_sub(*since_ns) < GOING_NS
        });
        self.doubts.retain(|_, until| *until >= at_ns);
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
                "other_clients_unnamed",
                "header blocks or connections of other clients of the runtime were not followed: some of their requests have no name",
                self.other_naming.missed + self.other_naming.forgotten + self.other_naming.contradicted,
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
#[path = "requests_tests.rs"]
mod tests;
