//! What one round of the census shall look at, and how long it may take.

use std::{path::PathBuf, time::Duration};

use crate::census::protocol::Runtime;

/// What to look at, and how long that may take.
#[derive(Clone, Debug)]
pub struct Request {
    /// Root of the tree that is looked at: `/`, except in tests.
    pub root: PathBuf,
    /// The process whose files, network and cgroups are the node's, when ours are those of a container.
    pub files_of: Option<u32>,
    /// The program that is run as the child: a plegtrace.
    pub program: PathBuf,
    /// The kubelet, when told.
    pub kubelet: Option<u32>,
    /// The runtime, when told.
    pub runtime: Option<u32>,
    /// Components that are not the node's: they and what they run are left out.
    pub foreign: Vec<u32>,
    /// The socket of the node's runtime, when the operator has named it: shims that call another one, also those that came
    /// since, are foreign too.
    pub shims_call: Option<PathBuf>,
    /// The node belongs to another user than root: else whatever other users call like a daemon of the node is foreign too.
    pub of_user: bool,
    /// The pid namespace of the node's own processes; `None`: that of process 1. All others have a share of the time, and
    /// of what may be late.
    pub namespace: Option<u32>,
    /// Processes whose goroutines are wanted, most important first.
    pub goroutines: Vec<u32>,
    /// Everybody is asked who is at the other ends of the kubelet's connections to its plugins.
    pub plugins: bool,
    /// The versions of the programs are wanted too.
    pub versions: bool,
    /// The runtime that is asked for names and states, if it does not look as if it could not answer.
    pub ask: Option<Runtime>,
    /// The TCP connections of runtimes and kubelets are wanted too.
    pub connections: bool,
    /// Whether the kernel still takes a seccomp filter is tried too.
    pub tries_seccomp: bool,
    /// How long it may take.
    pub limits: Limits,
}

impl Request {
    /// Everything on this machine, as far as `program` gets within the usual limits.
    #[must_use]
    pub fn new(program: PathBuf) -> Self {
        Self {
            root: PathBuf::from("/"),
            files_of: None,
            program,
            kubelet: None,
            runtime: None,
            foreign: Vec::new(),
            shims_call: None,
            of_user: false,
            namespace: None,
            goroutines: Vec::new(),
            plugins: false,
            versions: false,
            ask: None,
            connections: false,
            tries_seccomp: false,
            limits: Limits::default(),
        }
    }
}

/// Time and tries of one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// For all questions to one process.
    pub target: Duration,
    /// For all processes.
    pub round: Duration,
    /// For the goroutines of one process.
    pub goroutines: Duration,
    /// For all goroutines; beside `round`.
    pub all_goroutines: Duration,
    /// For what the runtime says.
    pub runtime: Duration,
    /// Children that may be started again because one was late.
    pub restarts: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            target: Duration::from_millis(300),
            round: Duration::from_secs(2),
            goroutines: Duration::from_secs(1),
            all_goroutines: Duration::from_secs(3),
            runtime: Duration::from_millis(1500),
            restarts: 8,
        }
    }
}
