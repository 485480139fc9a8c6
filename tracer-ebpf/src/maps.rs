//! Every map: what it holds, who writes it, who reads it, what happens when it is full.

use aya_ebpf::{
    macros::map,
    maps::{Array, HashMap, LruHashMap, PerCpuArray, RingBuf},
};
use plegtrace_common::{
    key::{
        CallKey, HookStats, MAX_OPEN_CALLS, MAX_PARKERS, MAX_STREAMS, MAX_WATCHED, OpenCall, Parker,
        ParkerKey, Watched,
    },
    reason::Reason,
    site::{MAX_HOOKS, MAX_SITES, SiteConf, SiteKey},
    wire::{
        bus::{BusKey, MAX_BUS_CALLS, MAX_JOB_BODIES, MAX_JOBS_DONE, OpenBusCall},
        dbus,
        docker::{MAX_DOCKER_REQUESTS, MAX_HIJACKED, OpenDockerRequest},
        request::{COMM, MAX_CLIENTS, MAX_DIRECTIONS, MAX_OTHER_REQUESTS, MAX_REQUESTS, OpenRequest, Stance},
        state::{
            Holder, MAX_ENDS, MAX_MESSAGES, MAX_POSITIONS, MAX_SENDING, MessageKey, OpenMessage, PositionKey,
            Sending,
        },
        ttrpc::Position,
    },
};

use crate::{bus, docker, environment::Scratch, messages, requests};

/// Finished spans and process steps, kernel → user space, drained on a timer (never a wake-up: one costs more than
/// the probe itself). Full: the record is dropped and counted as [`Reason::RingFull`].
#[map]
pub(crate) static EVENTS: RingBuf = RingBuf::with_byte_size(1 << 20, 0);

/// Site index → what a hit means. Written by user space before its site is attached; later only `parks` changes, to 0.
#[map]
pub(crate) static SITES: Array<SiteConf> = Array::with_max_entries(MAX_SITES, 0);

/// (Executable, address) → site index, for kernels without cookies. Written by user space before anything is attached.
#[map]
pub(crate) static SITE_INDEX: HashMap<SiteKey, u32> = HashMap::with_max_entries(MAX_SITES, 0);

/// Calls that have not returned. Written here, read by user space at any time. A plain hash, not LRU: LRU would evict
/// the oldest, which is the culprit. Full: the start is refused and counted as [`Reason::OpenCallsFull`].
#[map]
pub(crate) static OPEN_CALLS: HashMap<CallKey, OpenCall> = HashMap::with_max_entries(MAX_OPEN_CALLS, 0);

/// Goroutine inside a watched call → how long it has been parked, and where it is now if it is. Written here from the
/// start of its outermost call to the end of that, read by user space at any time, which sweeps it when a process ends.
/// Looked into for every park and every resume of a traced program, so what is in no call costs that one look. A plain
/// hash, as above. Full: the parks of the call are not measured, which its record says, and it is counted as
/// [`Reason::ParkersFull`].
#[map]
pub(crate) static PARKERS: HashMap<ParkerKey, Parker> = HashMap::with_max_entries(MAX_PARKERS, 0);

/// Call that is about to begin → the stream as which it came in. Written when a server takes it on, taken when its call
/// begins, a moment later. What is forgotten is joined by time.
#[map]
pub(crate) static STREAMS: LruHashMap<CallKey, u32> = LruHashMap::with_max_entries(MAX_STREAMS, 0);

/// Hook index → counters and latency histogram. Written here, summed by user space.
#[map]
pub(crate) static HOOKS: PerCpuArray<HookStats> = PerCpuArray::with_max_entries(MAX_HOOKS, 0);

/// Process → role, and since when. Seeded by user space, kept up by the process programs, read by user space at any
/// time: it is the list of processes in flight. A plain hash, as above.
/// Full: the process is not watched, counted as [`Reason::WatchedFull`].
#[map]
pub(crate) static WATCHED: HashMap<u32, Watched> = HashMap::with_max_entries(MAX_WATCHED, 0);

/// [`Reason`] → how often.
#[map]
pub(crate) static REASONS: PerCpuArray<u64> = PerCpuArray::with_max_entries(Reason::COUNT, 0);

/// How many system calls have begun while they were watched: of all processes, near enough for a price.
#[map]
pub(crate) static SYSTEM_CALLS: PerCpuArray<u64> = PerCpuArray::with_max_entries(1, 0);

/// Where environments are searched. Not read by user space.
#[map]
pub(crate) static SEARCH: PerCpuArray<Scratch> = PerCpuArray::with_max_entries(1, 0);

/// Requests between runtime and shims without an answer. Written here, read by user space at any time, which sweeps it
/// when an end of a connection is gone. A plain hash, as [`OPEN_CALLS`]. Full: the request is refused and counted as
/// [`Reason::MessagesFull`].
#[map]
pub(crate) static MESSAGES: HashMap<MessageKey, OpenMessage> = HashMap::with_max_entries(MAX_MESSAGES, 0);

/// Thread → the write it is inside. Written when a write begins, taken when it ends. Not read by user space. Full: the
/// write is not corrected when it is cut short, nor are its answers seen: [`Reason::SendingFull`].
#[map]
pub(crate) static SENDING: HashMap<u32, Sending> = HashMap::with_max_entries(MAX_SENDING, 0);

/// Direction of a connection → where in a frame it is; only those that are inside one. The oldest is forgotten when it is
/// full: then its next write is out of step, which is counted. Not read by user space.
#[map]
pub(crate) static POSITIONS: LruHashMap<PositionKey, Position> =
    LruHashMap::with_max_entries(MAX_POSITIONS, 0);

/// End of a connection (`struct sock`) → who holds it, learnt when it reads or writes. Read by user space for requests
/// whose other end was not known yet. What is forgotten is learnt again.
#[map]
pub(crate) static ENDS: LruHashMap<u64, Holder> = LruHashMap::with_max_entries(MAX_ENDS, 0);

/// Where a write is walked through. Not read by user space.
#[map]
pub(crate) static WALKS: PerCpuArray<messages::Scratch> = PerCpuArray::with_max_entries(1, 0);

/// Calls over D-Bus without an answer. Written here, read by user space at any time, which sweeps it when the caller or
/// its connection is gone. A plain hash, as [`OPEN_CALLS`]. Full: the call is refused and counted as
/// [`Reason::MessagesFull`].
#[map]
pub(crate) static BUS_CALLS: HashMap<BusKey, OpenBusCall> = HashMap::with_max_entries(MAX_BUS_CALLS, 0);

/// Jobs of systemd that are done, by process that has read so and number of the job, before it has read that it had begun them:
/// the two come on different connections. Not read by user space.
#[map]
pub(crate) static JOBS_DONE: LruHashMap<BusKey, u32> = LruHashMap::with_max_entries(MAX_JOBS_DONE, 0);

/// Messages about jobs whose headers have been read and whose bodies have not, by connection: the call that the job is the
/// answer to ([`BUS_JOB`](plegtrace_common::wire::bus::BUS_JOB)), or nothing of a job that is done. Not read by user space.
#[map]
pub(crate) static JOB_BODIES: LruHashMap<PositionKey, OpenBusCall> =
    LruHashMap::with_max_entries(MAX_JOB_BODIES, 0);

/// As [`POSITIONS`], for connections to a bus.
#[map]
pub(crate) static BUS_POSITIONS: LruHashMap<PositionKey, dbus::Position> =
    LruHashMap::with_max_entries(MAX_POSITIONS, 0);

/// Where the bytes of a bus are walked through. Not read by user space.
#[map]
pub(crate) static BUS_WALKS: PerCpuArray<bus::Scratch> = PerCpuArray::with_max_entries(1, 0);

/// gRPC requests of the kubelet without an answer. Written here, read by user space at any time, which sweeps it when an end
/// of a connection is gone. A plain hash, as [`OPEN_CALLS`]. Full: the request is refused and counted as
/// [`Reason::MessagesFull`].
#[map]
pub(crate) static REQUESTS: HashMap<MessageKey, OpenRequest> = HashMap::with_max_entries(MAX_REQUESTS, 0);

/// The same of clients that are not traced. Full: counted as [`Reason::OtherRequestsFull`].
#[map]
pub(crate) static OTHER_REQUESTS: HashMap<MessageKey, OpenRequest> =
    HashMap::with_max_entries(MAX_OTHER_REQUESTS, 0);

/// Process of a client that is not traced → its name. Read by user space once its requests are.
#[map]
pub(crate) static CLIENTS: LruHashMap<u32, [u8; COMM]> = LruHashMap::with_max_entries(MAX_CLIENTS, 0);

/// Direction of a connection to a runtime → how far it has been read. One that is forgotten is joined again, late. Not read
/// by user space.
#[map]
pub(crate) static DIRECTIONS: LruHashMap<PositionKey, Stance> =
    LruHashMap::with_max_entries(MAX_DIRECTIONS, 0);

/// Requests to Docker's API without an answer. Written here, read by user space at any time, which sweeps it when an end of a
/// connection is gone. A plain hash, as [`OPEN_CALLS`]. Full: the request is refused and counted as
/// [`Reason::MessagesFull`].
#[map]
pub(crate) static DOCKER_REQUESTS: HashMap<MessageKey, OpenDockerRequest> =
    HashMap::with_max_entries(MAX_DOCKER_REQUESTS, 0);

/// Connections to Docker that carry something else by now, as their clients see them. Not read by user space. What is forgotten is
/// looked at again: its bytes would have to begin like a request.
#[map]
pub(crate) static HIJACKED: LruHashMap<PositionKey, u32> = LruHashMap::with_max_entries(MAX_HIJACKED, 0);

/// Where requests to Docker are read. Not read by user space.
#[map]
pub(crate) static DOCKER_OPENS: PerCpuArray<docker::Scratch> = PerCpuArray::with_max_entries(1, 0);

/// Where the frames of a write are walked through. Not read by user space.
#[map]
pub(crate) static REQUEST_WALKS: PerCpuArray<requests::Scratch> = PerCpuArray::with_max_entries(1, 0);
