//! [`Row`]: one line of the catalogue, and how a Go symbol finds its row.

use crate::{
    cri::Method,
    input::{Component, Layer},
};

/// Pairing group: starts and ends of one group meet. The number travels to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
#[expect(missing_docs, reason = "one per layer, described there")]
pub enum Class {
    Relist = 1,
    ListPhase = 2,
    StatusPhase = 3,
    KubeletCall = 4,
    KubeletClient = 5,
    Handler = 6,
    Scheduler = 7,
    /// What runc itself does.
    RuncStep = 8,
    /// Where runc waits for hooks and for systemd, which is what holds it up most often.
    RuncWait = 9,
    PodRelist = 10,
}

/// Which functions a row means. Go symbols are matched on their end, because build modes prefix packages
/// (`k8s.io/kubernetes/vendor/…`, `github.com/containerd/containerd/vendor/…`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Select {
    /// CRI methods of a type, by what it was called over the versions: package and receiver as they end, before the last dot.
    Methods(&'static [&'static str]),
    /// gRPC handlers `_Service_Method_Handler` of a package: its path as it ends, and the service.
    Handlers {
        /// End of the package path.
        package: &'static str,
        /// Service name.
        service: &'static str,
    },
    /// One function: package and receiver as they end, and its names over the versions.
    Function {
        /// End of package and receiver.
        owner: &'static str,
        /// Its names.
        names: &'static [&'static str],
    },
    /// Several functions that do the same thing in different versions: each as in [`Select::Function`].
    Functions(&'static [(&'static str, &'static [&'static str])]),
    /// One function where the program has another one, which says that it is of a newer design, and a different one where not.
    BySign {
        /// What says so.
        sign: Named,
        /// The function where it is there.
        with: Named,
        /// The function where it is not.
        without: Named,
    },
    /// One function of Go's own package `runtime`, and of no other package of that name.
    Runtime(&'static str),
}

/// Package and receiver of a function as they end, and its name.
pub type Named = (&'static str, &'static str);

impl Select {
    /// Does it take this function, which it matches, in a program that has these?
    #[must_use]
    pub fn takes<'a>(self, symbol: &str, mut all: impl Iterator<Item = &'a str>) -> bool {
        let Self::BySign { sign, with, without } = self else { return true };
        let has_sign = all.any(|symbol| is_named(symbol, sign));
        is_named(symbol, if has_sign { with } else { without })
    }
}

/// Where an error result lies, or an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WordPlace {
    /// Number of its type word among the integer registers (register ABI).
    pub register: u8,
    /// Offset of its type word from SP (stack ABI of Go ≤ 1.16).
    pub stack: u32,
}

/// How calls of a row end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// At the RETs of the function: exact, but a RET is single-stepped (9 µs in a VM), so only for rare functions.
    Returns(Option<WordPlace>),
    /// At the marks of the class.
    Marks,
    /// With the program of the process: when all goes well the function does not return, it executes another program.
    /// What is left open then is taken out by who reads the open calls.
    WithProgram,
}

/// What a mark does to the open call of its class on its goroutine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Ends it; shows the error result if there is one.
    End(Option<WordPlace>),
    /// It hands over its reply.
    Reply,
    /// Shows its error result.
    Result(WordPlace),
    /// The goroutine gives its thread away; the wait reason is there.
    Park(WordPlace),
    /// The scheduler runs the goroutine whose `runtime.g` is there.
    Resume(WordPlace),
    /// It goes out as a stream of HTTP/2, whose struct is there.
    Sent(WordPlace, StreamTypes),
    /// The next one came in as a stream of HTTP/2, whose struct is there.
    Came(WordPlace, StreamTypes),
}

/// Names of grpc-go's struct of a stream, the newest first: a program that describes one of them has no older one there.
pub type StreamTypes = &'static [&'static str];

impl Mark {
    /// The structs in which it finds the number of a stream; none when it looks for something else.
    #[must_use]
    pub fn stream_types(self) -> StreamTypes {
        match self {
            Self::Sent(_, types) | Self::Came(_, types) => types,
            _ => &[],
        }
    }

    /// Does it belong to the source `parks`?
    #[must_use]
    pub fn is_park(self) -> bool {
        matches!(self, Self::Park(_) | Self::Resume(_))
    }
}

/// What a row hooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookRole {
    /// Calls, from the stack check to their end.
    Calls {
        /// Where they stand in the chain.
        layer: Layer,
        /// How they end.
        end: End,
    },
    /// A function that says something about the open call of its class.
    Mark(Mark),
}

/// One line of the catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Stable name.
    pub id: &'static str,
    /// In which programs.
    pub components: &'static [Component],
    /// Which functions.
    pub select: Select,
    /// Pairing group.
    pub class: Class,
    /// What is done there.
    pub what: HookRole,
    /// Full name of a function that it calls: the mark sits at that call instead of the stack check, when there is
    /// exactly one.
    pub at_call: Option<&'static str>,
    /// Versions in which the function is known to exist.
    pub versions: &'static str,
    /// What the report lacks when no function matches; `None` when another row replaces it.
    pub lost_without: Option<&'static str>,
}

/// A function that a row wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The row.
    pub row: &'static Row,
    /// CRI method or the function's own name.
    pub operation: String,
    /// gRPC service, or package and receiver.
    pub service: String,
}

/// The row of `rows` that wants the Go function `symbol`, if one does.
#[must_use]
pub fn wanted(rows: &'static [Row], component: Component, symbol: &str) -> Option<Wanted> {
    let (owner, name) = symbol.rsplit_once('.')?;
    rows.iter().filter(|row| row.components.contains(&component)).find_map(|row| {
        let (operation, service) = matches(row.select, owner, name)?;
        Some(Wanted { row, operation: operation.to_owned(), service })
    })
}

/// Operation and service of a symbol under a selection.
fn matches<'a>(select: Select, owner: &str, name: &'a str) -> Option<(&'a str, String)> {
    match select {
        Select::Methods(receivers) => {
            let receiver = receivers.iter().find(|receiver| ends_at_boundary(owner, receiver))?;
            Method::from_name(name).map(|_| (name, (*receiver).to_owned()))
        }
        Select::Handlers { package, service } => {
            let method = name.strip_prefix('_')?.strip_prefix(service)?.strip_prefix('_')?;
            let method = method.strip_suffix("_Handler")?;
            let ours = ends_at_boundary(owner, package) && Method::from_name(method).is_some();
            let version = package.rsplit('/').next().unwrap_or(package);
            ours.then(|| (method, format!("runtime.{version}.{service}")))
        }
        Select::Function { owner: wanted, names } => {
            let ours = names.contains(&name) && ends_at_boundary(owner, wanted);
            ours.then(|| (name, wanted.to_owned()))
        }
        Select::Functions(all) => all.iter().find_map(|(wanted, names)| {
            let ours = names.contains(&name) && ends_at_boundary(owner, wanted);
            ours.then(|| (name, (*wanted).to_owned()))
        }),
        Select::BySign { with, without, .. } => [with, without].into_iter().find_map(|(wanted, known)| {
            (name == known && ends_at_boundary(owner, wanted)).then(|| (name, wanted.to_owned()))
        }),
        Select::Runtime(wanted) => (owner == "runtime" && name == wanted).then(|| (name, owner.to_owned())),
    }
}

fn is_named(symbol: &str, (owner, name): Named) -> bool {
    symbol.rsplit_once('.').is_some_and(|(of, called)| called == name && ends_at_boundary(of, owner))
}

/// Does `path` end with `end`, on the border of a path element?
fn ends_at_boundary(path: &str, end: &str) -> bool {
    path.strip_suffix(end).is_some_and(|before| before.is_empty() || before.ends_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::CATALOGUE;

    fn row_of(component: Component, symbol: &str) -> Option<(&'static str, String, String)> {
        wanted(CATALOGUE, component, symbol).map(|w| (w.row.id, w.operation, w.service))
    }

    /// Prefixes of build modes do not matter; borders of path elements do.
    #[test]
    fn symbols_are_matched_on_their_end() {
        let handler = |path: &str| row_of(Component::Containerd, path);
        let expected =
            Some(("handler-v1", "ListContainers".to_owned(), "runtime.v1.RuntimeService".to_owned()));
        assert_eq!(
            handler("k8s.io/cri-api/pkg/apis/runtime/v1._RuntimeService_ListContainers_Handler"),
            expected
        );
        assert_eq!(
            handler(
                "github.com/containerd/containerd/vendor/k8s.io/cri-api/pkg/apis/runtime/v1._RuntimeService_ListContainers_Handler"
            ),
            expected
        );
        assert_eq!(handler("runtime.gopark").map(|(id, ..)| id), Some("park"));
        assert_eq!(handler("example.com/runtime.gopark"), None);
        assert_eq!(handler("example.com/myruntime/v1._RuntimeService_ListContainers_Handler"), None);
        assert_eq!(handler("k8s.io/x/runtime/v1._RuntimeService_ListContainers_Handler.func1"), None);
    }

    /// The kubelet's two layers, and the namesakes that are not ours.
    #[test]
    fn kubelet_layers() {
        let id = |symbol: &str| row_of(Component::Kubelet, symbol).map(|(id, ..)| id);
        let pkg = "k8s.io/kubernetes/pkg/kubelet";
        assert_eq!(
            id(&format!("{pkg}/kuberuntime.instrumentedRuntimeService.ListContainers")),
            Some("counted-runtime")
        );
        assert_eq!(id(&format!("{pkg}/kuberuntime.(*instrumentedRuntimeService).ListContainers")), None);
        assert_eq!(id(&format!("{pkg}/kuberuntime.recordOperation")), Some("counted-end"));
        assert_eq!(id(&format!("{pkg}/dockershim/libdocker.recordOperation")), None);
        assert_eq!(
            id(&format!("{pkg}/cri/remote.(*remoteRuntimeService).ListContainers")),
            Some("client-runtime-old")
        );
        assert_eq!(
            id("k8s.io/cri-client/pkg.(*remoteRuntimeService).ListContainers"),
            Some("client-runtime")
        );
        assert_eq!(id(&format!("{pkg}/pleg.(*GenericPLEG).Relist")), Some("relist"));
        assert_eq!(id(&format!("{pkg}/pleg.(*GenericPLEG).relist")), Some("relist"));
        assert_eq!(id(&format!("{pkg}/pleg.(*GenericPLEG).relistPod")), Some("relist-pod"));
        let manager = format!("{pkg}/kuberuntime.(*kubeGenericRuntimeManager)");
        assert_eq!(id(&format!("{manager}.GetPods")), Some("list-phase"));
        assert_eq!(id(&format!("{manager}.GetPod")), Some("list-phase-pod"));
        assert_eq!(id(&format!("{manager}.GetPodStatus")), None);
    }

    /// What the kubelet counts moves to another package in 1.38 (kubernetes#141480), with the same types and functions.
    #[test]
    fn counted_calls_of_1_38() {
        let of = |symbol: &str| row_of(Component::Kubelet, symbol).map(|(id, ..)| id);
        let pkg = "k8s.io/kubernetes/pkg/kubelet/metrics/cri";
        assert_eq!(of(&format!("{pkg}.instrumentedRuntimeService.ListContainers")), Some("counted-runtime"));
        assert_eq!(of(&format!("{pkg}.instrumentedImageManagerService.PullImage")), Some("counted-image"));
        assert_eq!(of(&format!("{pkg}.recordOperation")), Some("counted-end"));
        assert_eq!(of(&format!("{pkg}.recordError")), Some("counted-error"));
        assert_eq!(of("example.com/cri.recordOperation"), None);
    }

    /// A unary handler replies by `sendResponse`; in a grpc-go whose unary calls are streams (grpc-go#9309) by `SendMsg`. That
    /// says nothing where it is only for streams, also when `sendResponse` is missing.
    #[test]
    fn replies_by_the_design_of_grpc() {
        let grpc = |name: &str| format!("github.com/x/vendor/google.golang.org/grpc.{name}");
        let (old, new) = (grpc("(*Server).sendResponse"), grpc("(*serverStream).SendMsg"));
        let sign = grpc("(*Server).processRPC");
        let taken = |all: &[&str]| -> Vec<String> {
            let wants = |symbol: &&&str| {
                wanted(CATALOGUE, Component::Containerd, symbol)
                    .is_some_and(|found| found.row.select.takes(symbol, all.iter().copied()))
            };
            all.iter().filter(wants).map(|symbol| (*symbol).to_owned()).collect()
        };
        assert_eq!(taken(&[&old, &new]), [old.as_str()]);
        assert_eq!(taken(&[&sign, &new]), [new.as_str()]);
        assert_eq!(taken(&[&sign, &old, &new]), [new.as_str()], "what nobody calls any more says nothing");
        assert!(taken(&[&new]).is_empty());
    }
}
