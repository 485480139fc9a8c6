//! Facts of calls over D-Bus, read from the kernel's map, and of the queues of their connections.

use serde::{Deserialize, Serialize};

/// The name under which process 1 of a node is on the system bus.
pub const SYSTEMD: &str = "org.freedesktop.systemd1";
/// The name of the bus daemon itself.
pub const THE_BUS: &str = "org.freedesktop.DBus";

/// The calls without an answer at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BusFact {
    /// When the map was read (before the ring buffer was drained).
    pub at_ns: u64,
    /// The calls.
    pub open: Vec<OpenBusFact>,
    /// Clients of the bus that have not read what it wrote to them, the most first; only read when a call is old.
    pub readers: Vec<BusReaderFact>,
    /// Processes that old calls wait for: bus daemons, and systemd.
    #[serde(default)]
    pub peers: Vec<BusPeerFact>,
    /// The map could be read to its end. Without one, only what goroutines wait for is known.
    pub complete: bool,
}

/// One call without an answer, or one whose answer was a job of systemd that is not done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenBusFact {
    /// Inode number of the socket of who calls.
    pub socket: u64,
    /// Serial of the call; 0: the connection itself, of which the bus has not said a word. Of a job its number. Of a call that no
    /// probe has seen begin, only that it is not 0.
    pub serial: u32,
    /// No probe has seen it begin: a goroutine was found to wait for it, first at `start_ns`.
    #[serde(default)]
    pub before: bool,
    /// It is a job that is not done.
    #[serde(default)]
    pub job: bool,
    /// When its first byte was written; of a job, when its caller had read of it.
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
    /// Process that is to answer it, when it is one for systemd; 0 when not known.
    #[serde(default)]
    pub owner: u32,
    /// It is one for systemd, and the first process of the bus's PID namespace is no client of the bus: nobody is there to answer it.
    #[serde(default)]
    pub no_owner: bool,
    /// The kernel's name of the process that calls; empty for young calls. Hostile text.
    #[serde(default)]
    pub comm: String,
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

/// A process that calls wait for, from files of `/proc` that never wait for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BusPeerFact {
    /// Process.
    pub pid: u32,
    /// It is the first process of the bus's PID namespace, and on the bus: systemd. Else it is a bus daemon.
    pub is_init: bool,
    /// The kernel's name of it. Hostile text.
    pub comm: String,
    /// State of its first thread: R, S, D, T, t, Z, …
    pub state: char,
    /// Kernel function in which that waits; empty when it runs, or the kernel does not say.
    pub wchan: String,
    /// Its cgroup, or one above it, is frozen; false when that cannot be asked.
    #[serde(default)]
    pub frozen: bool,
    /// CPU time it has used, all threads together; the resolution is a clock tick.
    pub ran_ns: u64,
    /// Bytes that it has not read from the bus; `None`: not known, or it is the bus.
    pub unread: Option<u32>,
    /// Of systemd, what gives it work, at this reading.
    #[serde(default)]
    pub work: SystemdWork,
}

/// What gave systemd work, by looks at its descriptors and at its mount table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemdWork {
    /// So many looks; 0: it could not be looked at.
    pub looks: u32,
    /// At so many of them the mount table had changed since the one before.
    pub mounts_changed: u32,
    /// At so many of them it had a unit file open, or the state that it keeps during a reload.
    pub units: u32,
}

impl SystemdWork {
    /// This reading as one: was each seen at all?
    #[must_use]
    pub fn once(self) -> Self {
        let seen = |looks: u32| u32::from(looks > 0);
        Self { looks: seen(self.looks), mounts_changed: seen(self.mounts_changed), units: seen(self.units) }
    }

    /// Those of both together.
    #[must_use]
    pub fn and(self, more: Self) -> Self {
        Self {
            looks: self.looks.saturating_add(more.looks),
            mounts_changed: self.mounts_changed.saturating_add(more.mounts_changed),
            units: self.units.saturating_add(more.units),
        }
    }
}
