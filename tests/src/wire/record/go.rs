//! A client with Kubernetes' own library, which keeps the book itself.

use anyhow::Result;
use plegtrace_lab::{Containerd, Knobs, go_client::GoClient};

use super::wait_for_command;
use crate::wire::{Capture, capture::Tally, relay::Relay};

/// Times that everything is asked on each connection.
const ROUNDS: usize = 4;
/// Connections, and what is asked first: after one stream that is not served the library asks for lists again.
const CONNECTIONS: [(&str, &str); 5] = [
    ("connect", "version"),
    ("connect traced", "version"),
    ("connect streaming", "pods"),
    ("connect streaming", "containers"),
    ("connect streaming traced", "stats"),
];

pub(super) fn capture(knobs: &Knobs) -> Result<Capture> {
    let containerd = Containerd::start(knobs)?;
    let pod = containerd.run_pod("p1")?;
    let relay = Relay::insert(containerd.socket())?;
    let mut client = GoClient::start(containerd.socket())?;
    let (sandbox, container) = (format!("pod {}", pod.sandbox), format!("container {}", pod.container));
    let lists = ["version", "status", "pods", "containers", "stats", "images", "container nothing"];
    for (connection, first) in CONNECTIONS {
        client.ask(connection)?;
        client.ask(first)?;
        for _ in 0..ROUNDS {
            lists.iter().chain(&[&*sandbox, &container]).try_for_each(|operation| client.ask(operation))?;
        }
        client.ask(&format!("exec {} true", pod.container))?;
    }
    client.ask(&format!("begin {} sleep 601", pod.container))?;
    wait_for_command(&pod.container, &["sleep", "601"])?;
    client.ask("cancel")?;
    client.ask("version")?;
    let book = client.book()?.into_iter().map(|asked| ((asked.method, asked.code), asked.count));
    let tally: Tally = book.collect();
    drop(client);
    Ok(Capture { chunks: relay.finish(), tally })
}
