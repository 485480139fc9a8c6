//! [`Event`]: what a record means, with times as [`MonoNs`].

use std::fmt;

use plegtrace_common::{
    rec::{CALL_FAILED, CALL_OK, CALL_RESTARTED, CALL_UNWOUND},
    role::Role,
};

use crate::input::Fact;

/// A moment: nanoseconds of CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MonoNs(pub u64);

impl MonoNs {
    /// Nanoseconds from `earlier` to `self`; 0 when `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// This moment `ns` nanoseconds later, at most the end of time.
    #[must_use]
    pub fn plus(self, ns: u64) -> Self {
        Self(self.0.saturating_add(ns))
    }

    /// This moment `ns` nanoseconds earlier, at least the beginning of time.
    #[must_use]
    pub fn minus(self, ns: u64) -> Self {
        Self(self.0.saturating_sub(ns))
    }
}

impl fmt::Display for MonoNs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ns", self.0)
    }
}

/// Where and when a record was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// When.
    pub at: MonoNs,
    /// Process that was running.
    pub tgid: u32,
    /// Thread that was running.
    pub tid: u32,
}

/// How a call came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CallResult {
    /// Its error result was nil.
    Ok,
    /// Its error result was not nil.
    Failed,
    /// The probe sites of this function do not tell.
    Unknown,
}

impl CallResult {
    /// What `CALL_*` bits say; a contradiction counts as failed, so that it is looked at.
    #[must_use]
    pub fn of_flags(flags: u32) -> Self {
        if flags & CALL_FAILED != 0 {
            Self::Failed
        } else if flags & CALL_OK != 0 {
            Self::Ok
        } else {
            Self::Unknown
        }
    }
}

/// What tells one call from every other: no goroutine starts the same function twice in a nanosecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId {
    /// Process.
    pub tgid: u32,
    /// Goroutine id.
    pub goid: u64,
    /// Index of the hook.
    pub hook: u32,
    /// Start.
    pub start: MonoNs,
}

/// A Go call that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Process.
    pub tgid: u32,
    /// Goroutine id.
    pub goid: u64,
    /// Index of the hook it started at.
    pub hook: u32,
    /// Bytes of goroutine stack in use at the start; 0 when not known.
    pub depth: u32,
    /// `CALL_*` bits.
    pub flags: u32,
    /// Start.
    pub start: MonoNs,
    /// End.
    pub end: MonoNs,
    /// When the reply was handed to the transport.
    pub mark: Option<MonoNs>,
    /// How long its goroutine was parked until [`Call::answered`]; `None` when that was not measured.
    pub parked: Option<Parked>,
    /// Stream of HTTP/2 as which it was sent, or came in.
    pub stream: Option<u32>,
}

/// Parks of one goroutine, added up by the kernel side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parked {
    /// Their sum.
    pub ns: u64,
    /// The part of it in parks too short for records of their own.
    pub short_ns: u64,
    /// Their number.
    pub count: u32,
}

/// A goroutine inside a call was parked for long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParkEvent {
    /// Process.
    pub tgid: u32,
    /// Goroutine id.
    pub goid: u64,
    /// Index of the hook on `runtime.gopark`; tells the executable.
    pub hook: u32,
    /// The runtime's number of the wait reason.
    pub reason: u32,
    /// When it parked.
    pub start: MonoNs,
    /// When it ran again.
    pub end: MonoNs,
    /// Return addresses relative to the start of the code, innermost first, `gopark` left out.
    pub stack: Vec<u64>,
}

/// What tells one request on the wire from every other. Both ends of its connection know the first two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageId {
    /// Inode number of the socket of who asks.
    pub socket: u64,
    /// Stream on that connection.
    pub stream: u32,
    /// When its first byte was written.
    pub start: MonoNs,
}

/// A request between runtime and shim that was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its identity.
    pub id: MessageId,
    /// Process that asked.
    pub asker: u32,
    /// Process that answered.
    pub answerer: u32,
    /// When the first byte of the answer was written.
    pub end: MonoNs,
    /// Service; empty when it could not be read.
    pub service: String,
    /// Method; empty when it could not be read.
    pub method: String,
}

/// How a gRPC request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestEnd {
    /// With the trailers of the server.
    Answered,
    /// The server ended its stream without trailers.
    Cut,
    /// The server reset its stream.
    ResetByServer,
    /// The client reset its stream: it was cancelled, or its time was over.
    ResetByClient,
}

/// A gRPC request of a kubelet that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Who asked whom what, and when; `end` is when the write began that ended it.
    pub message: Message,
    /// How it ended.
    pub end: RequestEnd,
    /// Bytes that the client sent, headers left out, by writes that returned before the answer came.
    pub bytes: u64,
    /// Bytes that the server sent, headers left out.
    pub answer_bytes: u64,
    /// Its client is not traced: it began when the runtime had read it.
    pub of_other: bool,
}

/// A request to Docker's API that was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DockerRequest {
    /// Who asked whom what, and when; it has no service, and its method is as in [`DockerCall`](crate::cri::DockerCall).
    pub message: Message,
    /// The container it is about; empty when it is about none.
    pub container: String,
    /// HTTP status.
    pub status: u32,
}

/// What tells one call over D-Bus from every other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BusCallId {
    /// Inode number of the socket of who calls.
    pub socket: u64,
    /// Serial of the call; 0: the connection itself.
    pub serial: u32,
    /// When its first byte was written.
    pub start: MonoNs,
}

/// What happened on a connection to the bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BusKind {
    /// The connection itself: from its first byte to the first line of the bus.
    Connection,
    /// A connection that the kernel refused: nobody listens, or too many wait to be accepted.
    Refused,
    /// A call, to its answer.
    Call,
    /// A job of systemd, which was the answer to a call: from that answer to the signal that it is done.
    Job,
}

/// A call over D-Bus that was answered, a job that is done, or a connection that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusCall {
    /// Its identity.
    pub id: BusCallId,
    /// What it was.
    pub kind: BusKind,
    /// Process that called.
    pub asker: u32,
    /// When it had read the header of the answer.
    pub end: MonoNs,
    /// What was called. Of a connection that was refused, the error, and who listens: the bus, or systemd at its private socket.
    pub names: BusNames,
    /// Serial of the answer, as its sender counts what it sends; 0: not known.
    pub answer_serial: u32,
    /// Name of the error that was the answer; empty when that could not be read. Of a connection that was refused the kernel's.
    pub error: Option<String>,
}

/// What a call over D-Bus says that it calls; empty texts where that could not be read, or is not there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BusNames {
    /// Interface.
    pub interface: String,
    /// Method.
    pub member: String,
    /// Name on the bus of who is to answer.
    pub destination: String,
}

impl Call {
    /// Its identity.
    #[must_use]
    pub fn id(&self) -> CallId {
        CallId { tgid: self.tgid, goid: self.goid, hook: self.hook, start: self.start }
    }

    /// How it came out.
    #[must_use]
    pub fn result(&self) -> CallResult {
        CallResult::of_flags(self.flags)
    }

    /// Its end was not seen; it is over because something later on its goroutine proves it.
    #[must_use]
    pub fn unwound(&self) -> bool {
        self.flags & CALL_UNWOUND != 0
    }

    /// Its start fired twice because the stack grew in the prologue.
    #[must_use]
    pub fn restarted(&self) -> bool {
        self.flags & CALL_RESTARTED != 0
    }

    /// Nanoseconds from start to end.
    #[must_use]
    pub fn duration_ns(&self) -> u64 {
        self.end.since(self.start)
    }

    /// When the caller could have had the answer: the reply's hand-over if it was seen, else the end.
    #[must_use]
    pub fn answered(&self) -> MonoNs {
        self.mark.map_or(self.end, |mark| mark.clamp(self.start, self.end))
    }
}

/// One step in the life of a watched process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// It was born.
    Fork,
    /// It became another program.
    Exec,
    /// It ended with this wait status (exit code × 256 + signal).
    Exit(u32),
}

/// A watched process was born, changed or ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// When and which process.
    pub meta: Meta,
    /// What happened.
    pub step: Step,
    /// Parent process; `None` when not known.
    pub parent: Option<u32>,
    /// Who called `clone`; only for a fork.
    pub creator: Option<u32>,
    /// Role of who started it; [`Role::None`] when that was not watched.
    pub parent_role: Role,
    /// When the program it runs, or ran, began; `None` when before the probes.
    pub since: Option<MonoNs>,
    /// `PROCESS_*` bits.
    pub flags: u32,
    /// Role from now on.
    pub role: Role,
    /// Role until now.
    pub old_role: Role,
    /// Name of the task, at most 15 bytes, bytes that are not UTF-8 replaced. Hostile text.
    pub comm: String,
}

/// One decoded record.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A Go call ended.
    Call(Call),
    /// A goroutine inside a call was parked for long.
    Park(ParkEvent),
    /// A step of a process.
    Process(Process),
    /// A request between runtime and shim was answered.
    Message(Message),
    /// A gRPC request ended.
    Request(Request),
    /// A request to Docker's API was answered.
    Docker(DockerRequest),
    /// A call over D-Bus was answered.
    BusCall(BusCall),
    /// A fact of user space.
    Fact {
        /// When it was established.
        at: MonoNs,
        /// The fact.
        fact: Box<Fact>,
    },
}
