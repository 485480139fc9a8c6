//! Which systemd unit runs a component, and what becomes of containers when it is restarted: for advice.

use super::Scene;
use crate::input::Component;

/// The unit of a component, without ".service": the one that was found on the node, else the usual one.
pub(super) fn unit<'a>(component: Component, scene: &Scene<'a>) -> &'a str {
    let found = |of: Component| {
        let paths = scene.snapshot.presences.iter().filter(move |presence| presence.component == of);
        paths.filter_map(|presence| presence.path.strip_suffix(".service")?.rsplit('/').next()).next()
    };
    // k3s is kubelet and containerd in one unit.
    let bundled = || found(Component::Kubelet).filter(|unit| unit.starts_with("k3s"));
    let bundled = bundled().filter(|_| matches!(component, Component::Kubelet | Component::Containerd));
    bundled.or_else(|| found(component)).unwrap_or(match component {
        Component::Dockerd => "docker",
        Component::CriDockerd => "cri-docker",
        other => other.name(),
    })
}

/// What a restart of a component does to running containers.
pub(super) fn fate(component: Component) -> &'static str {
    match component {
        Component::Dockerd => {
            "all containers stop with it, unless `docker info` says Live Restore Enabled: true"
        }
        _ => "running containers are not touched",
    }
}
