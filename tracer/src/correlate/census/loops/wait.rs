//! The stack of a goroutine of a kubelet, from its innermost function out to its loop → what it waits for.

use crate::{
    correlate::census::frames::{is_at_lock, is_file_call},
    input::{DEVICE_PLUGINS, DRIVERS, GoroutineGroup, REGISTRY},
};

/// What a loop of a kubelet waits for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LoopWait {
    /// The answer of a plugin.
    Plugin {
        /// Of which kind.
        plugin: PluginKind,
        /// What it was asked: "Allocate", "NodePublishVolume", …; `None` when the stack does not show it.
        method: Option<String>,
    },
    /// A lock of the kubelet.
    Lock {
        /// The function that wants it: a full Go name. Hostile text.
        by: Option<String>,
    },
    /// The answer of the API server.
    Api {
        /// It has not even sent its request: it waits for its turn, by the kubelet's own limit of requests.
        throttled: bool,
    },
    /// The container runtime.
    Runtime,
    /// The end of a program.
    Program,
    /// A call to a file system.
    File,
    /// An answer over D-Bus.
    Bus,
    /// Another goroutine of the kubelet: a channel or a group.
    Goroutine,
    /// Time: it sleeps.
    Time,
    /// The stack does not tell.
    Unknown,
}

/// Kinds of plugins of a kubelet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PluginKind {
    /// A device plugin.
    Device,
    /// A driver of dynamic resource allocation.
    Dra,
    /// A driver of volumes (CSI).
    Csi,
    /// One that registers: of which kind shows only later.
    Registering,
    /// Another program that the kubelet asks over gRPC.
    Other,
}

impl PluginKind {
    /// What it is called.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Device => "device plugin",
            Self::Dra => "DRA driver",
            Self::Csi => "CSI driver",
            Self::Registering => "plugin that registers",
            Self::Other => "gRPC server",
        }
    }

    /// Stable name for JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Device => "device_plugin",
            Self::Dra => "dra_driver",
            Self::Csi => "csi_driver",
            Self::Registering => "registering_plugin",
            Self::Other => "grpc_server",
        }
    }

    /// Part of the path of its socket; `None` when that can be any.
    pub(super) fn directory(self) -> Option<&'static str> {
        match self {
            Self::Device => Some(DEVICE_PLUGINS),
            Self::Dra | Self::Csi => Some(DRIVERS),
            Self::Registering => Some(REGISTRY),
            Self::Other => None,
        }
    }
}

impl LoopWait {
    /// Stable name for JSON.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Plugin { plugin, .. } => plugin.name(),
            Self::Lock { .. } => "lock",
            Self::Api { throttled: false } => "api_server",
            Self::Api { throttled: true } => "api_rate_limit",
            Self::Runtime => "runtime",
            Self::Program => "program",
            Self::File => "file_system",
            Self::Bus => "bus",
            Self::Goroutine => "goroutine",
            Self::Time => "time",
            Self::Unknown => "unknown",
        }
    }

    /// What a goroutine of a kubelet waits for, whatever it does.
    #[must_use]
    pub fn of_goroutine(group: &GoroutineGroup) -> Self {
        Self::of(group, group.frames.len())
    }

    /// What the first `inner` functions of this goroutine wait for.
    pub(super) fn of(group: &GoroutineGroup, inner: usize) -> Self {
        let frames = &group.frames[..inner.min(group.frames.len())];
        let start = frames.iter().position(|frame| !is_runtime(frame)).unwrap_or(frames.len());
        let called = &frames[start..];
        if is_at_lock(called) {
            return Self::Lock { by: called.iter().find(|frame| !is_lock(frame)).cloned() };
        }
        if called.first().is_some_and(|frame| frame == "time.Sleep") {
            return Self::Time;
        }
        if is_file_call(frames) {
            return Self::File;
        }
        let known = called.iter().find_map(|frame| by_function(frame, frames));
        known.unwrap_or_else(|| by_reason(group.wait_reason.as_deref(), called))
    }
}

/// Functions of Go's scheduler.
fn is_runtime(frame: &str) -> bool {
    frame.starts_with("runtime.")
}

fn is_lock(frame: &str) -> bool {
    ["sync.", "internal/sync."].iter().any(|package| frame.starts_with(package))
}

fn by_function(frame: &str, frames: &[String]) -> Option<LoopWait> {
    let has = |parts: &[&str]| parts.iter().any(|part| frame.contains(part));
    if has(&["/rate.(*Limiter).", "util/flowcontrol.(*tokenBucket"]) {
        return Some(LoopWait::Api { throttled: true });
    }
    if has(&["client-go/rest.(*Request)."]) {
        return Some(LoopWait::Api { throttled: false });
    }
    if has(&["os/exec.(*Cmd).", "os.(*Process).", "k8s.io/utils/exec."]) {
        return Some(LoopWait::Program);
    }
    if has(&["godbus/dbus"]) {
        return Some(LoopWait::Bus);
    }
    if has(&["grpc.(*ClientConn).Invoke", "grpc.(*clientStream).", "grpc.DialContext"]) {
        return Some(asked(frames));
    }
    // The Docker of kubelets before 1.24.
    has(&["kubelet/dockershim", "docker/client.(*Client)."]).then_some(LoopWait::Runtime)
}

/// Parts of functions by which a client of gRPC in the kubelet is known, the surest first.
const CLIENTS: [(&str, Option<PluginKind>); 12] = [
    ("untimeServiceClient).", None),
    ("mageServiceClient).", None),
    ("evicePluginClient).", Some(PluginKind::Device)),
    ("egistrationClient).", Some(PluginKind::Registering)),
    ("/apis/dra", Some(PluginKind::Dra)),
    ("container-storage-interface/", Some(PluginKind::Csi)),
    ("kubelet/cm/devicemanager", Some(PluginKind::Device)),
    ("kubelet/cm/dra", Some(PluginKind::Dra)),
    ("pkg/volume/csi.", Some(PluginKind::Csi)),
    ("kubelet/pluginmanager/", Some(PluginKind::Registering)),
    ("kubelet/cri/remote.", None),
    ("cri-client/pkg.", None),
];

/// Whom a client of gRPC asks.
fn asked(frames: &[String]) -> LoopWait {
    let client = |(part, kind): &(&str, Option<PluginKind>)| {
        frames.iter().any(|frame| frame.contains(part)).then_some(*kind)
    };
    match CLIENTS.iter().find_map(client) {
        Some(None) => LoopWait::Runtime,
        Some(Some(plugin)) => LoopWait::Plugin { plugin, method: method(frames) },
        None => LoopWait::Plugin { plugin: PluginKind::Other, method: method(frames) },
    }
}

/// `…v1beta1.(*devicePluginClient).Allocate`, `…csi.(*nodeClient).NodePublishVolume` → the method: that of the innermost client that was
/// generated from a service.
fn method(frames: &[String]) -> Option<String> {
    let of = |frame: &String| {
        let (receiver, method) = frame.rsplit_once(").")?;
        let is_client = receiver.ends_with("Client") && !receiver.contains("grpc.(*");
        let is_client = is_client || receiver.ends_with("/csi.(*nodeClient");
        (is_client && method.bytes().all(|b| b.is_ascii_alphanumeric())).then(|| method.to_owned())
    };
    frames.iter().find_map(of)
}

fn by_reason(reason: Option<&str>, called: &[String]) -> LoopWait {
    let waits = ["sync.(*WaitGroup).Wait", "sync.(*Cond).Wait"];
    let for_group = called.iter().take(4).any(|frame| waits.contains(&frame.as_str()));
    match reason {
        Some("sleep") => LoopWait::Time,
        Some("chan receive" | "chan send" | "chan receive (nil chan)" | "chan send (nil chan)") => {
            LoopWait::Goroutine
        }
        _ if for_group => LoopWait::Goroutine,
        _ => LoopWait::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CM: &str = "k8s.io/kubernetes/pkg/kubelet/cm";
    const VENDOR: &str = "k8s.io/kubernetes/vendor";

    fn waits(reason: &str, frames: &[&str]) -> LoopWait {
        let frames: Vec<String> = frames.iter().map(|frame| (*frame).to_owned()).collect();
        let inner = frames.len();
        let group = GoroutineGroup {
            count: 1,
            goids: vec![7],
            fingerprints: vec![1],
            state: if reason == "syscall" { "syscall" } else { "waiting" }.to_owned(),
            wait_reason: Some(reason.to_owned()),
            parked_by_ns: None,
            frames,
            broken: None,
            subjects: Vec::new(),
        };
        LoopWait::of(&group, inner)
    }

    fn plugin(plugin: PluginKind, method: &str) -> LoopWait {
        LoopWait::Plugin { plugin, method: Some(method.to_owned()) }
    }

    /// Plugins of old and new kubelets, and the runtime, which is asked by the same client of gRPC.
    #[test]
    fn whom_a_client_asks() {
        let ask = |inner: &[&str]| {
            let grpc = [
                "runtime.gopark",
                "runtime.selectgo",
                "google.golang.org/grpc/internal/transport.(*Stream).waitOnHeader",
            ];
            let invoke = ["google.golang.org/grpc.invoke", "google.golang.org/grpc.(*ClientConn).Invoke"];
            waits("select", &[&grpc[..], &invoke[..], inner].concat())
        };
        let (endpoint, old) = (
            format!("{CM}/devicemanager.(*endpointImpl).allocate"),
            format!("{VENDOR}/k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1.(*devicePluginClient).Allocate"),
        );
        let new = "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1.(*devicePluginClient).Allocate";
        for client in [old.as_str(), new] {
            assert_eq!(ask(&[client, &endpoint]), plugin(PluginKind::Device, "Allocate"));
        }
        assert_eq!(ask(&[&endpoint]), LoopWait::Plugin { plugin: PluginKind::Device, method: None });
        let csi = [
            "github.com/container-storage-interface/spec/lib/go/csi.(*nodeClient).NodePublishVolume",
            "k8s.io/kubernetes/pkg/volume/csi.(*csiDriverClient).NodePublishVolume",
        ];
        assert_eq!(ask(&csi), plugin(PluginKind::Csi, "NodePublishVolume"));
        let dra = [
            "k8s.io/kubelet/pkg/apis/dra/v1.(*dRAPluginClient).NodePrepareResources",
            &format!("{CM}/dra/plugin.(*DRAPlugin).NodePrepareResources"),
        ];
        assert_eq!(ask(&dra), plugin(PluginKind::Dra, "NodePrepareResources"));
        let registers = ["k8s.io/kubelet/pkg/apis/pluginregistration/v1.(*registrationClient).GetInfo"];
        assert_eq!(ask(&registers), plugin(PluginKind::Registering, "GetInfo"));
        for client in [
            "k8s.io/cri-api/pkg/apis/runtime/v1.(*runtimeServiceClient).StopContainer",
            "k8s.io/kubernetes/pkg/kubelet/cri/remote.(*remoteImageService).PullImage",
        ] {
            assert_eq!(
                ask(&[client, "k8s.io/kubernetes/pkg/kubelet.(*podWorkers).podWorkerLoop"]),
                LoopWait::Runtime
            );
        }
        assert_eq!(ask(&["main.x"]), LoopWait::Plugin { plugin: PluginKind::Other, method: None });
    }

    /// A lock, of Go before and since 1.24, with who wants it; also below a call of gRPC that never went out. Who waits for a group or
    /// a condition waits for no lock.
    #[test]
    fn locks() {
        let diff = "github.com/google/cadvisor/manager.(*manager).getContainersDiff";
        let lock = |by: &str| LoopWait::Lock { by: Some(by.to_owned()) };
        let read = [
            "runtime.gopark",
            "runtime.semacquire1",
            "sync.runtime_SemacquireMutex",
            "sync.(*RWMutex).RLock",
            diff,
        ];
        assert_eq!(waits("semacquire", &read), lock(diff));
        let exit = "google.golang.org/grpc/internal/idle.(*Manager).ExitIdleMode";
        let new = [
            "runtime.gopark",
            "runtime.semacquire1",
            "internal/sync.runtime_SemacquireMutex",
            "internal/sync.(*Mutex).lockSlow",
            "internal/sync.(*Mutex).Lock",
            "sync.(*Mutex).Lock",
            exit,
            "google.golang.org/grpc.(*ClientConn).Invoke",
        ];
        assert_eq!(waits("sync.Mutex.Lock", &new), lock(exit));
        // As bookworm's Go compiles it, which inlines RLock and Lock (seen in a kubelet of the lab).
        let get = "k8s.io/kubernetes/pkg/kubelet/pod.(*basicManager).GetPods";
        let inlined = [
            "runtime.gopark",
            "runtime.goparkunlock",
            "runtime.semacquire1",
            "sync.runtime_SemacquireMutex",
            get,
        ];
        assert_eq!(waits("semacquire", &inlined), lock(get));
        let slow = ["runtime.semacquire1", "sync.runtime_SemacquireMutex", "sync.(*Mutex).lockSlow", get];
        assert_eq!(waits("semacquire", &slow), lock(get));
        let group = [
            "runtime.gopark",
            "runtime.semacquire1",
            "sync.runtime_Semacquire",
            "sync.(*WaitGroup).Wait",
            "main.x",
        ];
        assert_eq!(waits("semacquire", &group), LoopWait::Goroutine);
        assert_eq!(waits("sync.WaitGroup.Wait", &group), LoopWait::Goroutine);
        assert_eq!(waits("chan send", &["runtime.chansend", "main.x"]), LoopWait::Goroutine);
        assert_eq!(waits("select", &["runtime.selectgo", "main.x"]), LoopWait::Unknown);
    }

    /// The API server, or the kubelet's own limit in front of it; a program, a file, the bus, time.
    #[test]
    fn others() {
        let rest = format!("{VENDOR}/k8s.io/client-go/rest.(*Request).request");
        let round = "net/http.(*http2ClientConn).RoundTrip";
        assert_eq!(
            waits("select", &["runtime.selectgo", round, "net/http.(*Client).do", &rest]),
            LoopWait::Api { throttled: false }
        );
        let limiter = "golang.org/x/time/rate.(*Limiter).WaitN";
        assert_eq!(waits("select", &["runtime.selectgo", limiter, &rest]), LoopWait::Api { throttled: true });
        let refresh = "k8s.io/client-go/plugin/pkg/client/auth/exec.(*Authenticator).refreshCredsLocked";
        assert_eq!(
            waits(
                "chan receive",
                &["runtime.chanrecv1", "os/exec.(*Cmd).Wait", "os/exec.(*Cmd).Run", refresh, &rest]
            ),
            LoopWait::Program
        );
        assert_eq!(
            waits("syscall", &["syscall.Syscall", "syscall.Stat", "os.Stat", "main.x"]),
            LoopWait::File
        );
        assert_eq!(
            waits(
                "chan receive",
                &["runtime.chanrecv1", "github.com/godbus/dbus/v5.(*Object).Call", "main.x"]
            ),
            LoopWait::Bus
        );
        assert_eq!(waits("sleep", &["runtime.gopark", "time.Sleep", "main.x"]), LoopWait::Time);
    }
}
