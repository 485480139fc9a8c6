//! Facts of requests on sockets, read from the kernel's maps.

use serde::{Deserialize, Serialize};

/// The requests without an answer at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessagesFact {
    /// When the map was read (before the ring buffer was drained).
    pub at_ns: u64,
    /// The requests.
    pub open: Vec<OpenMessageFact>,
    /// The map could be read to its end.
    pub complete: bool,
}

/// Names of methods that have become known, also for requests that have ended without one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamesFact {
    /// The names.
    pub names: Vec<LearntFact>,
}

/// One of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LearntFact {
    /// What requests of this method had for a name (`unknown#k@table`).
    pub unknown: String,
    /// Service.
    pub service: String,
    /// Method.
    pub method: String,
}

/// What the runtime said of calls of the kubelet that failed: of each method the last words since the last such fact.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorsFact {
    /// One entry per method.
    pub errors: Vec<ErrorFact>,
}

/// One of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorFact {
    /// Service.
    pub service: String,
    /// Method.
    pub method: String,
    /// When the runtime wrote it.
    pub at_ns: u64,
    /// `grpc-message`, without what is secret in URLs, at most 400 characters; hostile text.
    pub words: String,
}

/// What clients of the runtime that are not traced do, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherClientsFact {
    /// Processes that have ended a request since the last time, or have one open, and their names, as far as they are new.
    pub clients: Vec<ClientFact>,
    /// Their requests that have not ended.
    pub requests: MessagesFact,
}

/// Such a client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientFact {
    /// Process.
    pub pid: u32,
    /// Its name, as the kernel has it; empty when that is not known.
    pub name: String,
}

/// One request without an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenMessageFact {
    /// Inode number of the socket of who asks.
    pub socket: u64,
    /// Stream on that connection.
    pub stream: u32,
    /// When its first byte was written.
    pub start_ns: u64,
    /// Process that asks.
    pub asker: u32,
    /// Process that is to answer; 0 when not known.
    pub answerer: u32,
    /// Service; empty when it could not be read.
    pub service: String,
    /// Method; empty when it could not be read.
    pub method: String,
    /// The container it is about, of requests to Docker; empty when it is about none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub container: String,
    /// The socket has not taken it yet: its buffer is full.
    pub unsent: bool,
    /// One of both processes is gone: nobody answers any more.
    pub over: bool,
    /// Bytes that came on the connection and that who asks has not read; `None`: not asked, or not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unread: Option<u32>,
    /// Bytes of the connection that who is to answer has not read; `None`: not asked, or not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unread_by_answerer: Option<u32>,
}
