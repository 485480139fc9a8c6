//! What becomes of what a kubelet sends over TCP.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// The TCP connections that a kubelet has opened, as one look found them: it asks the API server over one of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KubeletConnections {
    /// When they were looked at.
    pub at_ns: u64,
    /// The kubelet.
    pub pid: u32,
    /// Its connections; at most 64.
    pub connections: Vec<SentFact>,
    /// How many were too many.
    pub left_out: u32,
}

/// A TCP connection, by the kernel's own account of it (`struct tcp_info`, include/uapi/linux/tcp.h).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentFact {
    /// The other end.
    pub peer: SocketAddr,
    /// The other end has not taken it yet (`SYN_SENT`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub connecting: bool,
    /// Bytes that have arrived since it is there (`tcpi_bytes_received`).
    pub received: u64,
    /// How long ago the last of them came, or, when there are none, the connection was made; milliseconds (`tcpi_last_data_recv`).
    pub quiet_ms: u32,
    /// How long ago something was last sent, also for another time; milliseconds (`tcpi_last_data_sent`).
    pub sent_ms: u32,
    /// Bytes that were sent, or wait to be, and that the other end has not acknowledged (`idiag_wqueue`).
    pub unacked: u32,
    /// How often the same was sent again since the last acknowledgement (`tcpi_retransmits`).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub resent: u8,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u8) -> bool {
    *number == 0
}

impl SentFact {
    /// Does it wait for the other end? Nothing has come since something was sent, or ever, or it is not there yet.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.connecting || self.unacked > 0 || self.received == 0 || self.quiet_ms > self.sent_ms
    }

    /// Is the other end, or the way to it, gone? What was sent was sent again, and not acknowledged.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.resent > 0
    }
}
