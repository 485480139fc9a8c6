//! The lab's own client, made of tonic: it asks for everything, and keeps the book.

use anyhow::{Result, ensure};
use plegtrace_lab::{
    Containerd, Knobs,
    cri::{Call, Client, Error},
};

use super::{CANCELLED, LIMIT, wait_for_command};
use crate::wire::{Capture, capture::Tally, relay::Relay};

/// Times that it asks for everything.
const ROUNDS: usize = 12;

pub(super) fn capture(knobs: &Knobs) -> Result<Capture> {
    let containerd = Containerd::start(knobs)?;
    let pod = containerd.run_pod("p1")?;
    let relay = Relay::insert(containerd.socket())?;
    let client = containerd.client_of(knobs.generation.api())?;
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
        wait_for_command(container, &["sleep", "601"])?;
        call.cancel();
        let answer = call.wait(LIMIT)?;
        ensure!(matches!(answer, Err(Error::Cancelled { .. })), "it was not cancelled: {answer:?}");
        // The reset leaves with the next request at the latest.
        let service = format!("/{}.RuntimeService/{method}", self.package);
        *self.tally.entry((service, CANCELLED)).or_default() += 1;
        Ok(())
    }
}
