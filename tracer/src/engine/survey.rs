//! Which processes matter on this node, as facts and as programs to probe.

use std::{
    collections::BTreeSet,
    path::Path,
    time::{Duration, Instant},
};

use plegtrace_common::role::Role;

use super::rounds::Depth;
use crate::{
    census,
    cli::Settings,
    clock,
    input::{Component, ListeningFact, Presence, TargetFact},
    preflight::unproved,
    probes::{Probes, Wanted},
    target::{
        DiscoverError, Node, Overrides, Process, Recognised, discover, discover_with, elsewhere, root_of,
    },
};

/// So old a survey still serves a calm round of the census: whoever came or went since is news of its own.
const FRESH: Duration = Duration::from_secs(150);

/// The first process of the node.
const FIRST: u32 = 1;

/// The node's processes at one moment.
pub(crate) struct Survey {
    pub(crate) node: Node,
    taken: Instant,
    taken_ns: u64,
}

impl Survey {
    /// Looks at every process once; `recognised` is what is known of some, `fruitless` are sockets whose holders are not looked for.
    pub(super) fn take_knowing(
        settings: &Settings,
        recognised: &[Recognised],
        fruitless: &BTreeSet<u64>,
    ) -> Result<Self, DiscoverError> {
        // Before the look: what ended since may be in it.
        let taken_ns = clock::monotonic_ns();
        let overrides = Overrides {
            recognised: recognised.to_vec(),
            fruitless: fruitless.clone(),
            kubelet: settings.kubelet_pid,
            runtime: settings.runtime_pid,
            runtime_endpoint: settings.runtime_endpoint.clone(),
        };
        let root = &root_of(elsewhere([FIRST]));
        let Some(request) = census_request(settings) else {
            return Ok(Self { node: discover(root, &overrides)?, taken: Instant::now(), taken_ns });
        };
        // A process that is stuck must not hold us up: its command line is read by a child that can be killed.
        let mut ask = |pids: &[u32]| {
            let (lines, unanswered) = census::command_lines(&request, pids);
            for one in unanswered {
                tracing::warn!(
                    "{} of process {} ({}): {}",
                    one.what,
                    one.pid,
                    one.comm.escape_debug(),
                    one.why
                );
            }
            lines
        };
        Ok(Self { node: discover_with(root, &overrides, &mut ask)?, taken: Instant::now(), taken_ns })
    }

    /// Is it recent enough for a round that only looks whether all is still calm?
    pub(super) fn is_fresh(&self) -> bool {
        self.taken.elapsed() < FRESH
    }

    pub(super) fn is_older(&self, than: Duration) -> bool {
        self.taken.elapsed() > than
    }

    /// Kubelet and runtime: the programs that are probed.
    pub(crate) fn wanted(&self) -> Vec<Wanted> {
        let chosen = self.node.kubelet().into_iter().chain(self.node.runtime());
        chosen.filter_map(wanted).collect()
    }

    /// Everything that is watched: kubelet, runtime, what is behind that, and shims.
    pub(crate) fn watched(&self) -> Vec<(u32, Component)> {
        self.ours().filter_map(|p| Some((p.pid, Component::of_role(p.role)?))).collect()
    }

    /// Of these, kubelet, runtime and what is behind that.
    pub(super) fn daemons(&self) -> impl Iterator<Item = u32> {
        let daemons = self.ours().filter(|process| process.role != Role::Shim);
        daemons.map(|process| process.pid)
    }

    fn ours(&self) -> impl Iterator<Item = &Process> {
        self.node.kubelet().into_iter().chain(self.node.runtime_and_behind()).chain(self.node.shims())
    }

    /// What the census shall look at: everything, and the goroutines of runtime and kubelet. `None` when there is no
    /// program to take it with.
    /// `first`: versions are wanted; `asks`: the runtime may be asked as well.
    pub(crate) fn census(
        &self,
        settings: &Settings,
        depth: Depth,
        first: bool,
        asks: bool,
    ) -> Option<census::Request> {
        // No call shows whether the kubelet's loops go on, so each round reads them.
        let runtime = self.node.runtime().filter(|_| depth == Depth::Goroutines);
        let goroutines = runtime.into_iter().chain(self.node.kubelet()).map(|process| process.pid).collect();
        let request = self.request(settings)?;
        let ask = self.node.runtime().filter(|_| asks).and_then(|runtime| self.cri(runtime));
        let foreign = [self.foreign(settings), request.foreign.clone()].concat();
        let runtimes = self.node.runtime_and_behind();
        let shims_call = runtimes.last().filter(|_| !settings.follows_names());
        let shims_call = shims_call.and_then(|runtime| runtime.facts.serves.clone());
        Some(census::Request { goroutines, versions: first, foreign, shims_call, ask, ..request })
    }

    /// How processes of this node are asked; `None` when there is no program to ask with.
    pub(crate) fn request(&self, settings: &Settings) -> Option<census::Request> {
        let (namespace, files_of) = (self.node.pid_namespace(), self.files_of());
        let of_user = self.node.is_of_user();
        let mut request = census::Request { namespace, files_of, of_user, ..census_request(settings)? };
        request.kubelet = request.kubelet.or_else(|| self.unnamed(Role::Kubelet));
        request.runtime = request.runtime.or_else(|| self.unnamed(Role::Containerd));
        // What bears a name and is no component.
        let others = self.node.recognised.iter().filter(|known| known.role.is_none());
        request.foreign.extend(others.map(|known| known.pid));
        Some(request)
    }

    /// The process that has this role whatever it is called.
    fn unnamed(&self, role: Role) -> Option<u32> {
        let known = self.node.recognised.iter().filter(|known| known.role == Some(role));
        let lives = |pid: &u32| self.node.with_role(role).any(|process| process.pid == *pid);
        known.map(|known| known.pid).find(lives)
    }

    /// Where somebody listens as kubelets and runtimes do; `None` when both are known.
    pub(super) fn listening(&self) -> Option<ListeningFact> {
        Some(ListeningFact { at_ns: self.taken_ns, ..self.node.listening.clone()? })
    }

    /// The process through which the node's files are seen, when we run in a container.
    pub(crate) fn files_of(&self) -> Option<u32> {
        let daemons = self.node.runtime().into_iter().chain(self.node.kubelet());
        elsewhere([FIRST].into_iter().chain(daemons.map(|process| process.pid)))
    }

    /// The runtime whose runc is looked for, and how it is asked where. `None` when there is no program to ask with.
    pub(crate) fn runtime_to_ask(&self, settings: &Settings) -> Option<(census::Request, u32)> {
        Some((self.request(settings)?, self.node.runtime()?.pid))
    }

    /// Where the runtime serves the CRI: where the kubelet calls it, else where it says itself.
    fn cri(&self, runtime: &Process) -> Option<census::Runtime> {
        let called = self.node.endpoint().map(Path::to_owned);
        let socket = called.or_else(|| runtime.facts.serves.clone())?;
        // Docker serves it only by way of others.
        (runtime.role != Role::Dockerd).then_some(census::Runtime { pid: runtime.pid, socket })
    }

    /// What is there of the node although no process is. Where nobody listens on the socket that the kubelet calls, its
    /// runtime is missing, and no other one.
    pub(crate) fn presences(&self) -> Vec<Presence> {
        let unserved = self.node.unserved().filter(|_| self.node.runtime().is_none());
        let runtime = |presence: &&Presence| unserved.is_none() || presence.component == Component::Kubelet;
        let mut all: Vec<Presence> = self.node.presence.iter().filter(runtime).cloned().collect();
        all.extend(unserved.clone());
        all
    }

    /// Components that are not meant: those inside of containers, where the node's own are outside. All others are,
    /// unless the operator named some.
    fn foreign(&self, settings: &Settings) -> Vec<u32> {
        if settings.follows_names() {
            return self.node.nested().map(|process| process.pid).collect();
        }
        let ours: Vec<u32> = self.watched().into_iter().map(|(pid, _)| pid).collect();
        let server = |process: &&Process| {
            let role = process.role;
            role == Role::Kubelet || role == Role::Shim || role.is_runtime()
        };
        let others = self.node.processes.iter().filter(server).map(|process| process.pid);
        others.filter(|pid| !ours.contains(pid)).collect()
    }

    /// Why the choice of a runtime is open, when it is.
    pub(crate) fn ambiguous_runtime(&self) -> Option<String> {
        if !self.node.is_ambiguous() {
            return None;
        }
        let list: Vec<String> =
            self.node.runtimes().map(|p| format!("{} (pid {})", p.role.name(), p.pid)).collect();
        Some(format!(
            "cannot tell which of {} serves the kubelet; choose one with --runtime-pid or --runtime-endpoint",
            list.join(", ")
        ))
    }

    /// The chosen processes as facts, with what was read from their files.
    pub(crate) fn targets(&self, probes: &Probes, boottime_offset_ns: i64) -> Vec<TargetFact> {
        self.ours().filter_map(|process| target(process, probes, boottime_offset_ns)).collect()
    }
}

/// How the census is asked; `None` when there is no program to take it with.
fn census_request(settings: &Settings) -> Option<census::Request> {
    let mut request = census::Request::new(settings.census_program.clone()?);
    (request.kubelet, request.runtime) = (settings.kubelet_pid, settings.runtime_pid);
    Some(request)
}

fn wanted(process: &Process) -> Option<Wanted> {
    Some(Wanted { component: Component::of_role(process.role)?, pid: process.pid, exe: exe(process) })
}

fn exe(process: &Process) -> String {
    process.exe.as_ref().map_or_else(|| process.comm.clone(), |path| path.display().to_string())
}

fn target(process: &Process, probes: &Probes, boottime_offset_ns: i64) -> Option<TargetFact> {
    let component = Component::of_role(process.role)?;
    let inspected = probes.of_pid(component, process.pid);
    let socket = process.facts.serves.as_ref().or(process.facts.calls.as_ref());
    let started = i128::from(process.started_ns) - i128::from(boottime_offset_ns);
    Some(TargetFact {
        component,
        pid: process.pid,
        started_ns: u64::try_from(started.max(0)).ok(),
        exe: exe(process),
        version: inspected.and_then(|i| i.version.clone()),
        go_version: inspected.map(|i| i.go_version.clone()),
        socket: socket.map(|path| path.display().to_string()),
        unproved: unproved(component, &exe(process), std::env::consts::ARCH).is_some(),
    })
}

/// Host name and kernel release, as `uname` says.
#[must_use]
pub fn node_and_kernel() -> (String, String) {
    let names = rustix::system::uname();
    (names.nodename().to_string_lossy().into_owned(), names.release().to_string_lossy().into_owned())
}
