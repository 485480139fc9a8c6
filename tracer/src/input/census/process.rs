//! One process as the census found it: its command, and where its threads wait.

use serde::{Deserialize, Serialize};

use super::{ContainerFact, FdFact, Holder, PipeFact, SocketFact};
use crate::input::Component;

/// Two starts with the same number of clock ticks are told within this, which is half a tick.
const SAME_START_NS: u64 = 5_000_000;

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
    pub parked: Vec<ParkedThreads>,
    /// Its unix stream sockets that listen or hold unread bytes; at most 64.
    pub sockets: Vec<SocketFact>,
    /// Pipes and FIFOs it reads of which somebody outside of it holds the writing end; at most 64. Only for shims.
    pub pipes: Vec<PipeFact>,
    /// Container and pod it belongs to, or works for.
    pub container: Option<ContainerFact>,
    /// A person started it, in a program of this name: it is no part of the node. Hostile text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_hand: Option<String>,
    /// It has left the session of its parent, as daemons do: nobody waits for its end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub detached: bool,
    /// Directory of its cgroup with the controller of processors; of daemons of the node alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_group: Option<String>,
    /// The cgroup over it that has as many tasks as it may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_limit: Option<TaskLimit>,
    /// The block device with the file that one of its threads waits to have written, of runtimes alone; or of whoever unmounts an
    /// overlay, the one with the upper directories of the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskFact>,
}

impl ProcessFact {
    /// Is it the same process at two looks? Their pids are equal, and they began at the same time as well as two looks
    /// can tell: a start is counted from the boot, and how far that clock is ahead is read anew each time.
    #[must_use]
    pub fn is_same_process(&self, other: &Self) -> bool {
        let same_start = match (self.started_ns, other.started_ns) {
            (Some(one), Some(other)) => one.abs_diff(other) < SAME_START_NS,
            (one, other) => one == other,
        };
        self.pid == other.pid && same_start
    }
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
    /// A command of another runtime that is called as runc is.
    Oci {
        /// Name of the program: "youki", "sysbox-runc", "runsc".
        program: String,
        /// As for runc.
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

/// What a block device has done since it is there (`/proc/diskstats`, Documentation/admin-guide/iostats.rst).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskFact {
    /// Its name, such as "vda1".
    pub name: String,
    /// Reads, writes, discards and flushes that it has completed.
    pub completed: u64,
    /// How long all of them took together, milliseconds.
    pub took_ms: u64,
    /// What it is doing now.
    pub in_flight: u64,
    /// Bytes that were written.
    #[serde(default)]
    pub written: u64,
    /// What the process may write to it, if that is limited.
    pub limit: Option<WriteLimit>,
}

/// What a cgroup lets through to a block device in a second, at least one of the two.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteLimit {
    /// Its directory. Hostile text.
    pub path: String,
    /// Writes.
    pub writes: Option<u64>,
    /// Bytes written.
    pub bytes: Option<u64>,
}

/// A cgroup that has as many tasks (processes and threads) as it may have: whatever in it wants to start another gets EAGAIN.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskLimit {
    /// Its directory. Hostile text.
    pub path: String,
    /// Tasks in it, and in those below it (`pids.current`).
    pub tasks: u64,
    /// How many it may have (`pids.max`).
    pub limit: u64,
    /// How many were refused since it was made, in it or on the way down to the process (`pids.events`).
    pub refused: u64,
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

/// The beginnings of kernel functions that wait for the server of each kind of file system.
const SERVED: [(&str, &[&str]); 5] = [
    ("FUSE", &["request_wait_answer", "fuse_"]),
    ("NFS", &["nfs", "rpc_wait_bit", "rpc_execute"]),
    ("CIFS", &["cifs_", "smb2_", "wait_for_response"]),
    ("Ceph", &["ceph_"]),
    ("9p", &["p9_", "v9fs_"]),
];

/// For the server of which kind of file system this function of the kernel waits.
#[must_use]
pub fn served_by(function: &str) -> Option<&'static str> {
    let is_of = |starts: &[&str]| starts.iter().any(|start| function.starts_with(start));
    SERVED.iter().find(|(_, starts)| is_of(starts)).map(|(kind, _)| *kind)
}

/// Threads that wait alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParkedThreads {
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

impl ParkedThreads {
    /// They wait for the answer of a program that serves a FUSE file system.
    #[must_use]
    pub fn waits_for_fuse(&self) -> bool {
        self.is_in("request_wait_answer")
    }

    /// They wait until a program permits their access to a file.
    #[must_use]
    pub fn waits_for_permission(&self) -> bool {
        self.is_in("fanotify_handle_event") || self.is_in("fanotify_get_response")
    }

    /// What kind of file system they wait for, when it is one that another program or machine serves.
    #[must_use]
    pub fn waits_for_server(&self) -> Option<&'static str> {
        SERVED
            .iter()
            .map(|(kind, _)| *kind)
            .find(|kind| self.kernel_stack.iter().any(|function| served_by(function) == Some(kind)))
    }

    /// They make or leave a network namespace, which is done one after the other.
    #[must_use]
    pub fn waits_for_network_namespaces(&self) -> bool {
        self.is_in("copy_net_ns") && !self.waits_for_rcu()
    }

    /// They wait until every CPU has once left what it may read (kernel/rcu/update.c, `__wait_rcu_gp`).
    #[must_use]
    pub fn waits_for_rcu(&self) -> bool {
        let waits = ["synchronize_rcu", "synchronize_srcu", "__wait_rcu_gp", "rcu_barrier"];
        self.kernel_stack.iter().any(|name| waits.iter().any(|wait| name.starts_with(wait)))
    }

    /// They wait for room in the queue of the audit daemon (kernel/audit.c, `audit_log_start`).
    #[must_use]
    pub fn waits_for_audit(&self) -> bool {
        self.is_in("audit_log_start")
    }

    /// They wait to be allowed to write to a file system that is frozen (fs/super.c, `freeze_super`): in `__sb_start_write`, or where
    /// the kernel has that inline, for the same semaphore below a function that writes.
    #[must_use]
    pub fn waits_for_thaw(&self) -> bool {
        let writes = [
            "mnt_want_write",
            "mnt_want_write_file",
            "vfs_write",
            "vfs_writev",
            "do_iter_write",
            "vfs_iter_write",
        ];
        let is_write = |name: &String| writes.contains(&name.as_str()) || name.ends_with("_page_mkwrite");
        // Who wants to write to cgroup.procs waits for readers of another such semaphore.
        let reads = self.is_in("percpu_rwsem_wait") && !self.is_in("percpu_down_write");
        self.is_in("__sb_start_write") || reads && self.kernel_stack.iter().any(is_write)
    }

    /// They unmount an overlay, and wait until the whole file system with its upper directory is on the disk (fs/overlayfs/super.c,
    /// `ovl_sync_fs`).
    #[must_use]
    pub fn flushes_overlay(&self) -> bool {
        let place = |function: &str| self.kernel_stack.iter().position(|name| name == function);
        // Further out it is the overlay that is synced, further in what lies below it.
        let is_below = place("sync_filesystem").zip(place("ovl_sync_fs")).is_some_and(|(sync, of)| sync < of);
        self.unmounts() && is_below && self.waits_for_server().is_none() && !self.waits_for_thaw()
    }

    /// They unmount a file system, whatever that waits for, and wherever the kernel says that they are.
    #[must_use]
    pub fn unmounts(&self) -> bool {
        self.syscall.as_ref().and_then(|call| call.name.as_deref()) == Some("umount2")
    }

    /// They wait inside the kernel for what neither they nor their program can hasten: a server, an agent, the disk, or the kernel
    /// itself.
    #[must_use]
    pub fn waits_in_kernel(&self) -> bool {
        self.waits_for_server().is_some()
            || self.waits_for_permission()
            || self.waits_for_network_namespaces()
            || self.waits_for_rcu()
            || self.waits_for_audit()
            || self.waits_for_thaw()
            || self.unmounts()
    }

    /// They wait inside the kernel for a program that answers for it: neither they nor a signal can end that.
    #[must_use]
    pub fn waits_for_answerer(&self) -> bool {
        self.waits_for_fuse() || self.waits_for_permission()
    }

    /// They execute a program, and wait for the end of the other threads of their process.
    #[must_use]
    pub fn waits_for_siblings(&self) -> bool {
        ["de_thread", "flush_old_exec", "begin_new_exec"].iter().any(|name| self.is_in(name))
    }

    /// They are frozen by a cgroup of version 1: before Linux 6.1 in a function of its own, since then in state D wherever
    /// they slept, also where that is no state of such a sleep.
    #[must_use]
    pub fn are_frozen(&self) -> bool {
        let sleeps =
            ["futex_wait", "do_epoll_wait", "ep_poll", "hrtimer_nanosleep", "pipe_read", "pipe_write"];
        self.is_in("__refrigerator") || self.state == 'D' && sleeps.iter().any(|name| self.is_in(name))
    }

    fn is_in(&self, function: &str) -> bool {
        self.kernel_stack.iter().any(|name| name == function)
    }
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
    /// Who took the file lock that it waits for; its `fd` is -1, and it has no name when it is not seen to hold it.
    #[serde(default)]
    pub lock_holder: Option<Holder>,
    /// The sockets that it waits for, when it is one of epoll: any but those at which the process listens.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub watched: Vec<FdFact>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, started_ns: Option<u64>) -> ProcessFact {
        ProcessFact {
            at_ns: 0,
            pid,
            parent: 1,
            started_ns,
            component: Component::Shim,
            comm: String::new(),
            command: None,
            state: 'S',
            threads: 1,
            stopped: 0,
            freezer: None,
            parked: Vec::new(),
            sockets: Vec::new(),
            pipes: Vec::new(),
            container: None,
            by_hand: None,
            detached: false,
            cpu_group: None,
            task_limit: None,
            disk: None,
        }
    }

    /// On a machine that slept once, two looks tell starts that differ by how long reading two clocks takes.
    #[test]
    fn the_same_process_at_two_looks() {
        let first = process(7, Some(1_000_000_000));
        assert!(first.is_same_process(&process(7, Some(1_000_000_040))));
        assert!(first.is_same_process(&process(7, Some(999_999_980))));
        assert!(!first.is_same_process(&process(7, Some(1_010_000_000))), "the number is used again");
        assert!(!first.is_same_process(&process(8, Some(1_000_000_000))));
        assert!(!first.is_same_process(&process(7, None)));
    }
}
