//! Goroutine stacks → [`Request`]s: a goroutine whose stack contains the handler of a CRI method *is* an open call, and
//! the functions further in say what it waits for and what it holds meanwhile.

use super::{
    frames::is_at_lock,
    nri, startup,
    subject::{Known, Part, parts},
};
use crate::{
    correlate::age::Age,
    cri::Method,
    decode::MonoNs,
    input::{Component, ContainerFact, GoroutineGroup, GoroutinesFact},
};

/// [`Request::operation`] of a relist.
const RELIST: &str = "relist";
/// Of a relist of one pod.
const POD_RELIST: &str = "relist of one pod";

/// Requests of one kind that wait alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Process.
    pub pid: u32,
    /// What it is to the node.
    pub component: Component,
    /// CRI method of a handler; "relist" or "relist of one pod" for the kubelet's; "startup" of a containerd that loads the shims of an earlier one.
    pub operation: String,
    /// How many.
    pub count: u32,
    /// Their goroutines; at most 32.
    pub goids: Vec<u64>,
    /// Age of the oldest of them.
    pub since: Age,
    /// The last look but one found at least one of them at it already.
    pub stays: bool,
    /// For so long at least every look found one of them at the same place before or after what it was asked for: at a lock, or at
    /// a shim that answers at once. No command, image or grace period makes that last. Nanoseconds.
    pub held_ns: u64,
    /// The runtime's word for why they wait.
    pub wait_reason: Option<String>,
    /// What they wait for, as far as the stack tells.
    pub waits_for: WaitsFor,
    /// What nobody else gets as long as they wait, taken last first.
    pub holds: Vec<Held>,
    /// What they are about: one container or sandbox; several when it is not certain which; none when nothing is known.
    pub containers: Vec<ContainerFact>,
    /// What they are about is certain. Of a waiter: that it waits for exactly this thing is certain, too; otherwise it
    /// may wait for another one of its kind.
    pub target_known: bool,
    /// Id of the container whose status they wait to lock.
    pub lock_of: Option<String>,
    /// Full Go names, innermost first.
    pub frames: Vec<String>,
}

impl Request {
    /// CRI method of a handler, when it is one that is known.
    #[must_use]
    pub fn method(&self) -> Option<Method> {
        Method::from_name(&self.operation)
    }

    /// Is it the kubelet's relist, of all pods or of one? Both hold up the next list.
    #[must_use]
    pub fn is_relist(&self) -> bool {
        self.component == Component::Kubelet && [RELIST, POD_RELIST].contains(&self.operation.as_str())
    }

    /// Is it a containerd that loads the shims of an earlier one?
    #[must_use]
    pub fn is_startup(&self) -> bool {
        self.operation == startup::STARTUP
    }

    /// Is it an ExecSync that waits for a command: for its end, or for that of its output? Not one that waits for a shim's answer, over
    /// ttrpc or gRPC: it starts the command or kills it, or knows of its end and has yet to delete it (`execInternal` and
    /// `drainExecSyncIO` in pkg/cri/server/container_execsync.go of containerd 1.7, in internal/cri/server since 2.0; a stack of 1.4
    /// shows the same `Delete`); and a shim that deletes a command waits two seconds at most for its output (`execProcess.delete` in
    /// pkg/process/exec.go). Nor one at a lock that is known. Where the stack does not tell, or shows another lock, it may.
    #[must_use]
    pub(crate) fn awaits_command(&self) -> bool {
        self.method() == Some(Method::ExecSync)
            && matches!(self.waits_for, WaitsFor::ExecOutput | WaitsFor::Child | WaitsFor::Unknown)
    }

    /// Is it the same request, as seen at the same moment?
    #[must_use]
    pub(crate) fn is(&self, other: &Self) -> bool {
        let key = |request: &Self| (request.pid, request.target_ids(), request.lock_of.clone());
        key(self) == key(other) && self.goids == other.goids && self.frames == other.frames
    }

    fn target_ids(&self) -> Vec<String> {
        self.containers.iter().map(|container| container.id.clone()).collect()
    }
}

/// What a request waits for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum WaitsFor {
    /// The answer of a shim to this ttrpc method of its task service.
    Shim {
        /// "Create", "Start", "Update", …
        method: Option<String>,
    },
    /// A lock or transaction.
    Lock(Held),
    /// A network plugin.
    Cni,
    /// A plugin of NRI.
    NriPlugin,
    /// The output of a command in a container.
    ExecOutput,
    /// A child process.
    Child,
    /// The answer of the container runtime.
    Runtime {
        /// CRI method, when the stack shows it.
        operation: Option<String>,
    },
    /// The stack does not tell.
    Unknown,
}

/// Something that one request at a time can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Held {
    /// The status of a container (pkg/store/container `statusStorage`), which every ListContainers reads.
    ContainerStatus,
    /// The status of a sandbox.
    SandboxStatus,
    /// The write transaction of containerd's metadata (bbolt).
    Metadata,
    /// The configuration of the networks (go-cni), which every set-up reads and a reload writes.
    Networks,
    /// The runtime's lock around all that it asks NRI.
    Nri,
    /// NRI's lock around its plugins.
    NriPlugins,
    /// NRI's lock that keeps plugins from registering while a request is served.
    NriSync,
}

/// A goroutine inside a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Inside {
    pub(super) goid: u64,
    pub(super) operation: String,
    /// It serves nothing else: seen again, it is the same request.
    pub(super) alone: bool,
    /// Its functions, if it waits in them for what takes no time.
    pub(super) held: Option<Vec<String>>,
}

/// Goroutines inside a request.
pub(super) fn goroutines(fact: &GoroutinesFact) -> Vec<Inside> {
    let of_group = |group: &GoroutineGroup| {
        let operation = operation(fact.component, group)?;
        // Handlers have a goroutine of their own, unless the server was told to keep workers (`NumStreamWorkers`); the
        // relists of a kubelet are all on one.
        let worker = |frame: &String| frame.ends_with("grpc.(*Server).serverWorker");
        let alone = fact.component != Component::Kubelet && !group.frames.iter().any(worker);
        let held = is_held(group).then(|| group.frames.clone());
        let inside =
            |goid: &u64| Inside { goid: *goid, operation: operation.clone(), alone, held: held.clone() };
        Some(group.goids.iter().map(inside).collect::<Vec<_>>())
    };
    fact.groups.iter().filter_map(of_group).flatten().collect()
}

/// Has this kubelet a stream of events open? The client of `GetContainerEvents` returns when its stream ends.
pub(super) fn streams_events(fact: &GoroutinesFact) -> bool {
    let client = |frame: &String| frame.ends_with("moteRuntimeService).GetContainerEvents");
    fact.component == Component::Kubelet && fact.groups.iter().any(|group| group.frames.iter().any(client))
}

/// What is known of when requests began.
pub(super) struct Begins<'a> {
    /// When a goroutine was first seen inside its request.
    pub(super) seen: &'a dyn Fn(u64) -> Option<MonoNs>,
    /// Since when every look found a goroutine at the same place, at which it is held.
    pub(super) held: &'a dyn Fn(u64) -> Option<MonoNs>,
    /// When a traced call on it began.
    pub(super) traced: &'a dyn Fn(u32, u64) -> Option<MonoNs>,
    /// What probes that saw nothing say of a request on this goroutine: how old it is at least.
    pub(super) untouched: &'a dyn Fn(u64) -> Option<u64>,
    pub(super) now: MonoNs,
}

impl Begins<'_> {
    /// The age of the oldest of a part. It is that at the look, unless a probe tells that the call is still open: it may
    /// have ended since.
    fn age(&self, fact: &GoroutinesFact, operation: &str, part: &Part) -> Age {
        let look = MonoNs(fact.at_ns).min(self.now);
        let age = |goid: &u64| {
            if let Some(start) = (self.traced)(fact.pid, *goid) {
                return Age { ns: self.now.since(start), at_least: false };
            }
            let seen = (self.seen)(*goid).map(|seen| look.since(seen));
            // Several relists of one pod can follow each other with no other between them.
            let untouched = (self.untouched)(*goid).filter(|_| operation != POD_RELIST);
            Age { ns: seen.max(untouched).unwrap_or(0), at_least: true }
        };
        let oldest = part.goids.iter().map(age).max_by_key(|age| age.ns);
        let parked = part.parked_by.map(|by| Age { ns: look.since(MonoNs(by)), at_least: true });
        let known = oldest.into_iter().chain(parked.filter(|_| oldest.is_none_or(|age| age.at_least)));
        known.max_by_key(|age| age.ns).unwrap_or(Age { ns: 0, at_least: true })
    }

    /// For how long the looks found one of a part held at the same place, up to the last of them.
    fn held_ns(&self, fact: &GoroutinesFact, part: &Part) -> u64 {
        let since = part.goids.iter().filter_map(|goid| (self.held)(*goid)).min();
        since.map_or(0, |since| MonoNs(fact.at_ns).since(since))
    }
}

/// Does a request wait at a lock, or for an answer that a shim gives at once? Only a few of its calls last as long as what it runs
/// (`Wait` and `CloseIO` of the task service).
fn is_held(group: &GoroutineGroup) -> bool {
    let shim = |method: &str| !matches!(method, "Wait" | "CloseIO");
    is_at_lock(&group.frames)
        || matches!(waits_for(group), WaitsFor::Shim { method: Some(method) } if shim(&method))
}

/// The requests that the stacks of one process show.
pub(super) fn requests_in(fact: &GoroutinesFact, begins: &Begins<'_>, known: &Known) -> Vec<Request> {
    let request = |group: &GoroutineGroup, operation: &str, part: Part| {
        let waits_for = waits_for(group);
        let before = |goid: &u64| (begins.seen)(*goid).is_some_and(|seen| seen.0 < fact.at_ns);
        Request {
            pid: fact.pid,
            component: fact.component,
            operation: operation.to_owned(),
            count: part.count,
            since: begins.age(fact, operation, &part),
            stays: part.goids.iter().any(before),
            held_ns: begins.held_ns(fact, &part),
            wait_reason: group.wait_reason.clone(),
            holds: holds(&group.frames, &waits_for),
            waits_for,
            containers: part.target.ids.iter().filter_map(|id| known.get(id)).cloned().collect(),
            target_known: part.target.certain,
            lock_of: part.target.lock,
            frames: group.frames.clone(),
            goids: part.goids,
        }
    };
    let of_group = |group: &GoroutineGroup| {
        let operation = operation(fact.component, group)?;
        let parts = parts(group, &operation, known).into_iter();
        Some(parts.map(|part| request(group, &operation, part)).collect::<Vec<_>>())
    };
    fact.groups.iter().filter_map(of_group).flatten().collect()
}

/// `…/v1._RuntimeService_ListContainers_Handler` → ListContainers; the kubelet's relist by its own name.
fn operation(component: Component, group: &GoroutineGroup) -> Option<String> {
    let frames = &group.frames;
    if startup::loads(component, group) {
        return Some(startup::STARTUP.to_owned());
    }
    if component == Component::Kubelet {
        return frames.iter().find_map(|frame| match frame.rsplit_once("pleg.(*GenericPLEG).")?.1 {
            "relist" | "Relist" => Some(RELIST.to_owned()),
            "relistPod" => Some(POD_RELIST.to_owned()),
            _ => None,
        });
    }
    frames.iter().find_map(|frame| handler(frame)).map(str::to_owned)
}

fn handler(frame: &str) -> Option<&str> {
    let services = ["._RuntimeService_", "._ImageService_"];
    let rest = services.iter().find_map(|service| frame.split_once(service)).map(|(_, rest)| rest)?;
    let (method, _) = rest.split_once("_Handler")?;
    method.bytes().all(|byte| byte.is_ascii_alphanumeric()).then_some(method)
}

/// The innermost function that says what is waited for.
fn waits_for(group: &GoroutineGroup) -> WaitsFor {
    let (frames, at_lock) = (&group.frames, waits_at_lock(group));
    if frames.iter().any(|frame| is_network(frame)) {
        return if at_lock { WaitsFor::Lock(Held::Networks) } else { WaitsFor::Cni };
    }
    let by_nri = nri::waits_for(frames, at_lock);
    let found = by_nri.or_else(|| frames.iter().find_map(|frame| waited_in(frame, frames, at_lock)));
    found.unwrap_or(WaitsFor::Unknown)
}

/// Does a goroutine wait for a lock of Go's, by its stack or by the reason that Go gives?
pub(super) fn waits_at_lock(group: &GoroutineGroup) -> bool {
    let is_lock = |why: &str| why.starts_with("sync.") || why.starts_with("semacquire");
    is_at_lock(&group.frames) || group.wait_reason.as_deref().is_some_and(is_lock)
}

fn is_network(frame: &str) -> bool {
    ["go-cni.(*", "cni/libcni.(*", "ocicni.(*"].iter().any(|package| frame.contains(package))
}

fn waited_in(frame: &str, frames: &[String], at_lock: bool) -> Option<WaitsFor> {
    if frame.contains("ttrpc.(*Client).") {
        return Some(WaitsFor::Shim { method: frames.iter().find_map(|frame| task_method(frame)) });
    }
    if let Some(lock) = status_of(frame).filter(|_| at_lock) {
        return Some(WaitsFor::Lock(lock));
    }
    if frame.contains("bbolt.(*DB).beginRWTx") && at_lock {
        return Some(WaitsFor::Lock(Held::Metadata));
    }
    if frame.contains("(*criService).execInContainer") || frame.contains("(*criService).execInternal") {
        return Some(if is_at_lock(frames) { WaitsFor::Unknown } else { WaitsFor::ExecOutput });
    }
    if frame.contains("grpc.(*ClientConn).Invoke") || frame.contains("grpc.(*clientStream).") {
        return Some(WaitsFor::Runtime { operation: frames.iter().find_map(|frame| client_method(frame)) });
    }
    frame.starts_with("os/exec.(*Cmd).").then_some(WaitsFor::Child)
}

/// `task.(*taskClient).Update`, `task.(*ttrpctaskClient).Update`, `…(*tTRPCTaskClient).Update` → Update; so does that of the
/// shims of version 1, `shim/v1.(*shimClient).Update`.
fn task_method(frame: &str) -> Option<String> {
    let (receiver, method) = frame.rsplit_once(").")?;
    let client = receiver.rsplit_once("(*")?.1.to_ascii_lowercase();
    let asks = client.ends_with("taskclient") || client == "shimclient";
    (asks && method.bytes().all(|b| b.is_ascii_alphanumeric())).then(|| method.to_owned())
}

/// `…runtimeServiceClient).ListContainers` → ListContainers.
fn client_method(frame: &str) -> Option<String> {
    let (receiver, method) = frame.rsplit_once(").")?;
    let client = receiver.ends_with("untimeServiceClient") || receiver.ends_with("mageServiceClient");
    (client && method.bytes().all(|b| b.is_ascii_alphanumeric())).then(|| method.to_owned())
}

fn status_of(frame: &str) -> Option<Held> {
    if !frame.contains(".(*statusStorage).") {
        return None;
    }
    if frame.contains("/store/container.") { Some(Held::ContainerStatus) } else { Some(Held::SandboxStatus) }
}

/// What the request has locked further out in its stack, innermost first, unless it waits for exactly that itself.
fn holds(frames: &[String], waits_for: &WaitsFor) -> Vec<Held> {
    let held = |frame: &String| {
        let method = frame.rsplit_once(").").map_or("", |(_, method)| method);
        let locked = status_of(frame).filter(|_| matches!(method, "Update" | "UpdateSync" | "Delete"));
        locked.or_else(|| frame.contains("bbolt.(*Tx).Commit").then_some(Held::Metadata))
    };
    let mut all: Vec<Held> = Vec::new();
    for held in frames.iter().filter_map(held).chain(nri::holds(frames, waits_for)) {
        if *waits_for != WaitsFor::Lock(held) && !all.contains(&held) {
            all.push(held);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const CRI: &str = "github.com/containerd/containerd/pkg/cri";

    fn group(wait_reason: &str, frames: &[String]) -> GoroutineGroup {
        GoroutineGroup {
            count: 1,
            goids: vec![7],
            fingerprints: Vec::new(),
            state: "waiting".into(),
            wait_reason: Some(wait_reason.into()),
            parked_by_ns: None,
            frames: frames.to_vec(),
            broken: None,
            subjects: Vec::new(),
        }
    }

    fn fact(component: Component, groups: Vec<GoroutineGroup>) -> GoroutinesFact {
        GoroutinesFact {
            at_ns: 1_000,
            took_ns: 1,
            pid: 9,
            component,
            go_version: "go1.19.8".into(),
            total: 1,
            unread: 0,
            groups,
            groups_left_out: 0,
            last_list_ns: None,
        }
    }

    fn update() -> Vec<String> {
        vec![
            "github.com/containerd/ttrpc.(*Client).dispatch".into(),
            "github.com/containerd/ttrpc.(*Client).Call".into(),
            "github.com/containerd/containerd/runtime/v2/task.(*taskClient).Update".into(),
            format!("{CRI}/server.(*criService).UpdateContainerResources.func1"),
            format!("{CRI}/store/container.(*statusStorage).UpdateSync"),
            format!("{CRI}/server.(*criService).UpdateContainerResources"),
            "k8s.io/cri-api/pkg/apis/runtime/v1._RuntimeService_UpdateContainerResources_Handler.func1"
                .into(),
            "google.golang.org/grpc.(*Server).handleStream".into(),
        ]
    }

    fn list() -> Vec<String> {
        vec![
            "sync.runtime_SemacquireMutex".into(),
            "sync.(*RWMutex).RLock".into(),
            format!("{CRI}/store/container.(*statusStorage).Get"),
            format!("{CRI}/server.(*criService).ListContainers"),
            "k8s.io/cri-api/pkg/apis/runtime/v1._RuntimeService_ListContainers_Handler.func1".into(),
        ]
    }

    fn requests(groups: Vec<GoroutineGroup>) -> Vec<Request> {
        told(&fact(Component::Containerd, groups), None, None)
    }

    fn told(fact: &GoroutinesFact, seen: Option<u64>, open: Option<u64>) -> Vec<Request> {
        let (seen, traced) = (|_| seen.map(MonoNs), |_, _| open.map(MonoNs));
        let begins = Begins {
            seen: &seen,
            held: &|_| None,
            traced: &traced,
            untouched: &|_| None,
            now: MonoNs(9_000),
        };
        requests_in(fact, &begins, &Known::default())
    }

    /// The shims of version 1 are asked by a client of their own.
    #[test]
    fn what_a_shim_is_asked() {
        let asked = |frame| task_method(&format!("github.com/containerd/containerd/{frame}"));
        for client in ["runtime/v1/shim/v1.(*shimClient)", "api/runtime/task/v2.(*taskClient)"] {
            assert_eq!(asked(format!("{client}.State")).as_deref(), Some("State"), "{client}");
        }
        assert_eq!(asked("runtime/v1/linux.(*Task).State".to_owned()), None);
    }

    /// The two halves of a lock hostage: one waits for the shim and holds the status, the others wait for the status.
    #[test]
    fn holder_and_waiter() {
        let found = requests(vec![group("select", &update()), group("semacquire", &list())]);
        let told: Vec<_> =
            found.iter().map(|r| (r.operation.as_str(), r.waits_for.clone(), r.holds.clone())).collect();
        let shim = WaitsFor::Shim { method: Some("Update".into()) };
        assert_eq!(
            told,
            [
                ("UpdateContainerResources", shim, vec![Held::ContainerStatus]),
                ("ListContainers", WaitsFor::Lock(Held::ContainerStatus), vec![]),
            ]
        );
        // An update whose new size is written to the metadata holds both.
        let mut commits = update();
        commits[0] = "go.etcd.io/bbolt.(*Tx).Commit".to_owned();
        let found = requests(vec![group("", &commits)]);
        assert_eq!(found[0].holds, [Held::Metadata, Held::ContainerStatus]);
    }

    /// An age from looks or from the garbage collector is a lower bound, and ends with the last look; one from a traced
    /// call is exact. The best of all bounds counts.
    #[test]
    fn ages() {
        let of = |parked_by_ns: Option<u64>, seen: Option<u64>, open: Option<u64>| {
            let group = GoroutineGroup { parked_by_ns, ..group("select", &update()) };
            let fact = GoroutinesFact { at_ns: 5_000, ..fact(Component::Containerd, vec![group]) };
            let age = told(&fact, seen, open)[0].since;
            (age.ns, age.at_least)
        };
        assert_eq!(of(None, None, None), (0, true), "one look says nothing");
        assert_eq!(of(None, Some(5_001), None), (0, true), "nor does the end of that look");
        assert_eq!(of(None, Some(2_000), None), (3_000, true));
        assert_eq!(of(None, Some(2_000), Some(500)), (8_500, false));
        assert_eq!(of(Some(1_000), Some(2_000), Some(4_000)), (5_000, false), "a probe knows better");
        assert_eq!(of(Some(1_000), Some(2_000), None), (4_000, true));
        assert_eq!(of(Some(3_000), Some(2_000), None), (3_000, true));
    }

    /// A relist of the kubelet, and the list it waits for.
    #[test]
    fn relists() {
        let frames = [
            "google.golang.org/grpc.(*ClientConn).Invoke",
            "k8s.io/cri-api/pkg/apis/runtime/v1.(*runtimeServiceClient).ListContainers",
            "k8s.io/kubernetes/pkg/kubelet/pleg.(*GenericPLEG).relist",
        ];
        let group = group("select", &frames.map(str::to_owned));
        let fact = fact(Component::Kubelet, vec![group]);
        let found = told(&fact, None, None);
        assert!(found[0].is_relist() && found[0].operation == "relist");
        assert_eq!(found[0].waits_for, WaitsFor::Runtime { operation: Some("ListContainers".into()) });
    }

    /// One of a single pod, since Kubernetes 1.36, on the same goroutine. Its loop between two of them is none.
    #[test]
    fn relists_of_one_pod() {
        let pleg = "k8s.io/kubernetes/pkg/kubelet/pleg.(*GenericPLEG)";
        let told = |frames: &[&str]| {
            let frames: Vec<String> = frames.iter().map(|name| format!("{pleg}.{name}")).collect();
            told(&fact(Component::Kubelet, vec![group("select", &frames)]), None, None)
        };
        let found =
            told(&["updateCache", "reconcilePodRecord", "relistPod", "workerLoopIteration", "Start.func1"]);
        assert!(found[0].is_relist() && found[0].operation == "relist of one pod");
        let whole = told(&["updateCache", "Relist", "workerLoopIteration", "Start.func1"]);
        assert!(whole[0].is_relist() && whole[0].operation == "relist");
        assert_eq!(told(&["workerLoopIteration", "Start.func1"]), []);
    }

    /// A containerd that starts waits for a shim; what reads the log of one does not.
    #[test]
    fn starts() {
        let start = |load: &str| {
            let client =
                ["github.com/containerd/ttrpc.(*Client).Call", "api/task/v3.(*ttrpctaskClient).Connect"];
            group("select", &[client[0].into(), client[1].into(), load.into()])
        };
        for load in ["runtime/v2.(*TaskManager).loadTasks", "v2/core/runtime/v2.(*ShimManager).loadShims"] {
            let found = requests(vec![start(load)]);
            assert!(found[0].is_startup() && found[0].method().is_none(), "{load}");
            assert_eq!(found[0].waits_for, WaitsFor::Shim { method: Some("Connect".into()) });
        }
        assert_eq!(requests(vec![start("runtime/v2.loadShim.func4")]), []);
        assert_eq!(
            told(&fact(Component::Dockerd, vec![start("runtime/v2.(*ShimManager).loadShims")]), None, None),
            []
        );
    }

    /// Other goroutines are no requests, and names that only look like handlers are none.
    #[test]
    fn others_are_none() {
        let plain = group("select", &["main.run".into(), "x._RuntimeService_A/B_Handler".into()]);
        assert_eq!(requests(vec![plain]), []);
    }
}
