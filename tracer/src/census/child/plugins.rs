//! The kubelet's connections to its plugins: at which sockets, who holds the other ends, and what those have not read.
//!
//! The kernel lists sockets and queues in any case. Who holds an end is known of processes of the node and of its containers; everybody
//! else is asked only while a loop of the kubelet waits for a plugin.

use std::io;

use super::{
    classify::{Interest, Interests, Kind},
    kept::Kept,
    node::Node,
    other_end::ask_everybody,
    read,
    tell::Tell,
};
use crate::{
    census::{
        protocol::{Answer, Step},
        text::{container_id, memberships},
    },
    input::{Component, ContainerFact, PLUGIN_DIRECTORIES, PluginFact, SocketFact},
};

/// Connections that are reported.
const MAX_TOLD: usize = 64;

/// Tells them of all kubelets.
pub(super) fn tell(
    tell: &mut Tell,
    interests: &Interests,
    node: &mut Node,
    kept: &mut Kept,
) -> io::Result<()> {
    let is_kubelet = |one: &&Interest| one.component == Component::Kubelet && one.kind != Kind::Zombie;
    let kubelets: Vec<u32> = interests.told.iter().filter(is_kubelet).map(|one| one.pid).collect();
    if kubelets.is_empty() || !tell.is_here() {
        return Ok(());
    }
    let asks = tell.order.plugins;
    let asked_all = asks && ask_everybody(tell, node, kept)?;
    let mut told = Vec::new();
    for kubelet in kubelets {
        for inode in node.holders.sockets_of(kubelet) {
            let Some((socket, unread)) = node.sockets.called(inode, &node.holders) else { continue };
            if told.len() < MAX_TOLD
                && let Some(plugin) = plugin(kubelet, socket, unread)
            {
                told.push(PluginFact { asked_all, ..plugin });
            }
        }
    }
    for plugin in &mut told {
        let [holder] = plugin.holders.as_slice() else { continue };
        plugin.state = read::stat(&tell.process(holder.pid)).map(|stat| stat.state);
        if asks {
            plugin.container = container(tell, holder.pid, &holder.comm.clone(), node)?;
        }
    }
    if told.is_empty() { Ok(()) } else { tell.say(&Answer::Plugins(told)) }
}

/// A connection, if it is one to a socket of a plugin.
fn plugin(kubelet: u32, socket: SocketFact, unread: u32) -> Option<PluginFact> {
    let path =
        socket.path.filter(|path| PLUGIN_DIRECTORIES.iter().any(|directory| path.contains(directory)))?;
    Some(PluginFact {
        kubelet,
        path,
        holders: socket.peers,
        unread,
        pending: socket.pending,
        ..PluginFact::default()
    })
}

/// In which container a process runs.
fn container(tell: &mut Tell, pid: u32, comm: &str, node: &Node) -> io::Result<Option<ContainerFact>> {
    if !tell.ask(pid, comm, Step::Cgroup)? {
        return Ok(None);
    }
    let text = read::text(&tell.process(pid).join("cgroup")).unwrap_or_default();
    let id = memberships(&text).iter().find_map(|line| container_id(line.path));
    Ok(id.map(|id| node.containers.container(id, "cgroup")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only what is below a directory of plugins is one, wherever the kubelet has its own.
    #[test]
    fn what_is_a_plugin() {
        let of = |path: Option<&str>| {
            let socket = SocketFact { path: path.map(str::to_owned), ..SocketFact::default() };
            plugin(9, socket, 40).map(|found| (found.kubelet, found.unread))
        };
        for path in [
            "/var/lib/kubelet/device-plugins/nvidia-gpu.sock",
            "/var/lib/k0s/kubelet/plugins/ebs.csi.aws.com/csi.sock",
            "/var/lib/kubelet/plugins_registry/gpu.example.com-reg.sock",
        ] {
            assert_eq!(of(Some(path)), Some((9, 40)), "{path}");
        }
        for path in [Some("/run/containerd/containerd.sock"), Some("@plugins"), None] {
            assert_eq!(of(path), None, "{path:?}");
        }
    }
}
