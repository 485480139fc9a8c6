//! The catalogue: every hook there can be, as data. Names and versions were read in the sources of Kubernetes
//! (pkg/kubelet), containerd and grpc-go at the tags named, and in the binaries of Debian.

use super::{
    row::{Class, End, HookRole, Mark, Row, Select, WordPlace},
    runc,
};
use crate::input::{Component, Layer};

const KUBELET: &[Component] = &[Component::Kubelet];
const SERVERS: &[Component] = &[Component::Containerd, Component::Crio, Component::CriDockerd];

/// A function whose second result or argument pair `(x, err)` starts with one word: the error is word 1.
const ERROR_AFTER_RECEIVER: WordPlace = WordPlace { register: 1, stack: 16 };
/// `(operation string, err error)`: two words, then the error.
const ERROR_AFTER_STRING: WordPlace = WordPlace { register: 2, stack: 24 };
/// `([]*Pod, error)` after `(receiver, all bool)`: three result words, then the error; on the stack behind two
/// argument words and the return address.
const ERROR_AFTER_SLICE: WordPlace = WordPlace { register: 3, stack: 48 };

/// `(*Pod, error)` after `(receiver, ctx Context, podUID string)`: one result word, then the error; on the stack behind five
/// argument words and the return address.
const ERROR_AFTER_POD: WordPlace = WordPlace { register: 1, stack: 56 };

/// `gopark(unlockf, lock, reason, …)`: two words, then a byte.
const WAIT_REASON: WordPlace = WordPlace { register: 2, stack: 24 };
/// The first argument.
const FIRST: WordPlace = WordPlace { register: 0, stack: 8 };
/// The second argument.
const SECOND: WordPlace = WordPlace { register: 1, stack: 16 };
/// What follows the receiver and an interface.
const AFTER_INTERFACE: WordPlace = WordPlace { register: 3, stack: 32 };
/// Programs whose calls are followed.
const CALLERS: &[Component] =
    &[Component::Kubelet, Component::Containerd, Component::Crio, Component::CriDockerd];

const fn calls(layer: Layer, end: End) -> HookRole {
    HookRole::Calls { layer, end }
}

/// Every row. The first one that matches a symbol has it.
pub const CATALOGUE: &[Row] = &joined::<{ SERVED.len() + runc::ROWS.len() }>(SERVED, runc::ROWS);

const fn joined<const N: usize>(first: &[Row], then: &[Row]) -> [Row; N] {
    let (mut all, mut place) = ([first[0]; N], 0);
    while place < N {
        all[place] = if place < first.len() { first[place] } else { then[place - first.len()] };
        place += 1;
    }
    all
}

/// Programs that serve.
const SERVED: &[Row] = &[
    // hook: kubelet 1.5..1.26: pkg/kubelet/pleg.(*GenericPLEG).relist; 1.27..: Relist
    Row {
        id: "relist",
        components: KUBELET,
        select: Select::Function { owner: "pleg.(*GenericPLEG)", names: &["Relist", "relist"] },
        class: Class::Relist,
        what: calls(Layer::Relist, End::Returns(None)),
        at_call: None,
        versions: "kubelet 1.5 and later",
        lost_without: Some("relists"),
    },
    // hook: kubelet 1.36..: pkg/kubelet/pleg.(*GenericPLEG).relistPod(podUID), on the goroutine of the relists, between two of them.
    // What calls both, workerLoopIteration, waits in a select for the next: it is no call
    Row {
        id: "relist-pod",
        components: KUBELET,
        select: Select::Function { owner: "pleg.(*GenericPLEG)", names: &["relistPod"] },
        class: Class::PodRelist,
        what: calls(Layer::PodRelist, End::Returns(None)),
        at_call: None,
        versions: "kubelet 1.36 and later",
        lost_without: None,
    },
    // hook: kubelet 1.36..: pkg/kubelet/kuberuntime.(*kubeGenericRuntimeManager).GetPod
    Row {
        id: "list-phase-pod",
        components: KUBELET,
        select: Select::Function { owner: "kuberuntime.(*kubeGenericRuntimeManager)", names: &["GetPod"] },
        class: Class::ListPhase,
        what: calls(Layer::ListPhase, End::Returns(Some(ERROR_AFTER_POD))),
        at_call: None,
        versions: "kubelet 1.36 and later",
        lost_without: None,
    },
    // hook: kubelet 1.5..: pkg/kubelet/kuberuntime.(*kubeGenericRuntimeManager).GetPods
    Row {
        id: "list-phase",
        components: KUBELET,
        select: Select::Function { owner: "kuberuntime.(*kubeGenericRuntimeManager)", names: &["GetPods"] },
        class: Class::ListPhase,
        what: calls(Layer::ListPhase, End::Returns(Some(ERROR_AFTER_SLICE))),
        at_call: None,
        versions: "kubelet 1.5 and later",
        lost_without: Some("the list phase of relists"),
    },
    // hook: kubelet 1.5..: pkg/kubelet/pleg.(*GenericPLEG).updateCache
    Row {
        id: "status-phase",
        components: KUBELET,
        select: Select::Function { owner: "pleg.(*GenericPLEG)", names: &["updateCache"] },
        class: Class::StatusPhase,
        what: calls(Layer::StatusPhase, End::Returns(None)),
        at_call: None,
        versions: "kubelet 1.5 and later",
        lost_without: Some("the status phase of relists"),
    },
    // hook: kubelet 1.6..: pkg/kubelet/kuberuntime.instrumentedRuntimeService.X; 1.38..: pkg/kubelet/metrics/cri
    Row {
        id: "counted-runtime",
        components: KUBELET,
        select: Select::Methods(&[
            "kuberuntime.instrumentedRuntimeService",
            "metrics/cri.instrumentedRuntimeService",
        ]),
        class: Class::KubeletCall,
        what: calls(Layer::KubeletCall, End::Marks),
        at_call: None,
        versions: "kubelet 1.6 and later",
        lost_without: Some("the calls that the kubelet's metrics count"),
    },
    // hook: kubelet 1.6..: pkg/kubelet/kuberuntime.instrumentedImageManagerService.X; 1.38..: pkg/kubelet/metrics/cri
    Row {
        id: "counted-image",
        components: KUBELET,
        select: Select::Methods(&[
            "kuberuntime.instrumentedImageManagerService",
            "metrics/cri.instrumentedImageManagerService",
        ]),
        class: Class::KubeletCall,
        what: calls(Layer::KubeletCall, End::Marks),
        at_call: None,
        versions: "kubelet 1.6 and later",
        lost_without: Some("the image calls that the kubelet's metrics count"),
    },
    // hook: kubelet 1.6..: pkg/kubelet/kuberuntime.recordOperation(operation string, start time.Time), deferred; 1.38..:
    // pkg/kubelet/metrics/cri
    Row {
        id: "counted-end",
        components: KUBELET,
        select: Select::Functions(&[
            ("kuberuntime", &["recordOperation"]),
            ("metrics/cri", &["recordOperation"]),
        ]),
        class: Class::KubeletCall,
        what: HookRole::Mark(Mark::End(None)),
        // Where the kubelet reads the clock for its metric.
        at_call: Some("time.Since"),
        versions: "kubelet 1.6 and later",
        lost_without: Some("the ends of counted calls"),
    },
    // hook: kubelet 1.6..: pkg/kubelet/kuberuntime.recordError(operation string, err error); 1.38..: pkg/kubelet/metrics/cri
    Row {
        id: "counted-error",
        components: KUBELET,
        select: Select::Functions(&[("kuberuntime", &["recordError"]), ("metrics/cri", &["recordError"])]),
        class: Class::KubeletCall,
        what: HookRole::Mark(Mark::Result(ERROR_AFTER_STRING)),
        at_call: None,
        versions: "kubelet 1.6 and later, unless inlined",
        lost_without: Some("whether counted calls failed"),
    },
    // hook: kubelet 1.5..1.30: pkg/kubelet/cri/remote.(*remoteRuntimeService).X
    Row {
        id: "client-runtime-old",
        components: KUBELET,
        select: Select::Methods(&["remote.(*remoteRuntimeService)"]),
        class: Class::KubeletClient,
        what: calls(Layer::KubeletClient, End::Marks),
        at_call: None,
        versions: "kubelet up to 1.30",
        lost_without: None,
    },
    // hook: kubelet 1.5..1.30: pkg/kubelet/cri/remote.(*remoteImageService).X
    Row {
        id: "client-image-old",
        components: KUBELET,
        select: Select::Methods(&["remote.(*remoteImageService)"]),
        class: Class::KubeletClient,
        what: calls(Layer::KubeletClient, End::Marks),
        at_call: None,
        versions: "kubelet up to 1.30",
        lost_without: None,
    },
    // hook: kubelet 1.31..: staging/src/k8s.io/cri-client/pkg.(*remoteRuntimeService).X
    Row {
        id: "client-runtime",
        components: KUBELET,
        select: Select::Methods(&["cri-client/pkg.(*remoteRuntimeService)"]),
        class: Class::KubeletClient,
        what: calls(Layer::KubeletClient, End::Marks),
        at_call: None,
        versions: "kubelet 1.31 and later",
        lost_without: None,
    },
    // hook: kubelet 1.31..: staging/src/k8s.io/cri-client/pkg.(*remoteImageService).X
    Row {
        id: "client-image",
        components: KUBELET,
        select: Select::Methods(&["cri-client/pkg.(*remoteImageService)"]),
        class: Class::KubeletClient,
        what: calls(Layer::KubeletClient, End::Marks),
        at_call: None,
        versions: "kubelet 1.31 and later",
        lost_without: None,
    },
    // hook: grpc-go 1.8..: (*clientStream).finish(err error), on the caller's goroutine for unary calls
    Row {
        id: "client-end",
        components: KUBELET,
        select: Select::Function { owner: "google.golang.org/grpc.(*clientStream)", names: &["finish"] },
        class: Class::KubeletClient,
        what: HookRole::Mark(Mark::End(Some(ERROR_AFTER_RECEIVER))),
        at_call: None,
        versions: "grpc-go 1.8 and later",
        lost_without: Some("the ends of bare client calls"),
    },
    // hook: grpc-go 1.0..1.68: internal/transport.(*http2Client).Write(s *Stream, …); later write(s *ClientStream, …); on the
    // caller's goroutine for unary calls
    Row {
        id: "client-stream",
        components: KUBELET,
        select: Select::Function { owner: "transport.(*http2Client)", names: &["Write", "write"] },
        class: Class::KubeletClient,
        what: HookRole::Mark(Mark::Sent(SECOND, &["ClientStream", "Stream"])),
        at_call: None,
        versions: "grpc-go 1.0 and later",
        lost_without: None,
    },
    // hook: cri-api v1alpha2: pkg/apis/runtime/v1alpha2._RuntimeService_X_Handler
    Row {
        id: "handler-v1alpha2",
        components: SERVERS,
        select: Select::Handlers { package: "runtime/v1alpha2", service: "RuntimeService" },
        class: Class::Handler,
        what: calls(Layer::Handler, End::Marks),
        at_call: None,
        versions: "containerd up to 1.7",
        lost_without: None,
    },
    // hook: cri-api v1alpha2: pkg/apis/runtime/v1alpha2._ImageService_X_Handler
    Row {
        id: "image-v1alpha2",
        components: SERVERS,
        select: Select::Handlers { package: "runtime/v1alpha2", service: "ImageService" },
        class: Class::Handler,
        what: calls(Layer::Handler, End::Marks),
        at_call: None,
        versions: "containerd up to 1.7",
        lost_without: None,
    },
    // hook: cri-api v1: pkg/apis/runtime/v1._RuntimeService_X_Handler
    Row {
        id: "handler-v1",
        components: SERVERS,
        select: Select::Handlers { package: "runtime/v1", service: "RuntimeService" },
        class: Class::Handler,
        what: calls(Layer::Handler, End::Marks),
        at_call: None,
        versions: "containerd 1.6 and later",
        lost_without: None,
    },
    // hook: cri-api v1: pkg/apis/runtime/v1._ImageService_X_Handler
    Row {
        id: "image-v1",
        components: SERVERS,
        select: Select::Handlers { package: "runtime/v1", service: "ImageService" },
        class: Class::Handler,
        what: calls(Layer::Handler, End::Marks),
        at_call: None,
        versions: "containerd 1.6 and later",
        lost_without: None,
    },
    // hook: grpc-go 1.0..: (*Server).sendResponse, after the handler returned without an error. Since grpc-go#9309 (2026) unary calls
    // run as streams in (*Server).processRPC, and the reply goes by (*serverStream).SendMsg. Before, only streams used that: where
    // (*Server).processRPC is missing, it says nothing about a unary handler
    Row {
        id: "handler-reply",
        components: SERVERS,
        select: Select::BySign {
            sign: ("google.golang.org/grpc.(*Server)", "processRPC"),
            with: ("google.golang.org/grpc.(*serverStream)", "SendMsg"),
            without: ("google.golang.org/grpc.(*Server)", "sendResponse"),
        },
        class: Class::Handler,
        what: HookRole::Mark(Mark::Reply),
        at_call: None,
        versions: "grpc-go 1.0 and later",
        lost_without: Some("whether handlers failed"),
    },
    // hook: grpc-go 1.0..1.70: internal/transport.(*http2Server).WriteStatus; later writeStatus
    Row {
        id: "handler-end",
        components: SERVERS,
        select: Select::Function {
            owner: "transport.(*http2Server)",
            names: &["WriteStatus", "writeStatus"],
        },
        class: Class::Handler,
        what: HookRole::Mark(Mark::End(None)),
        at_call: None,
        versions: "grpc-go 1.0 and later",
        lost_without: Some("the ends of CRI handlers"),
    },
    // hook: grpc-go 1.0..: (*Server).handleStream(t ServerTransport, stream *Stream); later *ServerStream
    Row {
        id: "served-stream",
        components: SERVERS,
        select: Select::Function { owner: "google.golang.org/grpc.(*Server)", names: &["handleStream"] },
        class: Class::Handler,
        what: HookRole::Mark(Mark::Came(AFTER_INTERFACE, &["ServerStream", "Stream"])),
        at_call: None,
        versions: "grpc-go 1.0 and later",
        lost_without: None,
    },
    // hook: Go 1.5..1.27: runtime.gopark (src/runtime/proc.go): every wait of a goroutine but system calls
    Row {
        id: "park",
        components: CALLERS,
        select: Select::Runtime("gopark"),
        class: Class::Scheduler,
        what: HookRole::Mark(Mark::Park(WAIT_REASON)),
        at_call: None,
        versions: "Go 1.5 and later",
        lost_without: None,
    },
    // hook: Go 1.5..1.27: runtime.execute (src/runtime/proc.go): the scheduler runs a goroutine
    Row {
        id: "resume",
        components: CALLERS,
        select: Select::Runtime("execute"),
        class: Class::Scheduler,
        what: HookRole::Mark(Mark::Resume(FIRST)),
        at_call: None,
        versions: "Go 1.5 and later",
        lost_without: None,
    },
];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Ids are unique, and every class with calls that end at marks has a mark that ends them.
    #[test]
    fn rows_are_consistent() {
        let ids: HashSet<_> = CATALOGUE.iter().map(|row| row.id).collect();
        assert_eq!(ids.len(), CATALOGUE.len());
        for row in CATALOGUE {
            if matches!(row.what, HookRole::Calls { end: End::Marks, .. }) {
                let ended = CATALOGUE
                    .iter()
                    .any(|r| r.class == row.class && matches!(r.what, HookRole::Mark(Mark::End(_))));
                assert!(ended, "nothing ends {}", row.id);
            }
        }
    }
}
