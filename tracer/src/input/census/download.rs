//! What a runtime receives over TCP.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// The established TCP connections that a runtime has opened, at one moment. Those that others have opened to it are not among them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Downloads {
    /// When they were looked at.
    pub at_ns: u64,
    /// The runtime.
    pub pid: u32,
    /// Its connections; at most 64.
    pub connections: Vec<TcpFact>,
    /// How many were too many.
    pub left_out: u32,
}

/// A TCP connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpFact {
    /// Inode of the socket: unique as long as it is open.
    pub inode: u64,
    /// The other end.
    pub peer: SocketAddr,
    /// Bytes that have arrived since it is there (`tcpi_bytes_received`).
    pub received: u64,
    /// How long ago the last of them came, or, when there are none, the connection was made; milliseconds
    /// (`tcpi_last_data_recv`; since Linux 4.11 also of connections without any).
    pub quiet_ms: u32,
    /// How long ago something was last sent, milliseconds (`tcpi_last_data_sent`): the request that waits is no younger.
    pub sent_ms: u32,
    /// Bytes of these that the runtime has not read.
    pub unread: u32,
}
