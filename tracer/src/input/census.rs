//! Facts of the census: what was already there when we came, read from outside, without an event and without a signal.
//!
//! One round tells every process of interest ([`ProcessFact`]), the stacks of the Go programs among them
//! ([`GoroutinesFact`]), and closes with a [`CensusFact`] that says who did not answer. Lists are cut at the bounds in
//! their docs, and say so.

use serde::{Deserialize, Serialize};

use super::Component;

/// One round of the census is complete.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CensusFact {
    /// First read of the round.
    pub began_ns: u64,
    /// Last read of the round.
    pub ended_ns: u64,
    /// Processes looked at.
    pub processes: u32,
    /// Who did not answer in time, or could not be read.
    pub unanswered: Vec<Unanswered>,
    /// Processes that were left out because there were too many, or because the time was over.
    pub left_out: u32,
    /// Containers whose bundles were found, with or without a process in this round: who is meant by an id in a
    /// command line. At most 4096.
    #[serde(default)]
    pub containers: Vec<ContainerFact>,
    /// How much is waited for processors and disks; `None` where the kernel does not count it (before Linux 4.20).
    #[serde(default)]
    pub pressure: Option<Pressure>,
    /// Versions of the node's programs; only in the round in which they were asked.
    #[serde(default)]
    pub versions: Vec<VersionFact>,
    /// What the runtime itself says, when it was asked.
    #[serde(default)]
    pub says: Option<RuntimeSays>,
    /// Containers and sandboxes whose first process has ended. At most 4096.
    #[serde(default)]
    pub ended: Vec<EndedInit>,
}

/// What version a program of the node says it has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionFact {
    /// "kubelet", "containerd", "runc", "systemd", …
    pub program: String,
    /// "1.6.20~ds1"
    pub version: String,
}

/// Shares of the last ten seconds in which somebody waited, hundredths of a percent (`/proc/pressure`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pressure {
    /// At least one thread waited for a processor.
    pub cpu_some_avg10: u32,
    /// At least one thread waited for a disk.
    pub io_some_avg10: u32,
    /// All threads that wanted to run waited for a disk.
    pub io_full_avg10: u32,
    /// All threads that wanted to run waited for memory.
    pub memory_full_avg10: u32,
}

/// What a runtime says of its containers, over the CRI.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeSays {
    /// Its process.
    pub pid: u32,
    /// Version of the CRI that it answered in; empty when it did not answer.
    pub version: String,
    /// Our calls: they are among the handlers that are seen.
    pub calls: Vec<OwnCall>,
    /// Sandboxes and containers, those that run first; at most 4096.
    pub containers: Vec<RuntimeState>,
    /// How many were too many.
    pub left_out: u32,
}

/// A call that the census made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnCall {
    /// CRI method.
    pub operation: String,
    /// When it was sent.
    pub began_ns: u64,
    /// When the answer was there; `None`: none came, and the call was given up.
    pub ended_ns: Option<u64>,
}

/// A container or sandbox as the runtime believes it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeState {
    /// Which.
    pub container: ContainerFact,
    /// "created", "running", "exited", "unknown"; of sandboxes "ready", "notready".
    pub state: String,
    /// It runs, the runtime says.
    pub runs: bool,
}

/// A container, or a command in one, whose first process has ended, by the pid that its shim wrote down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedInit {
    /// Id of the container or sandbox.
    pub id: String,
    /// The runtime's id of the command; `None` for the container itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec: Option<String>,
    /// The process.
    pub pid: u32,
    /// It has ended, and nobody has asked how; otherwise it is gone.
    pub zombie: bool,
    /// Commands in the same container that run.
    #[serde(default)]
    pub commands: u32,
}

/// A question that got no answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unanswered {
    /// Who was asked.
    pub pid: u32,
    /// The kernel's name of it. Hostile text.
    pub comm: String,
    /// What was asked: "command line", "kernel stack", "goroutines", …
    pub what: String,
    /// Why there is no answer: "no answer within 300 ms", "permission denied", …
    pub why: String,
}

/// One process as the census found it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessFact {
    /// When it was read.
    pub at_ns: u64,
    /// Process id.
    pub pid: u32,
    /// Its parent.
    pub parent: u32,
    /// When it was started; the resolution is a clock tick.
    pub started_ns: Option<u64>,
    /// What it is to the node; [`Component::Helper`] for CNI plugins, hooks and whatever else a component runs.
    pub component: Component,
    /// The kernel's name of it. Hostile text.
    pub comm: String,
    /// What it was told to do, from its command line.
    pub command: Option<Command>,
    /// State of its first thread: R, S, D, T, t, Z, …
    pub state: char,
    /// Number of threads.
    pub threads: u32,
    /// Threads in state T or t.
    pub stopped: u32,
    /// The freezer of its cgroup, when that is not thawed.
    pub freezer: Option<Freezer>,
    /// Where its threads wait, one entry for all that wait alike; at most 64.
    pub parked: Vec<Park>,
    /// Its unix stream sockets that listen or hold unread bytes; at most 64.
    pub sockets: Vec<SocketFact>,
    /// Pipes and FIFOs it reads of which somebody outside of it holds the writing end; at most 64. Only for shims.
    pub pipes: Vec<PipeFact>,
    /// Container and pod it belongs to, or works for.
    pub container: Option<ContainerFact>,
}

/// What a process was told to do. Only what is on the allow-list: never whole command lines, never environment values
/// other than the two that CNI defines.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Command {
    /// runc or crun.
    Runc {
        /// "create", "start", "exec", "init", …
        sub: String,
        /// Container id.
        container: Option<String>,
        /// Directory of the bundle.
        bundle: Option<String>,
    },
    /// A containerd shim.
    Shim {
        /// "start" and "delete" are short-lived helpers of their own; `None` is the server.
        action: Option<String>,
        /// Namespace of containerd ("k8s.io", "moby").
        namespace: Option<String>,
        /// Id of the sandbox or container it was started for.
        id: Option<String>,
    },
    /// A CNI plugin.
    Cni {
        /// Name of the program.
        plugin: String,
        /// `CNI_COMMAND`: "ADD", "DEL", "CHECK", …
        action: Option<String>,
        /// `CNI_CONTAINERID`.
        container: Option<String>,
    },
    /// Something else: an OCI hook, a mount helper, …
    Other {
        /// Name of the program.
        program: String,
    },
}

/// A cgroup that is frozen, or about to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Freezer {
    /// The cgroup that was told to freeze, the process's own or one above it: path below the root of the hierarchy.
    pub path: String,
    /// 1 or 2.
    pub version: u8,
    /// "FROZEN", "FREEZING".
    pub state: String,
    /// This cgroup itself was told to freeze, not one above it.
    pub own: bool,
}

/// Threads that wait alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Park {
    /// How many threads.
    pub threads: u32,
    /// One of them.
    pub tid: u32,
    /// Their state.
    pub state: char,
    /// The system call they are in.
    pub syscall: Option<SyscallFact>,
    /// Kernel functions, innermost first; at most 32. Empty when the kernel does not say.
    pub kernel_stack: Vec<String>,
    /// Function of user space that made the system call, when it could be named.
    pub user_function: Option<String>,
}

/// A system call a thread is inside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyscallFact {
    /// Number on this machine.
    pub nr: i64,
    /// Its name; `None` for numbers we do not know.
    pub name: Option<String>,
    /// Arguments.
    pub args: [u64; 6],
    /// The descriptor it works on, when the call has one as its first argument.
    pub fd: Option<FdFact>,
    /// The path it works on, when the call has one and it could be read. Hostile text.
    pub path: Option<String>,
    /// Who holds the file lock that it waits for; its `fd` is -1.
    #[serde(default)]
    pub lock_holder: Option<Holder>,
}

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
    /// Who holds the other end; at most 16.
    pub peers: Vec<Holder>,
}

/// Container and pod of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ContainerFact {
    /// Id of the container; of the sandbox for a shim.
    pub id: String,
    /// Id of its sandbox.
    pub sandbox: Option<String>,
    /// Name of the container in its pod.
    pub name: Option<String>,
    /// Name of the pod.
    pub pod: Option<String>,
    /// Namespace of the pod.
    pub namespace: Option<String>,
    /// Where this was read: "cri", "bundle", "cgroup", "command line".
    pub source: String,
}

/// The goroutines of one process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GoroutinesFact {
    /// When reading began.
    pub at_ns: u64,
    /// How long it took.
    pub took_ns: u64,
    /// Process.
    pub pid: u32,
    /// What it is to the node.
    pub component: Component,
    /// Go version that built it.
    pub go_version: String,
    /// Goroutines that exist (dead ones that wait for reuse are not counted).
    pub total: u32,
    /// Of these, how many could not be read although it was tried again.
    pub unread: u32,
    /// Those that are alike, the largest group first.
    pub groups: Vec<GoroutineGroup>,
    /// Groups that were left out because there were too many.
    pub groups_left_out: u32,
}

/// Goroutines with the same state and the same stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GoroutineGroup {
    /// How many.
    pub count: u32,
    /// Their ids, ascending; at most 32.
    pub goids: Vec<u64>,
    /// "running", "runnable", "syscall", "waiting", …
    pub state: String,
    /// Why they wait, in the words of the runtime ("chan receive", "sync.RWMutex.RLock", …).
    pub wait_reason: Option<String>,
    /// Since when the longest of them waits at least; only the garbage collector sets it, so most have none.
    pub waiting_since_ns: Option<u64>,
    /// Full Go names, innermost first; at most 100. Inlined functions do not appear.
    pub frames: Vec<String>,
    /// The stack could not be followed to its end, and why.
    pub broken: Option<String>,
    /// What their requests are about, for goroutines that serve the CRI: one entry for all with the same ids; at most
    /// 32. Goroutines that are in none were not asked, or had no id.
    #[serde(default)]
    pub subjects: Vec<Subject>,
}

/// Goroutines of a group on whose stacks the same ids lie.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// How many.
    pub count: u32,
    /// Their ids, ascending; at most 32.
    pub goids: Vec<u64>,
    /// What looks like ids of containers, the outermost function first; at most 32. Slots of a stack that are not in use
    /// keep old values, so an id can be one of an earlier request.
    pub ids: Vec<IdOnStack>,
}

/// An id of a container, or what looks like one: 64 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct IdOnStack {
    /// The function in whose frame it lies: index into the frames of the group.
    pub frame: u32,
    /// The digits, lower case.
    pub id: String,
}
