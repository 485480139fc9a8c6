//! What a census finds, for stories: processes and goroutines with everything filled in that a test does not care about.

use plegtrace::input::{
    CensusFact, Component, Fact, GoroutineGroup, GoroutinesFact, Holder, IdOnStack, PipeFact, ProcessFact,
    Subject,
};

use crate::story::{CONTAINERD, KUBELET, Story, at};

/// A process that waits, started at `started` nanoseconds of the story.
#[must_use]
pub fn process(component: Component, pid: u32, parent: u32, started: u64) -> ProcessFact {
    ProcessFact {
        at_ns: 0,
        pid,
        parent,
        started_ns: Some(at(started).0),
        component,
        comm: component.name().into(),
        command: None,
        state: 'S',
        threads: 3,
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

/// Goroutines that wait alike.
#[must_use]
pub fn group(goids: &[u64], wait_reason: &str, frames: &[&str]) -> GoroutineGroup {
    GoroutineGroup {
        count: u32::try_from(goids.len()).expect("few"),
        goids: goids.to_vec(),
        fingerprints: Vec::new(),
        state: "waiting".into(),
        wait_reason: Some(wait_reason.into()),
        parked_by_ns: None,
        frames: frames.iter().map(|frame| (*frame).to_owned()).collect(),
        broken: None,
        subjects: Vec::new(),
    }
}

/// The group of a kubelet, each of whose goroutines has this fingerprint: at two looks the same when it has not gone on.
#[must_use]
pub fn still(group: GoroutineGroup, fingerprint: u32) -> GoroutineGroup {
    GoroutineGroup { fingerprints: vec![fingerprint; group.goids.len()], ..group }
}

/// The group, all of whose goroutines have this id in the frame of the first function whose name ends so.
///
/// # Panics
///
/// There is no such function.
#[must_use]
pub fn about(mut group: GoroutineGroup, function: &str, id: &str) -> GoroutineGroup {
    let frame =
        group.frames.iter().rposition(|frame| frame.ends_with(function)).expect("a function of the group");
    let ids = vec![IdOnStack { frame: u32::try_from(frame).expect("few"), id: id.to_owned() }];
    group.subjects.push(Subject { count: group.count, goids: group.goids.clone(), ids, parked_by_ns: None });
    group
}

/// A pipe of which an orphan holds the writing end.
#[must_use]
pub fn pipe_of(writer: u32, orphan: bool) -> PipeFact {
    let writer = Holder { pid: writer, comm: "sleep".into(), fd: 1, orphan };
    PipeFact { inode: 77, writers: vec![writer], ..PipeFact::default() }
}

/// The handler that waits for a shim and holds a container's status meanwhile.
#[must_use]
pub fn update() -> GoroutineGroup {
    let frames = [
        "github.com/containerd/ttrpc.(*Client).dispatch",
        "github.com/containerd/containerd/runtime/v2/task.(*taskClient).Update",
        "github.com/containerd/containerd/pkg/cri/store/container.(*statusStorage).UpdateSync",
        "github.com/containerd/containerd/pkg/cri/server.(*criService).UpdateContainerResources",
        "k8s.io/cri-api/pkg/apis/runtime/v1._RuntimeService_UpdateContainerResources_Handler",
    ];
    group(&[88_123], "select", &frames)
}

/// The lists behind it.
#[must_use]
pub fn lists() -> GoroutineGroup {
    let frames = [
        "sync.runtime_SemacquireMutex",
        "sync.(*RWMutex).RLock",
        "github.com/containerd/containerd/pkg/cri/store/container.(*statusStorage).Get",
        "github.com/containerd/containerd/pkg/cri/server.(*criService).ListContainers",
        "k8s.io/cri-api/pkg/apis/runtime/v1._RuntimeService_ListContainers_Handler",
    ];
    group(&[90_001, 90_002, 90_003], "semacquire", &frames)
}

/// The kubelet's relist, in its list.
#[must_use]
pub fn relist() -> GoroutineGroup {
    let frames = [
        "google.golang.org/grpc.(*ClientConn).Invoke",
        "k8s.io/cri-api/pkg/apis/runtime/v1.(*runtimeServiceClient).ListContainers",
        "k8s.io/kubernetes/pkg/kubelet/pleg.(*GenericPLEG).relist",
    ];
    group(&[142], "select", &frames)
}

/// The process with all its threads stopped.
#[must_use]
pub fn stopped(process: ProcessFact) -> ProcessFact {
    ProcessFact { state: 'T', stopped: process.threads, ..process }
}

impl Story {
    /// One round of the census at `ns`: these processes, and these goroutines of containerd and the kubelet.
    pub fn census(
        &mut self,
        ns: u64,
        processes: &[ProcessFact],
        containerd: &[GoroutineGroup],
        kubelet: &[GoroutineGroup],
    ) -> &mut Self {
        let servers = [(Component::Containerd, CONTAINERD), (Component::Kubelet, KUBELET)];
        let known = |pid| processes.iter().any(|process| process.pid == pid);
        let servers = servers.iter().filter(|(_, pid)| !known(*pid));
        let servers: Vec<ProcessFact> =
            servers.map(|(component, pid)| process(*component, *pid, 1, 0)).collect();
        for process in processes.iter().chain(&servers) {
            self.fact(ns, &Fact::Process(ProcessFact { at_ns: at(ns).0, ..process.clone() }));
        }
        self.goroutines(ns, Component::Containerd, CONTAINERD, containerd);
        self.goroutines(ns, Component::Kubelet, KUBELET, kubelet);
        let round = CensusFact {
            began_ns: at(ns).0,
            ended_ns: at(ns).0,
            containers: self.containers.clone(),
            ended: self.ended.clone(),
            says: self.says.clone(),
            unwritten: self.unwritten,
            downloads: self.downloads.clone(),
            kubelet_connections: self.kubelet_connections.clone(),
            plugins: self.plugins.clone(),
            ..CensusFact::default()
        };
        self.fact(ns, &Fact::Census(round))
    }

    /// The goroutines of a process at `ns`.
    pub fn goroutines(&mut self, ns: u64, component: Component, pid: u32, groups: &[GoroutineGroup]) {
        let fact = GoroutinesFact {
            at_ns: at(ns).0,
            took_ns: 0,
            pid,
            component,
            go_version: "go1.19.8".into(),
            total: groups.iter().map(|group| group.count).sum(),
            unread: 0,
            groups: groups.to_vec(),
            groups_left_out: 0,
            last_list_ns: None,
        };
        self.fact(ns, &Fact::Goroutines(fact));
    }
}
