//! Whose something is: pods, containers, and the commands of processes.

use super::cut;
use crate::input::{Command, ContainerFact};

/// `default/p3`, when it is known.
#[must_use]
pub fn of_pod(container: Option<&ContainerFact>) -> String {
    let Some(container) = container else { return String::new() };
    match (&container.namespace, &container.pod) {
        (Some(namespace), Some(pod)) => {
            format!(" of {}/{}", cut(namespace, 63), cut(pod, 63))
        }
        (None, Some(pod)) => format!(" of pod {}", cut(pod, 63)),
        _ => format!(" of container {}", short_id(&container.id)),
    }
}

/// `default/p3, container c (51f2e49b8310)`, and how that is known.
#[must_use]
pub fn container_line(container: &ContainerFact) -> String {
    let mut parts = Vec::new();
    if let Some(pod) = &container.pod {
        let namespace = container.namespace.as_deref().unwrap_or("?");
        parts.push(format!("{}/{}", cut(namespace, 63), cut(pod, 63)));
    }
    let name = container.name.as_deref().map(|name| format!("{} ", cut(name, 63)));
    parts.push(format!("container {}{}", name.unwrap_or_default(), short_id(&container.id)));
    let source = match container.source.as_str() {
        "cri" => "according to the runtime".to_owned(),
        source => format!("by its {}", cut(source, 20)),
    };
    format!("{} ({source})", parts.join(", "))
}

/// The first twelve characters of an id, as everybody shortens them.
#[must_use]
pub fn short_id(id: &str) -> String {
    cut(id.get(..12).unwrap_or(id), 13)
}

/// `runc exec of 51f2e49b8310`, `CNI plugin bridge ADD`.
#[must_use]
pub fn command_words(command: &Command, comm: &str) -> String {
    match command {
        Command::Runc { sub, container, .. } => {
            let of = container.as_deref().map(|id| format!(" of {}", short_id(id)));
            // The first word of its own name: `crun`, `runc:[2:INIT]`, or, of a copy of itself, only a number.
            let program = if comm.starts_with("crun") { "crun" } else { "runc" };
            format!("{program} {}{}", cut(sub, 20), of.unwrap_or_default())
        }
        Command::Oci { program, sub, container, .. } => {
            let of = container.as_deref().map(|id| format!(" of {}", short_id(id)));
            format!("{} {}{}", cut(program, 20), cut(sub, 20), of.unwrap_or_default())
        }
        Command::Shim { action, .. } => {
            format!("containerd-shim {}", cut(action.as_deref().unwrap_or(""), 20))
        }
        Command::Cni { plugin, action, .. } => {
            let action = action.as_deref().unwrap_or("");
            format!("CNI plugin {} {}", cut(plugin, 40), cut(action, 20))
        }
        Command::Other { program } if program.is_empty() => cut(comm, 40),
        Command::Other { program } => cut(program, 40),
    }
}
