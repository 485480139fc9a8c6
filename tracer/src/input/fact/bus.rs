//! Facts of calls over D-Bus, read from the kernel's map, and of the queues of their connections.

use serde::{Deserialize, Serialize};

/// The calls without an answer at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BusFact {
    /// When the map was read (before the ring buffer was drained).
    pub at_ns: u64,
    /// The calls.
    pub open: Vec<OpenBusFact>,
    /// Clients of the bus that have not read what it wrote to them, the most first; only read when a call is old.
    pub readers: Vec<BusReaderFact>,
    /// The map could be read to its end.
    pub complete: bool,
}

/// One call without an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenBusFact {
    /// Inode number of the socket of who calls.
    pub socket: u64,
    /// Serial of the call; 0: the connection itself, of which the bus has not said a word.
    pub serial: u32,
    /// When its first byte was written.
    pub start_ns: u64,
    /// Process that calls.
    pub asker: u32,
    /// Interface; empty when it could not be read.
    pub interface: String,
    /// Method; empty when it could not be read.
    pub member: String,
    /// Name on the bus of who is to answer; empty when it could not be read, and where there is no bus.
    pub destination: String,
    /// The socket has not taken it yet: its buffer is full.
    pub unsent: bool,
    /// The bus has accepted the connection; `None`: not known.
    pub accepted: Option<bool>,
    /// Bytes of the connection that the bus has not read; `None`: not known.
    pub unread_by_bus: Option<u32>,
    /// Bytes of the connection that the caller has not read; `None`: not known.
    pub unread: Option<u32>,
    /// Process that holds the other end, or listens there; 0 when not known.
    pub bus: u32,
    /// The caller or its connection is gone: nobody waits for the answer any more.
    pub over: bool,
}

/// A client of the bus that has not read everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BusReaderFact {
    /// Inode number of its socket.
    pub socket: u64,
    /// Process that holds it; 0 when not known.
    pub pid: u32,
    /// Bytes that it has not read.
    pub unread: u32,
}
