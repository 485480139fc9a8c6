//! Which captures there are, and how each is made on a real runtime.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use plegtrace_lab::{
    Containerd, Generation, Knobs,
    cri::{Call, Client, Error},
    kubelet::Kubelet,
    process,
    promtext::Page,
};

use super::{Capture, capture::Tally, relay::Relay};

const LIMIT: Duration = Duration::from_secs(60);
/// Times that the tonic client asks for everything.
const ROUNDS: usize = 12;
/// Times that the kubelet lists its pods; one a second and some.
const LISTS: u64 = 36;
/// gRPC's code for what was cancelled; a reset stream has no status, its handler has this one.
pub const CANCELLED: u32 = 1;
/// What gRPC calls its codes, from 0 on.
const CODES: [&str; 17] = [
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];

/// A client and a runtime.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// Name of the capture.
    pub name: &'static str,
    /// The runtime.
    pub generation: Generation,
    /// Whether the client is a kubelet; otherwise it is the lab's, made of tonic.
    pub kubelet: bool,
}

/// All pairs of which there is a capture.
pub const CLIENTS: [Pair; 5] = [
    Pair { name: "kubelet-1.6", generation: Generation::V1_6, kubelet: true },
    Pair { name: "tonic-1.4", generation: Generation::V1_4, kubelet: false },
    Pair { name: "tonic-1.6", generation: Generation::V1_6, kubelet: false },
    Pair { name: "tonic-1.7", generation: Generation::V1_7, kubelet: false },
    Pair { name: "tonic-2.1", generation: Generation::V2_1, kubelet: false },
];

/// Makes captures anew.
///
/// # Errors
///
/// A node does not start, or a capture is not what it should be.
pub fn make(pairs: &[Pair]) -> Result<()> {
    for pair in pairs {
        let knobs = Knobs { generation: pair.generation, ..Knobs::default() };
        let containerd = Containerd::start(&knobs)?;
        let capture =
            if pair.kubelet { of_kubelet(&containerd, &knobs) } else { of_tonic(&containerd, pair) };
        capture?.save(pair.name).context(pair.name)?;
    }
    Ok(())
}

/// A kubelet that starts, runs and ends a pod more, and relists. Its runtime counts: nobody else speaks `v1alpha2` to it.
fn of_kubelet(containerd: &Containerd, knobs: &Knobs) -> Result<Capture> {
    let relay = Relay::insert(containerd.socket())?;
    let kubelet = Kubelet::start(containerd, knobs)?;
    kubelet.add_pod("p2")?;
    let wait = |what: &str, wanted: usize| {
        process::wait_for(what, LIMIT, || Ok((kubelet.running_pods()?.len() == wanted).then_some(())))
    };
    wait("a second pod", 2)?;
    kubelet.remove_pod("p2")?;
    wait("its end", 1)?;
    // Not by the kubelet's metrics: whoever reads them makes it ask its runtime.
    process::wait_for("lists", LIMIT * 2, || {
        let tally = handled(&containerd.metrics(LIMIT)?);
        let of_list = |((method, _), count): (&(String, u32), &u64)| {
            method.ends_with("/ListPodSandbox").then_some(*count)
        };
        Ok((tally.iter().filter_map(of_list).sum::<u64>() >= LISTS).then_some(()))
    })?;
    drop(kubelet);
    let chunks = relay.finish();
    let tally = process::wait_for("the end of all handlers", LIMIT, || {
        let page = containerd.metrics(LIMIT)?;
        let (started, tally) = (started(&page), handled(&page));
        Ok((tally.values().sum::<u64>() == started).then_some(tally))
    })?;
    Ok(Capture { chunks, tally })
}

fn started(page: &Page) -> u64 {
    let of = |service: &&plegtrace_lab::promtext::Sample| {
        service.label("grpc_service").is_some_and(|service| service.starts_with("runtime.v1alpha2."))
    };
    page.find("grpc_server_started_total", &[]).filter(of).map(|sample| sample.value as u64).sum()
}

fn handled(page: &Page) -> Tally {
    let mut tally = Tally::new();
    for sample in page.find("grpc_server_handled_total", &[]).filter(|sample| sample.value > 0.0) {
        let label = |name| sample.label(name).unwrap_or_default();
        let (service, code) = (label("grpc_service"), label("grpc_code"));
        let code = CODES.iter().position(|name| *name == code).and_then(|code| u32::try_from(code).ok());
        if let Some(code) = code.filter(|_| service.starts_with("runtime.v1alpha2.")) {
            let method = format!("/{service}/{}", label("grpc_method"));
            *tally.entry((method, code)).or_default() += sample.value as u64;
        }
    }
    tally
}

/// The lab's client: it keeps the book.
fn of_tonic(containerd: &Containerd, pair: &Pair) -> Result<Capture> {
    let pod = containerd.run_pod("p1")?;
    let relay = Relay::insert(containerd.socket())?;
    let client = containerd.client_of(pair.generation.api())?;
    let mut book = Book { package: format!("runtime.{}", client.api()), tally: Tally::new() };
    for _ in 0..ROUNDS {
        book.note("Version", client.version(LIMIT))?;
        book.note("Status", client.status(LIMIT))?;
        book.note("ListPodSandbox", client.list_pod_sandbox(LIMIT))?;
        book.note("ListContainers", client.list_containers(LIMIT))?;
        book.note("PodSandboxStatus", client.pod_sandbox_status(&pod.sandbox, LIMIT))?;
        book.note("ContainerStatus", client.container_status(&pod.container, LIMIT))?;
        book.note("ContainerStatus", client.container_status("nothing", LIMIT))?;
    }
    book.note("ExecSync", client.exec_sync(&pod.container, &["true"], LIMIT))?;
    book.cancelled("ExecSync", &client, &pod.container)?;
    book.note("Version", client.version(LIMIT))?;
    drop(client);
    Ok(Capture { chunks: relay.finish(), tally: book.tally })
}

/// What the client did.
struct Book {
    package: String,
    tally: Tally,
}

impl Book {
    fn note<A>(&mut self, method: &str, answer: Result<A, Error>) -> Result<()> {
        let code = match answer {
            Ok(_) => 0,
            Err(Error::Rpc { code, .. }) => u32::try_from(i32::from(code))?,
            Err(error) => return Err(error.into()),
        };
        let service = if method.contains("Image") { "ImageService" } else { "RuntimeService" };
        *self.tally.entry((format!("/{}.{service}/{method}", self.package), code)).or_default() += 1;
        Ok(())
    }

    /// A command that waits for ever, given up once it runs.
    fn cancelled(&mut self, method: &'static str, client: &Client, container: &str) -> Result<()> {
        let own = container.to_owned();
        let work = move |client: &Client| client.exec_sync(&own, &["sleep", "601"], LIMIT * 10).map(drop);
        let mut call = Call::start(client, method, work)?;
        process::wait_for("the command", LIMIT, || {
            let all = process::in_cgroup(container);
            Ok(all.into_iter().find(|pid| process::arguments(*pid) == ["sleep", "601"]))
        })?;
        call.cancel();
        let answer = call.wait(LIMIT)?;
        ensure!(matches!(answer, Err(Error::Cancelled { .. })), "it was not cancelled: {answer:?}");
        // The reset leaves with the next request at the latest.
        let service = format!("/{}.RuntimeService/{method}", self.package);
        *self.tally.entry((service, CANCELLED)).or_default() += 1;
        Ok(())
    }
}
