//! What is believed of requests, and how they get their names.

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
    // Of another client it is no loss.
    let other = BlockRec { flags: cut.flags | BLOCK_OTHER, socket: 4, ..cut };
    assert!(requests.name(frame(other.header, RecKind::Block, other.as_bytes())).is_none());
    let told: Vec<_> = requests.losses().map(|loss| (loss.reason, loss.count, loss.is_loss)).collect();
    assert_eq!(told[1..], [("other_clients_unnamed".to_owned(), 1, false)]);
    assert_eq!(told.len(), 2, "and none of the kubelet's");
}

/// What the runtime says of failed calls of the kubelet enters the stream, and of nobody else's.
#[test]
fn errors_are_the_kubelets() {
    let mut requests = Requests::default();
    let block = |socket, flags, text: &[u8]| {
        let header = RecHeader { kind: RecKind::Block as u16, ..rec(0, 0, 90).header };
        let len = u32::try_from(text.len()).unwrap();
        let mut bytes = [0; plegtrace_common::wire::request::BLOCK];
        bytes[..text.len()].copy_from_slice(text);
        let block =
            BlockRec { header, socket, joined_ns: 80, offset: 0, stream: 5, len, flags, reserved: 0, bytes };
        Frame { header, kind: RecKind::Block, bytes: Bytes::copy_from_slice(block.as_bytes()) }
    };
    let path = b"\x44\x12/a.B/StopContainer";
    let trailers = b"\x40\x0cgrpc-message\x07no disk";
    assert!(requests.name(block(3, BLOCK_FIRST | BLOCK_LAST | BLOCK_FROM_START, path)).is_none());
    assert!(requests.name(block(4, BLOCK_TRAILERS, trailers)).is_none());
    assert!(requests.errors().is_none(), "another client");
    assert!(requests.name(block(3, BLOCK_TRAILERS, trailers)).is_none());
    let errors = requests.errors().unwrap().errors;
    assert_eq!((errors[0].method.as_str(), errors[0].words.as_str()), ("StopContainer", "no disk"));
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
        stream: 0,
    };
    Frame { header, kind: RecKind::Call, bytes: Bytes::copy_from_slice(rec.as_bytes()) }
}
