//! A container of a fault's own in the sandbox of a pod that runs, so that the pod's own container is left alone.

use std::path::PathBuf;

use anyhow::Result;

use super::guard::{CALL_LIMIT, EFFECT_LIMIT, Facts, Fault};
use crate::cri::{Client, Extra, Pod};
use crate::image;
use crate::knobs::CgroupDriver;
use crate::node::Node;
use crate::process;

/// Makes the container `name`, which waits for ever once it is started; gives its id.
pub(super) fn create(node: &Node, pod: &Pod, name: &str, seccomp: Option<PathBuf>) -> Result<String> {
    let extra = Extra { seccomp, ..of(node, name) };
    Ok(node.containerd().client().create_extra(&pod.sandbox, &extra, CALL_LIMIT)?)
}

/// Makes and starts it; gives its id, its first process, and what removes it.
pub(super) fn started(node: &Node, pod: &Pod, name: &str) -> Result<(String, u32, Fault)> {
    let client = node.containerd().client();
    let container = create(node, pod, name, None)?;
    let guard = Fault::new(Facts::default()).cleaned_by(removal(client, &container));
    client.start_container(&container, CALL_LIMIT)?;
    let init = process::wait_for("the container's process", EFFECT_LIMIT, || {
        let mut inside = process::in_cgroup(&container).into_iter();
        Ok(inside.find(|&pid| process::name(pid) == "pause"))
    })?;
    Ok((container, init, guard))
}

/// The same container with a path of the node, not made yet.
pub(super) fn with_host_path(node: &Node, name: &str, path: PathBuf) -> Extra {
    Extra { host_path: Some(path), ..of(node, name) }
}

/// The same container with an annotation of so many bytes, not made yet.
pub(super) fn with_ballast(node: &Node, name: &str, ballast: usize) -> Extra {
    Extra { ballast, ..of(node, name) }
}

/// Makes a container that runs `command`, with a path of the node at `/host`; gives its id.
pub(super) fn running(node: &Node, pod: &Pod, name: &str, path: PathBuf, command: &[&str]) -> Result<String> {
    let command = command.iter().map(|word| (*word).to_owned()).collect();
    let extra = Extra { command, ..with_host_path(node, name, path) };
    Ok(node.containerd().client().create_extra(&pod.sandbox, &extra, CALL_LIMIT)?)
}

fn of(node: &Node, name: &str) -> Extra {
    let containerd = node.containerd();
    let scratch = containerd.scratch();
    let driver = containerd.knobs().cgroup_driver;
    // Beside those of the kubelet's containers; systemd's need a slice.
    let cgroup_parent = if driver == CgroupDriver::Systemd { scratch.cgroup(driver) } else { String::new() };
    Extra {
        name: name.to_owned(),
        image: image::REFERENCE.to_owned(),
        command: vec!["/pause".to_owned()],
        seccomp: None,
        host_path: None,
        ballast: 0,
        cgroup_parent,
        log_directory: scratch.path().join("logs"),
    }
}

/// The step that removes it.
pub(super) fn removal(client: &Client, container: &str) -> impl FnOnce() -> Result<()> + Send + 'static {
    let (client, container) = (client.clone(), container.to_owned());
    move || Ok(client.end_container(&container, std::time::Duration::ZERO, CALL_LIMIT)?)
}
