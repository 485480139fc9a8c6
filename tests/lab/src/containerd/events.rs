//! What the shims say themselves: each publishes what it starts and what ends, and containerd hands that on to whoever
//! listens (`ctr events`).

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::Containerd;
use crate::{host, process};

/// For containerd to take up a listener.
const READY_LIMIT: Duration = Duration::from_secs(30);
/// A label of the namespace: changing it is an event of containerd's own, and nothing else.
const LABEL: &str = "plegtrace-lab";

/// One event of a shim (api/events/task.proto).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// `/tasks/create`, `/tasks/start`, `/tasks/exec-started`, `/tasks/exit`, `/tasks/delete`, …
    pub topic: String,
    /// The container.
    pub container: String,
    /// The command in it; of starts of commands and of ends of anything. For a container's own end, its id again.
    pub id: Option<String>,
    /// Process.
    pub pid: Option<u32>,
    /// Exit code, or 128 and the signal; not written when it is 0.
    pub exit_status: u32,
}

/// A listener.
#[derive(Debug)]
pub struct Events {
    child: Child,
    lines: Receiver<String>,
    reader: Option<JoinHandle<()>>,
    seen: Vec<Event>,
    marks: u64,
}

impl Events {
    /// Begins to listen; what happens after the return is heard.
    ///
    /// # Errors
    ///
    /// When nothing is heard within half a minute.
    pub fn listen(containerd: &Containerd) -> Result<Events> {
        let mut ctr = containerd.ctr()?;
        let mut child = ctr.arg("events").stdout(Stdio::piped()).spawn().context("cannot run ctr events")?;
        let output = BufReader::new(child.stdout.take().context("ctr has no output")?);
        let (lines, receiver) = channel();
        let reader = std::thread::spawn(move || {
            output
                .lines()
                .map_while(Result::ok)
                .take_while(|line| lines.send(line.clone()).is_ok())
                .for_each(drop);
        });
        let mut events = Events { child, lines: receiver, reader: Some(reader), seen: Vec::new(), marks: 0 };
        process::wait_for("the first event", READY_LIMIT, || {
            // Each try is another event: nobody tells when a listener has been taken up.
            let mark = events.mark(containerd)?;
            events.read();
            Ok((events.marks >= mark).then_some(()))
        })?;
        Ok(events)
    }

    /// What was heard so far, in its order.
    pub fn so_far(&mut self) -> &[Event] {
        self.read();
        &self.seen
    }

    /// Makes an event that is not a shim's; its number.
    fn mark(&self, containerd: &Containerd) -> Result<u64> {
        let mark = self.marks + 1;
        host::run(containerd.ctr()?.args(["namespaces", "label", "k8s.io", &format!("{LABEL}={mark}")]))?;
        Ok(mark)
    }

    fn read(&mut self) {
        for line in self.lines.try_iter() {
            match parse(&line) {
                Some(event) if event.topic == "/namespaces/update" => self.marks += 1,
                Some(event) if event.topic.starts_with("/tasks/") => self.seen.push(event),
                Some(_) | None => {}
            }
        }
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

/// `DATE TIME ZONE ZONE NAMESPACE TOPIC JSON`.
fn parse(line: &str) -> Option<Event> {
    let (_, rest) = line.split_once(" /")?;
    let (topic, json) = rest.split_once(' ')?;
    let json: Value = serde_json::from_str(json).ok()?;
    let text = |name: &str| json.get(name)?.as_str().map(str::to_owned);
    let number = |name: &str| json.get(name)?.as_u64().and_then(|number| u32::try_from(number).ok());
    Some(Event {
        topic: format!("/{topic}"),
        container: text("container_id").unwrap_or_default(),
        id: text("exec_id").or_else(|| text("id")),
        pid: number("pid"),
        exit_status: number("exit_status").unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As ctr of 1.4 to 2.1 prints them.
    #[test]
    fn lines() {
        let line = r#"2026-01-02 03:04:05.678 +0000 UTC k8s.io /tasks/exit {"container_id":"c1","id":"e1","pid":7,"exit_status":3,"exited_at":{"seconds":1}}"#;
        let event = Event {
            topic: "/tasks/exit".into(),
            container: "c1".into(),
            id: Some("e1".into()),
            pid: Some(7),
            exit_status: 3,
        };
        assert_eq!(parse(line), Some(event));
        assert_eq!(parse("level=error msg=x"), None);
        assert_eq!(parse("a /tasks/exit {"), None);
    }
}
