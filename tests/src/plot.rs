//! What happens in a [`Story`], in sentences about calls, relists and the fate of processes.

use plegtrace::input::{Component, Cost, Fact, Layer, LossCount, Presence, TargetGone};
use plegtrace_common::{
    kind::RecKind,
    reason::{Reason, Weight},
    rec::{CALL_FAILED, CALL_OK, ProcessRec},
};
use zerocopy::FromZeros as _;

use crate::story::{MS, PLEG, Story, header};

impl Story {
    /// A client call with both layers of the kubelet and the handler that answers it.
    pub fn rpc(&mut self, operation: &str, goid: u64, from: u64, to: u64) -> &mut Self {
        let edge = (to - from) / 10;
        let handler = self.handler_goroutine();
        self.begin(Layer::KubeletCall, operation, goid, 900, from)
            .begin(Layer::KubeletClient, operation, goid, 1000, from + edge / 10)
            .call(Layer::Handler, operation, (handler, 700), from + edge, to - edge, CALL_OK)
            .end(Layer::KubeletClient, operation, goid, to - edge / 10, CALL_OK)
            .end(Layer::KubeletCall, operation, goid, to, CALL_OK)
    }

    /// A goroutine of its own for each handler, as gRPC has it.
    fn handler_goroutine(&mut self) -> u64 {
        self.handlers += 1;
        10_000 + self.handlers
    }

    /// A relist as a healthy node has it: 3 ms of lists, then 4 ms for each pod whose status is asked for.
    pub fn relist(&mut self, from: u64, pods: u64) -> &mut Self {
        self.relist_of(from, pods, MS)
    }

    /// A relist whose status calls take so long each; the second of a pod twice that.
    pub fn relist_of(&mut self, from: u64, pods: u64, call: u64) -> &mut Self {
        self.relist_asks(from, pods, call);
        self.end(Layer::Relist, "Relist", PLEG, from + 3 * MS + 4 * pods * call + 50_000, 0)
    }

    /// The same, and it has not come to its end yet.
    pub fn relist_asks(&mut self, from: u64, pods: u64, call: u64) -> &mut Self {
        self.begin(Layer::Relist, "Relist", PLEG, 100, from).begin(
            Layer::ListPhase,
            "GetPods",
            PLEG,
            300,
            from + 10_000,
        );
        self.rpc("ListPodSandbox", PLEG, from + 20_000, from + MS).rpc(
            "ListContainers",
            PLEG,
            from + MS,
            from + 3 * MS,
        );
        self.end(Layer::ListPhase, "GetPods", PLEG, from + 3 * MS, CALL_OK);
        for pod in 0..pods {
            let from = from + 3 * MS + 4 * pod * call + 1;
            self.begin(Layer::StatusPhase, "updateCache", PLEG, 300, from);
            self.rpc("PodSandboxStatus", PLEG, from + 10_000, from + call);
            self.rpc("ContainerStatus", PLEG, from + call, from + 3 * call);
            self.end(Layer::StatusPhase, "updateCache", PLEG, from + 4 * call - 10_000, CALL_OK);
        }
        self
    }

    /// A relist gets its lists, and does not come to its end.
    pub fn relist_sends(&mut self, from: u64) -> &mut Self {
        self.begin(Layer::Relist, "Relist", PLEG, 100, from);
        self.begin(Layer::ListPhase, "GetPods", PLEG, 300, from + 10_000);
        self.rpc("ListPodSandbox", PLEG, from + 20_000, from + MS);
        self.rpc("ListContainers", PLEG, from + MS, from + 3 * MS);
        self.end(Layer::ListPhase, "GetPods", PLEG, from + 3 * MS, CALL_OK)
    }

    /// A relist begins, lists pods, and then waits in ListContainers.
    pub fn relist_hangs(&mut self, from: u64) -> &mut Self {
        let handler = self.handler_goroutine();
        self.begin(Layer::Relist, "Relist", PLEG, 100, from).begin(
            Layer::ListPhase,
            "GetPods",
            PLEG,
            300,
            from + 10_000,
        );
        self.rpc("ListPodSandbox", PLEG, from + 20_000, from + MS);
        self.begin(Layer::KubeletCall, "ListContainers", PLEG, 900, from + MS)
            .begin(Layer::KubeletClient, "ListContainers", PLEG, 1000, from + MS + 5_000)
            .begin(Layer::Handler, "ListContainers", handler, 700, from + MS + 90_000)
    }

    /// The kubelet has what relists of one pod need, as since Kubernetes 1.36.
    pub fn relists_pods(&mut self) -> &mut Self {
        self.hook(Layer::PodRelist, "relistPod").hook(Layer::ListPhase, "GetPod")
    }

    /// A relist of one pod, whose status takes so long, on the goroutine of the relists.
    pub fn pod_relist(&mut self, from: u64, status: u64) -> &mut Self {
        self.pod_relist_lists(from);
        self.rpc("ContainerStatus", PLEG, from + 3 * MS, from + 3 * MS + status);
        let to = from + 3 * MS + status;
        self.end(Layer::StatusPhase, "updateCache", PLEG, to + 10_000, CALL_OK);
        self.end(Layer::PodRelist, "relistPod", PLEG, to + 20_000, 0)
    }

    /// A relist of one pod gets its list, and does not come to its end: nobody answers for the status.
    pub fn pod_relist_hangs(&mut self, from: u64) -> &mut Self {
        let handler = self.handler_goroutine();
        self.pod_relist_lists(from)
            .begin(Layer::KubeletCall, "ContainerStatus", PLEG, 900, from + 3 * MS)
            .begin(Layer::KubeletClient, "ContainerStatus", PLEG, 1000, from + 3 * MS + 5_000)
            .begin(Layer::Handler, "ContainerStatus", handler, 700, from + 3 * MS + 90_000)
    }

    fn pod_relist_lists(&mut self, from: u64) -> &mut Self {
        self.begin(Layer::PodRelist, "relistPod", PLEG, 100, from);
        self.begin(Layer::ListPhase, "GetPod", PLEG, 300, from + 10_000);
        self.rpc("ListPodSandbox", PLEG, from + 20_000, from + MS);
        self.rpc("ListContainers", PLEG, from + MS, from + 2 * MS);
        self.end(Layer::ListPhase, "GetPod", PLEG, from + 2 * MS + 10_000, CALL_OK);
        self.begin(Layer::StatusPhase, "updateCache", PLEG, 300, from + 2 * MS + 20_000)
    }

    /// The kubelet gives up the list it waits for; the handler stays.
    pub fn list_times_out(&mut self, ns: u64) -> &mut Self {
        self.end(Layer::KubeletClient, "ListContainers", PLEG, ns, CALL_FAILED)
            .end(Layer::KubeletCall, "ListContainers", PLEG, ns + 10_000, CALL_FAILED)
            .end(Layer::ListPhase, "GetPods", PLEG, ns + 20_000, CALL_FAILED)
            .end(Layer::Relist, "Relist", PLEG, ns + 40_000, 0)
    }

    /// The kernel side counted this so far.
    pub fn counted(&mut self, ns: u64, reason: Reason, count: u64) -> &mut Self {
        let loss = LossCount {
            stage: "kernel".into(),
            reason: reason.name().into(),
            sentence: reason.sentence().into(),
            count,
            is_loss: reason.weight() == Weight::Loss,
        };
        self.fact(ns, &Fact::Loss { counts: vec![loss] })
    }

    /// What plegtrace costs.
    pub fn cost(&mut self, ns: u64) -> &mut Self {
        let (cpu_ns, rss_bytes) = (ns * 3 / 1000, 21 << 20);
        self.fact(
            ns,
            &Fact::Cost(Cost {
                cpu_ns,
                wall_ns: ns,
                rss_bytes,
                rss_peak_bytes: 2 * rss_bytes,
                child_peak_bytes: 0,
                probes_ns: Some(ns / 500),
                syscalls_ns: Some(ns / 200),
            }),
        )
    }

    /// User space notices that a target is gone.
    pub fn gone(&mut self, ns: u64, component: Component, pid: u32, how: &str) -> &mut Self {
        self.fact(ns, &Fact::TargetGone(TargetGone { component, pid, how: how.into() }))
    }

    /// A component has left something behind.
    pub fn presence(&mut self, component: Component, path: &str) -> &mut Self {
        self.fact(0, &Fact::Presence(Presence { component, path: path.into(), called: false }))
    }

    /// A watched process ends with this wait status.
    pub fn exit(&mut self, ns: u64, pid: u32, exit_code: u32) -> &mut Self {
        let header = header(RecKind::Exit, size_of::<ProcessRec>(), ns, pid);
        let mut rec = ProcessRec::new_zeroed();
        (rec.header, rec.parent, rec.exit_code) = (header, 1, exit_code);
        if let Some(watched) = self.watched.remove(&pid) {
            (rec.role, rec.parent_role) = (watched.role, watched.parent_role);
            (rec.since_ns, rec.flags, rec.parent) = (watched.since_ns, watched.flags, watched.parent);
        }
        self.push(header, &rec)
    }
}
