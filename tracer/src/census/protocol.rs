//! What parent and child of the census say to each other: one JSON document per line, orders on the child's stdin,
//! answers on its stdout. An order is answered from [`Answer::Hello`] to [`Answer::Done`] before the next one is read.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::input::{
    Answerers, Command, Component, ContainerFact, DiskFact, Downloads, EndedInit, Freezer, GoroutinesFact,
    KubeletConnections, Liveness, ParkedThreads, PluginFact, Pressure, ProcessFact, RuntimeSays, Scarce,
    TaskLimit, Unanswered, Unkillable, Unwritten, VersionFact,
};

/// Version of both; parent and child are the same file, unless somebody points the parent elsewhere.
pub(super) const HELLO: &str = "plegtrace census 2";
/// What a runtime is asked for: in the list of those who did not answer.
pub const RUNTIME: &str = "pods and containers by the CRI";
/// What the stacks of goroutines are called: in the same list.
pub const GOROUTINES: &str = "goroutines";
/// What those are called that live in another pid namespace: in the list of those who did not answer.
pub(super) const OTHERS: &str = "processes of other pid namespaces";
/// Longest line that the parent takes.
pub(super) const MAX_LINE: usize = 4 << 20;
/// Most bytes that the parent takes for one order.
pub(super) const MAX_STREAM: usize = 256 << 20;

/// What the child shall do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Order {
    /// Root of the tree that is looked at: `/`, except in tests.
    pub(super) root: PathBuf,
    /// The process whose files are the node's, when ours are those of a container.
    pub(super) files_of: Option<u32>,
    /// The parent; whoever has another one is an orphan and ends.
    pub(super) parent: u32,
    /// The kubelet and the runtime, when told.
    pub(super) kubelet: Option<u32>,
    pub(super) runtime: Option<u32>,
    /// Processes that are none of ours to report: plegtrace itself and its helpers.
    pub(super) skip: Vec<u32>,
    /// Components that are not the node's: they and what they run are left out.
    pub(super) foreign: Vec<u32>,
    /// Shims that call another socket are foreign too.
    pub(super) shims_call: Option<PathBuf>,
    /// Daemons of any user are looked at, not only root's.
    #[serde(default)]
    pub(super) of_user: bool,
    /// The TCP connections of runtimes and kubelets are wanted too.
    #[serde(default)]
    pub(super) connections: bool,
    /// Processes of which an earlier child of this round told everything.
    pub(super) finished: Vec<u32>,
    /// The pid namespace of the node's own processes; that of process 1 when not known.
    pub(super) namespace: Option<u32>,
    /// How long all others may be asked, milliseconds.
    pub(super) others_ms: u64,
    /// Questions that an earlier child did not come back from.
    pub(super) late: Vec<(u32, Step)>,
    /// Everybody is asked who is at the other ends of the kubelet's connections to its plugins.
    #[serde(default)]
    pub(super) plugins: bool,
    pub(super) what: Job,
}

/// What is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Job {
    /// The processes of interest.
    Processes,
    /// Goroutines of these.
    Goroutines(Vec<(u32, Component)>),
    /// Versions of the programs that these run.
    Versions(Vec<(u32, Component)>),
    /// Command lines of these.
    Arguments(Vec<u32>),
    /// What a runtime says of its containers.
    Runtime(Runtime),
    /// Where this process looks for programs.
    SearchPath(u32),
    /// Are the goroutines of these calls still there?
    Calls(Vec<Asked>),
}

/// One question: does the goroutine `goid`, once at `g_addr` in process `tgid`, still exist?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Asked {
    /// Process.
    pub tgid: u32,
    /// Goroutine id.
    pub goid: u64,
    /// Address of its `runtime.g`.
    pub g_addr: u64,
    /// Offset of `goid` in it.
    pub goid_offset: u32,
}

/// A runtime that can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Runtime {
    /// Its process.
    pub pid: u32,
    /// Its CRI socket, as it sees the path.
    pub socket: PathBuf,
}

impl Job {
    /// Is this for a child of its own, which ends with it? To run programs and to speak to the runtime takes more than a
    /// reader may do.
    pub(super) fn is_for_one(&self) -> bool {
        matches!(self, Self::Versions(_) | Self::Runtime(_))
    }
}

impl Order {
    /// Did an earlier child stay away when it asked this?
    pub(super) fn was_late(&self, pid: u32, step: Step) -> bool {
        self.late.iter().any(|(late, what)| *what == step && (*late == pid || step.is_global()))
    }
}

/// A question that can block, in the order in which they are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Step {
    /// The list of processes.
    List,
    /// Which program a process runs: before Linux 4.1 the link waits for the memory lock.
    Program,
    /// Which descriptors are FIFOs.
    Files,
    /// All unix sockets of the node.
    Sockets,
    /// Bundles on disk.
    Bundles,
    /// System calls and kernel stacks: they wait for an `execve` that is under way (`exec_update_lock`, before Linux
    /// 5.11 `cred_guard_mutex`).
    Stacks,
    /// The cgroup and its freezer: behind `cgroup_mutex` before Linux 6.7.
    Cgroup,
    /// The command line: a read of its memory, which waits for its memory lock, and before Linux 4.17 also for the
    /// filesystem of whatever it mapped there (CVE-2018-1120).
    Arguments,
    /// The environment: the same.
    Environment,
    /// The path that a system call was given: any memory of it, also that of a file whose filesystem does not answer.
    Path,
    /// Names of functions in user space: its mappings, and the files behind them.
    Names,
    /// Goroutines: its memory.
    Goroutines,
    /// The version of its program, by running that.
    Version,
    /// Lists of a runtime: it may not answer.
    Runtime,
    /// The goroutine of a call: a few words of its memory.
    Call,
    /// TCP connections of the node.
    Connections,
}

impl Step {
    /// In words, for the report.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::List => "list of processes",
            Self::Program => "program",
            Self::Files => "open files",
            Self::Sockets => "unix sockets",
            Self::Bundles => "bundles",
            Self::Stacks => "system calls and kernel stacks",
            Self::Cgroup => "cgroup",
            Self::Arguments => "command line",
            Self::Environment => "environment",
            Self::Path => "path argument",
            Self::Names => "function names",
            Self::Goroutines => GOROUTINES,
            Self::Version => "version",
            Self::Runtime => RUNTIME,
            Self::Call => "goroutine of a call",
            Self::Connections => "TCP connections",
        }
    }

    /// Once late, it is not asked again of anybody.
    pub(super) fn is_global(self) -> bool {
        matches!(self, Self::List | Self::Sockets | Self::Bundles | Self::Cgroup | Self::Connections)
    }
}

/// What the child tells.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Answer {
    /// First line of every order.
    Hello(String),
    /// The child could not give something up that it does not need.
    Unconfined { why: String },
    /// The next read can block.
    Asking {
        pid: u32,
        comm: String,
        step: Step,
        /// The process is in another pid namespace than the node's own: most likely in a container.
        #[serde(default)]
        elsewhere: bool,
    },
    /// The processes of interest follow at once; so many were too many.
    Found { left_out: u32 },
    /// What is known without asking the process itself.
    Process(Box<ProcessFact>),
    /// Where its threads wait.
    Threads { pid: u32, threads: u32, stopped: u32, parked: Vec<ParkedThreads> },
    /// What it was told to do.
    Command { pid: u32, command: Command },
    /// Its cgroup is frozen.
    Freezer { pid: u32, freezer: Freezer },
    /// Directory of its cgroup with the controller of processors.
    CpuGroup { pid: u32, dir: String },
    /// A cgroup over it has as many tasks as it may have.
    TaskLimit { pid: u32, limit: TaskLimit },
    /// The block device that a thread of it waits for.
    Disk { pid: u32, disk: DiskFact },
    /// Whose it is.
    Container { pid: u32, container: ContainerFact },
    /// It has ended, and its number may belong to somebody else: all that was told of it is void.
    Gone { pid: u32 },
    /// A question was answered with an error.
    Refused(Unanswered),
    /// Everything of it was told.
    Finished { pid: u32 },
    /// How much is waited for processors and disks.
    Pressure(Pressure),
    /// What the disks do not have yet.
    Unwritten(Unwritten),
    /// Containers whose bundles were found, and those of them whose first process has ended.
    Containers { containers: Vec<ContainerFact>, ended: Vec<EndedInit> },
    /// A process of a container that SIGKILL does not end.
    Unkillable(Box<Unkillable>),
    /// Programs that answer for the kernel.
    Answerers(Answerers),
    /// What the node has little or nothing left of.
    Scarce(Scarce),
    /// What a runtime has received over TCP.
    Downloads(Downloads),
    /// What becomes of what a kubelet sends over TCP.
    KubeletConnections(KubeletConnections),
    /// Connections of the kubelet to its plugins.
    Plugins(Vec<PluginFact>),
    /// Goroutines.
    Goroutines(GoroutinesFact),
    /// The version of the program of a process, when it tells.
    Version { pid: u32, fact: Option<VersionFact> },
    /// What the runtime says.
    Runtime(RuntimeSays),
    /// A command line.
    Arguments { pid: u32, arguments: Vec<String> },
    /// Its `PATH`: the only variable of an environment that leaves the child as it is, and it does not get further than
    /// the lookup of a program.
    SearchPath { path: String },
    /// Is the goroutine of a call still there?
    Call { of: Asked, is: Liveness },
    /// Last line of every order.
    Done,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nobody is asked twice what it did not answer; what hangs for the whole node is asked of nobody again.
    #[test]
    fn late_questions() {
        let order = Order {
            root: PathBuf::from("/"),
            files_of: None,
            parent: 1,
            kubelet: None,
            runtime: None,
            skip: Vec::new(),
            foreign: Vec::new(),
            shims_call: None,
            of_user: false,
            connections: false,
            finished: Vec::new(),
            namespace: None,
            others_ms: 0,
            late: vec![(7, Step::Arguments), (8, Step::Cgroup)],
            plugins: false,
            what: Job::Processes,
        };
        let line = serde_json::to_string(&order).unwrap();
        assert_eq!(serde_json::from_str::<Order>(&line).unwrap(), order);
        let late = [(7, Step::Arguments), (7, Step::Cgroup), (9, Step::Cgroup)];
        assert!(late.iter().all(|(pid, step)| order.was_late(*pid, *step)));
        let fine = [(8, Step::Arguments), (7, Step::Environment), (7, Step::Stacks)];
        assert!(!fine.iter().any(|(pid, step)| order.was_late(*pid, *step)));
    }
}
