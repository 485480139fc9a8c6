//! [`DockerLock`]: who waits for the lock of a container in dockerd, and who has one, by its goroutines. For requests that are
//! older than plegtrace: those on sockets are not seen.

use crate::{
    correlate::{Age, Request, WaitsFor, thresholds::CALL_OPEN_NS},
    cri::Method,
    diagnose::{Evidence, Scene, Source},
    input::{Component, GoroutineGroup},
    words,
};

/// Functions that lock a container for no longer than it takes to copy a structure (moby 20.10, `daemon/inspect.go`).
const READS: &str = "daemon.(*Daemon).ContainerInspect";
/// Functions that keep the lock while containerd works (`daemon/kill.go`, `start.go`, `exec.go`).
const HOLDS: [&str; 4] = ["killWithSignal", "containerStart", "ContainerExecStart", "containerPause"];
/// A call to containerd is under way.
const ASKS: &str = "containerd.(*";
const LOCK: &str = "sync.(*Mutex).lockSlow";

/// A lock for which the relist waits.
#[derive(Debug)]
pub(super) struct DockerLock<'a> {
    pub(super) dockerd: u32,
    /// The relist, in the status of a container or sandbox.
    pub(super) relist: &'a Request,
    /// For how long: by its goroutine, or by the last list of the kubelet, after which it came to the status.
    pub(super) since: Age,
    /// Goroutines that wait to inspect a container.
    waiting: Vec<&'a GoroutineGroup>,
    /// A goroutine that has the lock of one, and waits for containerd.
    holder: Option<&'a GoroutineGroup>,
}

impl<'a> DockerLock<'a> {
    /// `None` when nobody waits for such a lock, or not for long.
    pub(super) fn of(scene: &Scene<'a>) -> Option<Self> {
        let relist =
            scene.requests(Component::Kubelet).find(|request| request.is_relist() && is_status(request))?;
        let mut daemons = scene.snapshot.census.goroutines.iter();
        let dockerd = daemons.find(|fact| fact.component == Component::Dockerd)?;
        let has = |group: &GoroutineGroup, part: &str| group.frames.iter().any(|frame| frame.contains(part));
        let waits = |group: &&GoroutineGroup| has(group, READS) && has(group, LOCK);
        let holds = |group: &&GoroutineGroup| {
            let holds = |frame: &String| {
                frame.split_once("daemon.(*Daemon).").is_some_and(|(_, name)| HOLDS.contains(&name))
            };
            group.frames.iter().any(holds) && has(group, ASKS) && !has(group, LOCK)
        };
        let waiting: Vec<&GoroutineGroup> = dockerd.groups.iter().filter(waits).collect();
        let holder = dockerd.groups.iter().find(holds);
        let listed = scene.snapshot.last_list.age(scene.snapshot.now);
        let since = listed.into_iter().chain([relist.since]).max_by_key(|age| age.ns)?;
        // One look shows who waits, not for how long: a container that starts holds its lock for a moment, too.
        let is_old = since.ns > CALL_OPEN_NS && !waiting.is_empty();
        is_old.then_some(Self { dockerd: dockerd.pid, relist, since, waiting, holder })
    }

    /// Is it known who has the lock?
    pub(super) fn is_held(&self) -> bool {
        self.holder.is_some()
    }

    /// Who waits, and who does not let go.
    pub(super) fn evidence(&self) -> Vec<Evidence> {
        let line = |what: &str, group: &GoroutineGroup| {
            let goroutines = words::human::plural(u64::from(group.count), "goroutine");
            let stack = words::go_stack(&group.frames, false);
            Evidence::new(
                Source::Goroutines,
                format!("{goroutines} of dockerd {} {what}: {stack}", self.dockerd),
            )
        };
        let relist = Evidence::new(Source::Goroutines, words::requests(self.relist));
        let waiting = self.waiting.iter().take(2).map(|group| line("at the lock of a container", group));
        let holder = self.holder.map(|group| line("with the lock of a container", group));
        [relist].into_iter().chain(waiting).chain(holder).collect()
    }
}

/// Does it wait for the status of one container or sandbox?
fn is_status(request: &Request) -> bool {
    let WaitsFor::Runtime { operation: Some(operation) } = &request.waits_for else { return false };
    matches!(Method::from_name(operation), Some(Method::ContainerStatus | Method::PodSandboxStatus))
}
