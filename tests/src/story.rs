//! [`Story`]: an input stream told in sentences, for tests of everything behind it.
//!
//! Times are nanoseconds since the probes were on. A story goes through the same bytes as a recording: records are
//! framed, read back, decoded and pushed.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use plegtrace::{
    correlate::{Correlator, Limits, Snapshot},
    decode::{MonoNs, decode},
    diagnose::diagnose,
    input::{
        Armed, Component, ContainerFact, Downloads, EndedInit, Fact, Frame, HookFact, InFlight,
        KubeletConnections, Layer, Liveness, OpenCallFact, PluginFact, RuntimeSays, Start, SymbolFact,
        SymbolsFact, TargetFact, Unwritten, frame_fact, next_frame,
    },
};
use plegtrace_common::{
    ABI_VERSION,
    header::RecHeader,
    key::Watched,
    kind::RecKind,
    rec::{CALL_PARKS, CALL_REPLIED, CallRec, DockerRec, PARK_FRAMES, ParkRec, RequestRec, how},
    wire::{docker::HEAD, request::NAME},
};
use zerocopy::{Immutable, IntoBytes};

use crate::oracle::Oracle;

/// The kubelet of a story.
pub const KUBELET: u32 = 23_871;
/// The containerd of a story.
pub const CONTAINERD: u32 = 812;
/// The goroutine that relists.
pub const PLEG: u64 = 142;
/// One millisecond.
pub const MS: u64 = 1_000_000;
/// One second.
pub const S: u64 = 1_000_000_000;

/// CLOCK_MONOTONIC when the probes are on.
const ARMED_NS: u64 = 5_000 * S;
/// Wall time of that moment: 2026-01-01T14:00:00Z.
const ARMED_WALL_NS: i64 = 1_767_276_000_000_000_000;
/// Index of the hook on parks.
const PARKS_HOOK: u32 = 200;
/// Operations with hooks on all three layers.
const OPERATIONS: [&str; 8] = [
    "ListPodSandbox",
    "ListContainers",
    "PodSandboxStatus",
    "ContainerStatus",
    "ExecSync",
    "UpdateContainerResources",
    "RunPodSandbox",
    "PullImage",
];

/// A stream being told.
#[derive(Debug, Default)]
pub struct Story {
    frames: Vec<Frame>,
    open: Vec<OpenCallFact>,
    hooks: BTreeMap<(Layer, String), u32>,
    /// Parks so far: process, goroutine, from, to.
    parks: Vec<(u32, u64, u64, u64)>,
    /// The kernel's map of watched processes.
    pub(crate) watched: BTreeMap<u32, Watched>,
    pub(crate) handlers: u64,
    /// The containers that the next rounds of the census tell.
    pub containers: Vec<ContainerFact>,
    /// The containers of which they tell that they have ended.
    pub ended: Vec<EndedInit>,
    /// What the runtime says when they ask it.
    pub says: Option<RuntimeSays>,
    /// What they find on no disk yet.
    pub unwritten: Option<Unwritten>,
    /// What they find of the connections of runtimes.
    pub downloads: Vec<Downloads>,
    /// What they find of the connections of kubelets.
    pub kubelet_connections: Vec<KubeletConnections>,
    /// The connections of the kubelet to its plugins that they find.
    pub plugins: Vec<PluginFact>,
}

/// A moment of a story on CLOCK_MONOTONIC.
#[must_use]
pub fn at(ns: u64) -> MonoNs {
    MonoNs(ARMED_NS + ns)
}

impl Story {
    /// A story on a node about which nothing has been told.
    #[must_use]
    pub fn blank() -> Self {
        Self::default()
    }

    /// A node with kubelet and containerd, every hook armed at time 0.
    #[must_use]
    pub fn node() -> Self {
        let mut story = Self::blank();
        story.start().target(Component::Kubelet, KUBELET, "1.20.2").target(
            Component::Containerd,
            CONTAINERD,
            "1.6.20",
        );
        story.hooks().fact(
            0,
            &Fact::Armed(Armed { mode: "uprobe_multi".into(), sites: 112, took_ns: 9 * MS, hooks: None }),
        );
        story
    }

    /// Who observes.
    pub fn start(&mut self) -> &mut Self {
        let start = Start {
            tool_version: "0.1.0".into(),
            node: "n1".into(),
            kernel: "6.1.0".into(),
            realtime_offset_ns: ARMED_WALL_NS - i64::try_from(ARMED_NS).expect("small"),
            boottime_offset_ns: 0,
            cpus: 2,
        };
        self.fact(0, &Fact::Start(start))
    }

    /// A process is found.
    pub fn target(&mut self, component: Component, pid: u32, version: &str) -> &mut Self {
        self.target_at(0, component, pid, version)
    }

    /// A process is found later.
    pub fn target_at(&mut self, ns: u64, component: Component, pid: u32, version: &str) -> &mut Self {
        let target = TargetFact {
            component,
            pid,
            started_ns: None,
            exe: format!("/usr/bin/{}", component.name()),
            version: Some(version.into()),
            go_version: Some("go1.19.8".into()),
            socket: None,
            unproved: false,
        };
        self.fact(ns, &Fact::Target(target))
    }

    /// Every hook of kubelet and containerd.
    pub fn hooks(&mut self) -> &mut Self {
        self.hook(Layer::Relist, "Relist")
            .hook(Layer::ListPhase, "GetPods")
            .hook(Layer::StatusPhase, "updateCache");
        for operation in OPERATIONS {
            for layer in [Layer::KubeletCall, Layer::KubeletClient, Layer::Handler] {
                self.hook(layer, operation);
            }
        }
        self
    }

    /// One hook.
    pub fn hook(&mut self, layer: Layer, operation: &str) -> &mut Self {
        self.hook_at(0, layer, operation)
    }

    /// One hook that comes later.
    pub fn hook_at(&mut self, ns: u64, layer: Layer, operation: &str) -> &mut Self {
        let index = u32::try_from(self.hooks.len()).expect("few hooks");
        self.hooks.insert((layer, operation.into()), index);
        let (component, service) = match layer {
            Layer::Handler => (Component::Containerd, "runtime.v1.RuntimeService"),
            Layer::RuncPhase => (Component::Runc, "libcontainer"),
            _ => (Component::Kubelet, ""),
        };
        let hook = HookFact {
            index,
            layer,
            component,
            exe: format!("/usr/bin/{}", component.name()),
            operation: operation.into(),
            service: service.into(),
            symbol: format!("example.{operation}"),
            long_lived: false,
            sites: 4,
        };
        self.fact(ns, &Fact::Hook(hook))
    }

    /// Parks of kubelet and containerd are followed; their stacks are of the executable `index` 200.
    pub fn follows_parks(&mut self) -> &mut Self {
        let hook = HookFact {
            index: PARKS_HOOK,
            layer: Layer::Mark,
            component: Component::Containerd,
            exe: "/usr/bin/containerd".into(),
            operation: "gopark".into(),
            service: "runtime".into(),
            symbol: "runtime.gopark".into(),
            long_lived: false,
            sites: 1,
        };
        self.fact(0, &Fact::Hook(hook))
    }

    /// Names of functions, for the return addresses 1, 2, 3 … of parks.
    pub fn names(&mut self, ns: u64, names: &[&str]) -> &mut Self {
        // A story's code begins at address 1.
        let name = |(name, offset): (&&str, u64)| SymbolFact { offset, name: (*name).to_owned() };
        let names = names.iter().zip(0..).map(name).collect();
        self.fact(ns, &Fact::Symbols(SymbolsFact { hook: PARKS_HOOK, names }))
    }

    /// Any fact.
    pub fn fact(&mut self, ns: u64, fact: &Fact) -> &mut Self {
        self.frames.push(frame_fact(ARMED_NS + ns, fact));
        self
    }

    /// A call begins. `depth` is the stack in use: what is inside another call has more.
    pub fn begin(&mut self, layer: Layer, operation: &str, goid: u64, depth: u32, ns: u64) -> &mut Self {
        let tgid = if layer == Layer::Handler { CONTAINERD } else { KUBELET };
        let hook = self.hooks[&(layer, operation.to_owned())];
        let start_ns = ARMED_NS + ns;
        let liveness = Liveness::Alive;
        self.open.push(OpenCallFact {
            tgid,
            goid,
            hook,
            start_ns,
            mark_ns: 0,
            depth,
            flags: 0,
            liveness,
            parked_ns: 0,
            short_ns: 0,
            parks: 0,
            stream: 0,
        });
        self
    }

    /// The call that began last goes out, or came in, as this stream.
    ///
    /// # Panics
    ///
    /// None is open.
    pub fn as_stream(&mut self, stream: u32) -> &mut Self {
        self.open.last_mut().expect("it has just begun").stream = stream;
        self
    }

    /// A runc comes into a phase, which lasts until [`Story::leave`]; what is inside another one has more `depth`.
    pub fn enter(&mut self, pid: u32, operation: &str, depth: u32, ns: u64) -> &mut Self {
        if !self.hooks.contains_key(&(Layer::RuncPhase, operation.to_owned())) {
            self.hook(Layer::RuncPhase, operation);
        }
        self.begin(Layer::RuncPhase, operation, 1, depth, ns);
        self.open.last_mut().expect("it has just begun").tgid = pid;
        self
    }

    /// The youngest phase of this name ends.
    pub fn leave(&mut self, operation: &str, ns: u64) -> &mut Self {
        self.end(Layer::RuncPhase, operation, 1, ns, 0)
    }

    /// The youngest open call of this kind on this goroutine ends.
    ///
    /// # Panics
    ///
    /// There is none.
    pub fn end(&mut self, layer: Layer, operation: &str, goid: u64, ns: u64, flags: u32) -> &mut Self {
        let hook = self.hooks[&(layer, operation.to_owned())];
        let mine = |call: &OpenCallFact| call.hook == hook && call.goid == goid;
        let place = self.open.iter().rposition(mine).expect("a call that began can end");
        let call = self.open.remove(place);
        self.record(&call, ns, flags)
    }

    /// The record of a call that ended.
    pub fn record(&mut self, call: &OpenCallFact, ns: u64, flags: u32) -> &mut Self {
        let inside = self.parks.iter().filter(|(tgid, goid, from, to)| {
            (*tgid, *goid) == (call.tgid, call.goid) && call.start_ns <= *from && *to <= ARMED_NS + ns
        });
        let measured = flags & CALL_PARKS != 0;
        let parked_ns = if measured { inside.map(|(.., from, to)| to - from).sum() } else { 0 };
        let rec = CallRec {
            header: header(RecKind::Call, size_of::<CallRec>(), ns, call.tgid),
            start_ns: call.start_ns,
            mark_ns: if flags & CALL_REPLIED == 0 { 0 } else { ARMED_NS + ns },
            goid: call.goid,
            g_addr: 0,
            hook: call.hook,
            flags,
            depth: call.depth,
            start_tid: 1,
            parked_ns,
            short_ns: 0,
            parks: 0,
            stream: call.stream,
        };
        self.push(rec.header, &rec)
    }

    /// A long park of a goroutine that is over.
    pub fn park(&mut self, tgid: u32, goid: u64, from: u64, to: u64, stack: &[u64]) -> &mut Self {
        let mut frames = [0; PARK_FRAMES];
        frames[1..stack.len()].copy_from_slice(&stack[1..]);
        let rec = ParkRec {
            header: header(RecKind::Park, size_of::<ParkRec>(), to, tgid),
            start_ns: ARMED_NS + from,
            goid,
            start_code: 1,
            hook: PARKS_HOOK,
            reason: 0,
            caller: stack[0],
            frames,
        };
        self.parks.push((tgid, goid, rec.start_ns, rec.header.ts_ns));
        self.push(rec.header, &rec)
    }

    /// A request of the kubelet to containerd, as its socket shows it: of `package.Service/Method`, sent and answered then.
    pub fn request(&mut self, stream: u32, path: &str, sent: u64, answered: u64) -> &mut Self {
        self.request_of(stream, path, sent, answered, 0)
    }

    /// The same with an answer of so many bytes.
    pub fn request_of(
        &mut self,
        stream: u32,
        path: &str,
        sent: u64,
        answered: u64,
        answer_bytes: u64,
    ) -> &mut Self {
        let mut name = [0; NAME];
        name[..path.len()].copy_from_slice(path.as_bytes());
        let rec = RequestRec {
            header: header(RecKind::Request, size_of::<RequestRec>(), answered, CONTAINERD),
            start_ns: ARMED_NS + sent,
            socket: 7,
            bytes: 0,
            answer_bytes,
            stream,
            asker: KUBELET,
            answerer: CONTAINERD,
            how: how::ANSWERED,
            name,
        };
        self.push(rec.header, &rec)
    }

    /// A request of somebody else to containerd, answered a millisecond after it was sent.
    pub fn request_by(&mut self, asker: u32, stream: u32, path: &str, sent: u64) -> &mut Self {
        let mut name = [0; NAME];
        name[..path.len()].copy_from_slice(path.as_bytes());
        let rec = RequestRec {
            header: header(RecKind::Request, size_of::<RequestRec>(), sent + MS, CONTAINERD),
            start_ns: ARMED_NS + sent,
            socket: u64::from(asker),
            bytes: 0,
            answer_bytes: 0,
            stream,
            asker,
            answerer: CONTAINERD,
            how: how::ANSWERED | how::OTHER,
            name,
        };
        self.push(rec.header, &rec)
    }

    /// A request of the kubelet to dockerd (method and path), asked and answered then.
    pub fn docker(&mut self, line: &str, dockerd: u32, asked: u64, answered: u64) -> &mut Self {
        let mut head = [0; HEAD];
        head[..line.len()].copy_from_slice(line.as_bytes());
        let rec = DockerRec {
            header: header(RecKind::Docker, size_of::<DockerRec>(), answered, dockerd),
            start_ns: ARMED_NS + asked,
            socket: 8,
            asker: KUBELET,
            status: 200,
            head,
        };
        self.push(rec.header, &rec)
    }

    /// A call from its begin to its end.
    pub fn call(
        &mut self,
        layer: Layer,
        operation: &str,
        on: (u64, u32),
        from: u64,
        to: u64,
        flags: u32,
    ) -> &mut Self {
        self.begin(layer, operation, on.0, on.1, from).end(layer, operation, on.0, to, flags)
    }

    /// The kernel's map of open calls is read.
    pub fn read_open(&mut self, ns: u64) -> &mut Self {
        let calls = self.open.clone();
        self.fact(
            ns,
            &Fact::InFlight(InFlight { at_ns: ARMED_NS + ns, calls, complete: true, parkers: Vec::new() }),
        )
    }

    /// What the map of open calls holds; to be bent by a test.
    pub fn open_mut(&mut self) -> &mut Vec<OpenCallFact> {
        &mut self.open
    }

    /// Adds a record.
    pub(crate) fn push(&mut self, header: RecHeader, rec: &(impl IntoBytes + Immutable)) -> &mut Self {
        let kind = RecKind::from_u16(header.kind).expect("a kind of ours");
        self.frames.push(Frame { header, kind, bytes: Bytes::copy_from_slice(rec.as_bytes()) });
        self
    }

    /// The stream as bytes, as a recording holds it.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        let mut bytes = BytesMut::new();
        self.frames.iter().for_each(|frame| bytes.extend_from_slice(&frame.bytes));
        bytes.freeze()
    }

    /// The records, to be put into another order by a test.
    pub fn frames_mut(&mut self) -> &mut Vec<Frame> {
        &mut self.frames
    }

    /// What a correlator makes of the story.
    ///
    /// # Panics
    ///
    /// A record of the story cannot be read back.
    #[must_use]
    pub fn snapshot(&self, now: u64) -> Snapshot {
        self.snapshot_within(Limits::default(), now)
    }

    /// What a correlator with these limits makes of the story. Whatever a story is about, its verdict contradicts none of its records.
    ///
    /// # Panics
    ///
    /// A record of the story cannot be read back, or the verdict contradicts one.
    #[must_use]
    pub fn snapshot_within(&self, limits: Limits, now: u64) -> Snapshot {
        let (mut correlator, mut oracle) = (Correlator::new(limits), Oracle::default());
        let mut bytes = self.bytes();
        while !bytes.is_empty() {
            let frame = next_frame(&mut bytes).expect("stories are made of whole records");
            oracle.read(&frame);
            correlator.push(decode(&frame).expect("stories are made of sound records"));
        }
        let snapshot = correlator.snapshot(at(now));
        let diagnosis = diagnose(&snapshot);
        let wrong = oracle.contradictions(&snapshot, &diagnosis);
        assert!(wrong.is_empty(), "{}\n{diagnosis:#?}", wrong.join("\n"));
        snapshot
    }
}

/// How a record begins.
pub(crate) fn header(kind: RecKind, len: usize, ns: u64, tgid: u32) -> RecHeader {
    let len = u32::try_from(len).expect("records are short");
    RecHeader { ts_ns: ARMED_NS + ns, len, kind: kind as u16, abi: ABI_VERSION, tgid, tid: tgid }
}
