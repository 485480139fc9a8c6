//! What a process holds open, and who holds the other end.

use serde::{Deserialize, Serialize};

/// What a descriptor refers to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FdFact {
    /// Its number in the process.
    pub fd: i32,
    /// What it is.
    pub target: FdTarget,
}

/// What is behind a descriptor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum FdTarget {
    /// A pipe or a FIFO.
    Pipe(PipeFact),
    /// A unix stream socket.
    Socket(SocketFact),
    /// A file or directory. Hostile text.
    File {
        /// Path as the process sees it.
        path: String,
    },
    /// Something else: `anon_inode:[eventpoll]`, `socket:[…]` of another family. Hostile text.
    Other {
        /// Text of the link.
        link: String,
    },
}

/// A pipe or FIFO with all its holders.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PipeFact {
    /// Inode number.
    pub inode: u64,
    /// Path when it is a FIFO. Hostile text.
    pub path: Option<String>,
    /// Who holds the reading end; at most 16.
    pub readers: Vec<Holder>,
    /// Who holds the writing end; at most 16.
    pub writers: Vec<Holder>,
    /// Not every process could be asked, or there were more holders.
    pub incomplete: bool,
}

/// A process that holds one end of something.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Holder {
    /// Process.
    pub pid: u32,
    /// The kernel's name of it. Hostile text.
    pub comm: String,
    /// Its descriptor.
    pub fd: i32,
    /// The leader of its session has ended: it was left behind by the command that started it.
    #[serde(default)]
    pub orphan: bool,
}

/// A unix stream socket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketFact {
    /// Inode number.
    pub inode: u64,
    /// Path it is bound to, or that of the listener it was accepted from; for the connecting end that of its peer.
    /// Hostile text; `@` begins an abstract name.
    pub path: Option<String>,
    /// It waits for connections.
    pub listening: bool,
    /// Bytes nobody has read yet; for a listener: connections nobody has accepted yet.
    pub unread: u32,
    /// For a listener: how many may wait.
    pub backlog: u32,
    /// Inode of the other end; `None` for listeners and for what is not connected.
    pub peer_inode: Option<u64>,
    /// Who holds the other end; at most 16. While nobody has accepted the connection: who may accept it.
    pub peers: Vec<Holder>,
    /// The other side has not accepted the connection yet.
    #[serde(default)]
    pub pending: bool,
    /// Every process was asked whether it is one of the `peers`; otherwise only those of the node and of its containers.
    #[serde(default)]
    pub asked_all: bool,
    /// State of the process that holds the other end, when it is the only one (see proc(5)).
    #[serde(default)]
    pub peer_state: Option<char>,
}
