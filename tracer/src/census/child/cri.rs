//! Asks the runtime itself: which pods and containers it has, their names, and whether it believes that they run; and whether it is ready.
//! Two lists and its status, which change nothing, on a connection that is closed at once; all within one deadline.
//!
//! `Status` waits for the network plugin's configuration, and where that hangs, so does each call, for ever. So a runtime that has not
//! answered it once is not asked again.

use std::{
    fs::File,
    io,
    os::{fd::AsRawFd as _, unix::fs::OpenOptionsExt as _},
    path::PathBuf,
    time::{Duration, Instant},
};

use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::{net::UnixStream, runtime::Builder, time::timeout};
use tonic::{
    Code, Request, Status,
    transport::{Channel, Endpoint, Uri},
};
use tonic_prost::ProstCodec;

use crate::{
    census::{
        child::{kept::Kept, read, tell::Tell},
        clock,
        protocol::{Answer, Runtime, Step},
    },
    cri::Method,
    input::{CallError, ContainerFact, OwnCall, RuntimeCondition, RuntimeSays, RuntimeState},
};

/// For everything; the parent gives a little more.
const DEADLINE: Duration = Duration::from_millis(1000);
/// For the status, beside that: it comes from memory, or not at all.
const STATUS: Duration = Duration::from_millis(300);
/// Conditions that are told: a runtime has two or three.
const MAX_CONDITIONS: usize = 8;
/// Longest answer, the same as a kubelet's (16 MiB since Kubernetes 1.9); a container in a list has about 1 KB.
const MAX_ANSWER: usize = 16 << 20;
/// Of an error, as many characters are kept.
const MAX_ERROR: usize = 200;
/// Sandboxes and containers that are told.
const MAX_TOLD: usize = 4096;
/// Longest name that is told.
const MAX_NAME: usize = 512;
/// Versions of the CRI, by preference: containerd 1.6 and later have the first, up to 1.7 the second.
const VERSIONS: [&str; 2] = ["v1", "v1alpha2"];
/// What somebody who has no such service says.
const UNKNOWN_SERVICE: Code = Code::Unimplemented;

/// `ListPodSandboxRequest`, `ListContainersRequest`: without a filter.
#[derive(Clone, PartialEq, Message)]
struct Empty {}

/// The messages of `k8s.io/cri-api/pkg/apis/runtime/{v1,v1alpha2}/api.proto`, as far as they are of interest: both
/// versions have the same numbers.
#[derive(Clone, PartialEq, Message)]
struct SandboxMetadata {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "3")]
    namespace: String,
}

#[derive(Clone, PartialEq, Message)]
struct Sandbox {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(message, optional, tag = "2")]
    metadata: Option<SandboxMetadata>,
    #[prost(int32, tag = "3")]
    state: i32,
}

#[derive(Clone, PartialEq, Message)]
struct Sandboxes {
    #[prost(message, repeated, tag = "1")]
    items: Vec<Sandbox>,
}

#[derive(Clone, PartialEq, Message)]
struct ContainerMetadata {
    #[prost(string, tag = "1")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct Container {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(string, tag = "2")]
    sandbox: String,
    #[prost(message, optional, tag = "3")]
    metadata: Option<ContainerMetadata>,
    #[prost(int32, tag = "6")]
    state: i32,
}

#[derive(Clone, PartialEq, Message)]
struct Containers {
    #[prost(message, repeated, tag = "1")]
    containers: Vec<Container>,
}

#[derive(Clone, PartialEq, Message)]
struct Condition {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(bool, tag = "2")]
    status: bool,
    #[prost(string, tag = "3")]
    reason: String,
    #[prost(string, tag = "4")]
    message: String,
}

#[derive(Clone, PartialEq, Message)]
struct Conditions {
    #[prost(message, repeated, tag = "1")]
    conditions: Vec<Condition>,
}

#[derive(Clone, PartialEq, Message)]
struct StatusAnswer {
    #[prost(message, optional, tag = "1")]
    status: Option<Conditions>,
}

/// Asks, and tells what it says.
pub(super) fn ask(tell: &mut Tell, runtime: &Runtime, kept: &mut Kept) -> io::Result<()> {
    let comm = read::stat(&tell.process(runtime.pid)).map(|stat| stat.comm).unwrap_or_default();
    if !tell.ask(runtime.pid, &comm, Step::Runtime)? {
        return Ok(());
    }
    let (mut calls, mut conditions) = (Vec::new(), Vec::new());
    let asks_status = !kept.is_mute(runtime.pid);
    let answer = lists(tell, runtime, &mut calls, asks_status.then_some(&mut conditions));
    if calls.iter().any(|call| call.operation == Method::Status.name() && call.ended_ns.is_none()) {
        kept.is_mute_now(runtime.pid);
    }
    // Also an attempt was a call.
    let mut says = RuntimeSays { pid: runtime.pid, calls, conditions, ..RuntimeSays::default() };
    match answer {
        Ok((version, sandboxes, containers)) => fill(&mut says, version, &sandboxes, containers),
        Err(why) => tell.cut(runtime.pid, &comm, Step::Runtime.words(), why)?,
    }
    tell.say(&Answer::Runtime(says))
}

type Lists = (&'static str, Sandboxes, Containers);

fn lists(
    tell: &Tell,
    runtime: &Runtime,
    calls: &mut Vec<OwnCall>,
    conditions: Option<&mut Vec<RuntimeCondition>>,
) -> Result<Lists, String> {
    let executor = Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
    executor.block_on(async {
        let begin = Instant::now();
        let asked = async {
            let channel = connect(tell, runtime).await?;
            let lists = both(&channel, calls).await?;
            Ok((channel, lists))
        };
        let asked: Result<(Channel, Lists), String> = timeout(DEADLINE, asked).await.map_err(|_| late())?;
        let (channel, lists) = asked?;
        // One that takes its time for lists is not asked for more.
        let conditions = conditions.filter(|_| begin.elapsed() + STATUS <= DEADLINE);
        if let Some(conditions) = conditions {
            // The lists are told also where this hangs.
            let asked = timeout(STATUS, call::<StatusAnswer>(&channel, lists.0, Method::Status, calls)).await;
            *conditions = asked.ok().and_then(Result::ok).map(told).unwrap_or_default();
        }
        Ok(lists)
    })
}

fn late() -> String {
    format!("no answer within {} ms", DEADLINE.as_millis())
}

async fn both(channel: &Channel, calls: &mut Vec<OwnCall>) -> Result<Lists, String> {
    for version in VERSIONS {
        let sandboxes = match call(channel, version, Method::ListPodSandbox, calls).await {
            Err(status) if status.code() == UNKNOWN_SERVICE => continue,
            answer => answer.map_err(|status| words(&status))?,
        };
        let containers = call(channel, version, Method::ListContainers, calls).await;
        return Ok((version, sandboxes, containers.map_err(|status| words(&status))?));
    }
    Err("it speaks no version of the CRI that we know".to_owned())
}

/// The conditions of an answer, those that are required first, of each the first, as the kubelet reads them. One that is not there is as bad
/// as one that is false. Without a status there are none: the kubelet takes that for no answer (`updateRuntimeUp`, kubelet.go).
fn told(answer: StatusAnswer) -> Vec<RuntimeCondition> {
    let short = |text: String| text.chars().take(MAX_ERROR).collect();
    let condition = |condition: Condition| {
        let Condition { name, status: holds, reason, message } = condition;
        let (name, reason, message) = (short(name), short(reason), short(message));
        RuntimeCondition { name, holds, reason, message, missing: false }
    };
    let Some(status) = answer.status else { return Vec::new() };
    let mut rest: Vec<RuntimeCondition> = status.conditions.into_iter().map(condition).collect();
    let required = |name: &&str| match rest.iter().position(|one| one.name == *name) {
        Some(at) => rest.remove(at),
        None => RuntimeCondition { name: (*name).to_owned(), missing: true, ..RuntimeCondition::default() },
    };
    let mut told: Vec<RuntimeCondition> = RuntimeCondition::REQUIRED.iter().map(required).collect();
    told.extend(rest.into_iter().filter(|one| !one.is_required()));
    told.truncate(MAX_CONDITIONS);
    told
}

fn error(status: &Status) -> CallError {
    CallError { code: status.code().into(), message: status.message().chars().take(MAX_ERROR).collect() }
}

fn words(status: &Status) -> String {
    format!("{:?}: {}", status.code(), error(status).message)
}

/// Connects through a descriptor: the path may be another one where the runtime lives, and too long for an address.
async fn connect(tell: &Tell, runtime: &Runtime) -> Result<Channel, String> {
    let relative = runtime.socket.strip_prefix("/").unwrap_or(&runtime.socket);
    let path = tell.process(runtime.pid).join("root").join(relative);
    let open = |error: io::Error| format!("cannot open its socket: {error}");
    let socket = File::options().read(true).custom_flags(libc::O_PATH).open(path).map_err(open)?;
    let connector = tower::service_fn(move |_: Uri| {
        let path = PathBuf::from(format!("/proc/self/fd/{}", socket.as_raw_fd()));
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    });
    // The address is never resolved; it becomes the `:authority` header, that of a kubelet.
    let endpoint = Endpoint::from_static("http://localhost")
        .user_agent(concat!("plegtrace/", env!("CARGO_PKG_VERSION")));
    let endpoint = endpoint.map_err(|error| error.to_string())?;
    endpoint.connect_with_connector(connector).await.map_err(|error| format!("cannot connect: {error}"))
}

async fn call<A: Message + Default + 'static>(
    channel: &Channel,
    version: &str,
    method: Method,
    calls: &mut Vec<OwnCall>,
) -> Result<A, Status> {
    let path = format!("/runtime.{version}.RuntimeService/{}", method.name());
    let path = PathAndQuery::try_from(path).map_err(|error| Status::internal(error.to_string()))?;
    let mut grpc = tonic::client::Grpc::new(channel.clone()).max_decoding_message_size(MAX_ANSWER);
    let mut request = Request::new(Empty {});
    // The server learns the deadline, and gives up too.
    request.set_timeout(DEADLINE);
    grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let began_ns = clock::now_ns();
    calls.push(OwnCall { operation: method.name().to_owned(), began_ns, ended_ns: None, error: None });
    let answer = grpc.unary(request, path, ProstCodec::<Empty, A>::default()).await;
    if answer.as_ref().is_err_and(|status| status.code() == UNKNOWN_SERVICE) {
        calls.pop();
    } else if let Some(call) = calls.last_mut() {
        call.ended_ns = Some(clock::now_ns());
        call.error = answer.as_ref().err().map(error);
    }
    Ok(answer?.into_inner())
}

/// Those that run first: there may be many that have ended.
fn fill(says: &mut RuntimeSays, version: &str, sandboxes: &Sandboxes, containers: Containers) {
    says.version = version.to_owned();
    let short = |text: String| Some(text).filter(|text| !text.is_empty() && text.len() <= MAX_NAME);
    let fact =
        |id: &str, sandbox: &str, name: Option<String>, metadata: Option<&SandboxMetadata>| ContainerFact {
            id: id.to_owned(),
            sandbox: Some(sandbox.to_owned()),
            name,
            pod: metadata.and_then(|metadata| short(metadata.name.clone())),
            namespace: metadata.and_then(|metadata| short(metadata.namespace.clone())),
            source: "cri".to_owned(),
        };
    let is_id = |id: &str| super::containers::is_id(id);
    let mut told = Vec::new();
    for sandbox in sandboxes.items.iter().filter(|sandbox| is_id(&sandbox.id)) {
        let runs = sandbox.state == 0;
        let container = fact(&sandbox.id, &sandbox.id, None, sandbox.metadata.as_ref());
        let state = if runs { "ready" } else { "notready" }.to_owned();
        told.push(RuntimeState { container, state, runs });
    }
    for container in containers.containers.into_iter().filter(|container| is_id(&container.id)) {
        let of = sandboxes.items.iter().find(|sandbox| sandbox.id == container.sandbox);
        let metadata = of.and_then(|sandbox| sandbox.metadata.as_ref());
        let name = container.metadata.and_then(|metadata| short(metadata.name));
        let state =
            ["created", "running", "exited"].get(usize::try_from(container.state).unwrap_or(usize::MAX));
        let state = state.copied().unwrap_or("unknown");
        let container = fact(&container.id, &container.sandbox, name, metadata);
        told.push(RuntimeState { container, state: state.to_owned(), runs: state == "running" });
    }
    told.sort_by(|a, b| b.runs.cmp(&a.runs).then_with(|| a.container.id.cmp(&b.container.id)));
    says.left_out = u32::try_from(told.len().saturating_sub(MAX_TOLD)).unwrap_or(u32::MAX);
    told.truncate(MAX_TOLD);
    says.containers = told;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of the pod come from its sandbox; what runs comes first; ids that are none are dropped.
    #[test]
    fn lists_become_facts() {
        let metadata = Some(SandboxMetadata { name: "web-1".into(), namespace: "shop".into() });
        let sandbox = |id: &str, state| Sandbox { id: id.into(), metadata: metadata.clone(), state };
        let container = |id: &str, state| Container {
            id: id.into(),
            sandbox: "s1".into(),
            metadata: Some(ContainerMetadata { name: "nginx".into() }),
            state,
        };
        let sandboxes = Sandboxes { items: vec![sandbox("s0", 1), sandbox("s1", 0)] };
        let containers =
            Containers { containers: vec![container("c1", 2), container("c2", 1), container("../x", 1)] };
        let mut says = RuntimeSays::default();
        fill(&mut says, "v1", &sandboxes, containers);
        let told: Vec<(&str, &str, bool)> = says
            .containers
            .iter()
            .map(|one| (one.container.id.as_str(), one.state.as_str(), one.runs))
            .collect();
        let wanted = [
            ("c2", "running", true),
            ("s1", "ready", true),
            ("c1", "exited", false),
            ("s0", "notready", false),
        ];
        assert_eq!(told, wanted);
        let named = &says.containers[0].container;
        let words = [&named.sandbox, &named.name, &named.pod, &named.namespace];
        assert_eq!(words.map(|word| word.as_deref().unwrap_or("")), ["s1", "nginx", "web-1", "shop"]);
    }

    /// What a runtime says of itself is bounded, however much it says.
    #[test]
    fn conditions_are_told() {
        let condition = |name: &str, status| Condition {
            name: name.into(),
            status,
            reason: "NetworkPluginNotReady".into(),
            message: "x".repeat(10_000),
        };
        let many = (0..100).map(|n| condition(&format!("c{n}"), true));
        let required = [condition("RuntimeReady", true), condition("NetworkReady", false)];
        let all = many.chain(required).chain([condition("NetworkReady", true)]);
        let answer = StatusAnswer { status: Some(Conditions { conditions: all.collect() }) };
        let told = told(StatusAnswer::decode(answer.encode_to_vec().as_slice()).unwrap());
        let shown: Vec<(&str, bool)> = told.iter().map(|one| (one.name.as_str(), one.holds)).collect();
        assert_eq!(shown.len(), MAX_CONDITIONS);
        assert_eq!(shown[..3], [("RuntimeReady", true), ("NetworkReady", false), ("c0", true)]);
        assert_eq!((told[1].reason.as_str(), told[1].message.len()), ("NetworkPluginNotReady", MAX_ERROR));
        assert_eq!(super::told(StatusAnswer::default()), []);
    }

    /// What is required and not there is named; without a status nothing is known.
    #[test]
    fn a_condition_that_is_left_out() {
        let ready = Condition { name: "RuntimeReady".into(), status: true, ..Condition::default() };
        let told = told(StatusAnswer { status: Some(Conditions { conditions: vec![ready] }) });
        let shown: Vec<(&str, bool, bool)> =
            told.iter().map(|one| (one.name.as_str(), one.holds, one.missing)).collect();
        assert_eq!(shown, [("RuntimeReady", true, false), ("NetworkReady", false, true)]);
    }
}
