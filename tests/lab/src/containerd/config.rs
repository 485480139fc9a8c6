//! Turns the knobs and the paths of a lab into containerd's configuration and its CNI network.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::knobs::{CgroupDriver, Generation};
use crate::{gate, image};

/// What the configuration depends on.
pub(super) struct Settings<'a> {
    pub(super) generation: Generation,
    /// Directory of the lab.
    pub(super) dir: &'a Path,
    /// Directory of the CNI plugins.
    pub(super) cni_plugins: &'a Path,
    pub(super) cgroup_driver: CgroupDriver,
    /// Where the metrics page is served.
    pub(super) metrics: SocketAddr,
    /// Whether oom_score_adj must not be lowered: without CAP_SYS_RESOURCE every RunPodSandbox would fail.
    pub(super) restrict_oom_score_adj: bool,
    pub(super) snapshotter: &'a str,
    /// Specification that each container's is made from; `None` is the built-in one.
    pub(super) base_spec: Option<&'a Path>,
    /// Plugins of NRI are asked.
    pub(super) nri: bool,
    /// Bytes that a message may have; `None`: containerd's own limit.
    pub(super) largest_message: Option<u32>,
}

/// The configuration file. Version 2 is read by all generations; 2.1 migrates it as it starts.
pub(super) fn toml(settings: &Settings<'_>) -> String {
    let Settings { dir, metrics, restrict_oom_score_adj, snapshotter, .. } = settings;
    let dir = dir.display();
    let plugins = settings.cni_plugins.display();
    let systemd = settings.cgroup_driver == CgroupDriver::Systemd;
    let image = image::REFERENCE;
    // 1.4 has no such option; its namespaces are found through the CNI results.
    let netns =
        if settings.generation == Generation::V1_4 { "" } else { "  netns_mounts_under_state_dir = true\n" };
    let message = settings.largest_message.map_or(String::new(), |bytes| {
        format!("  max_recv_message_size = {bytes}\n  max_send_message_size = {bytes}\n")
    });
    let mut text = format!(
        r#"version = 2
root = "{dir}/root"
state = "{dir}/state"
oom_score = 0
[grpc]
  address = "{dir}/containerd.sock"
{message}[ttrpc]
  address = "{dir}/containerd.sock.ttrpc"
[debug]
  address = "{dir}/debug.sock"
  level = "info"
[metrics]
  address = "{metrics}"
  grpc_histogram = true
[plugins."io.containerd.internal.v1.opt"]
  path = "{dir}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{image}"
  disable_apparmor = true
  restrict_oom_score_adj = {restrict_oom_score_adj}
  disable_hugetlb_controller = true
  tolerate_missing_hugetlb_controller = true
{netns}  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{dir}/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{snapshotter}"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        Root = "{dir}/runc"
        SystemdCgroup = {systemd}
"#
    );
    if let Some(base_spec) = settings.base_spec {
        let table = "[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\n";
        let line = format!("{table}      base_runtime_spec = \"{}\"\n", base_spec.display());
        text = text.replacen(table, &line, 1);
    }
    if settings.nri {
        text.push_str(&format!(
            "[plugins.\"io.containerd.nri.v1.nri\"]\n  disable = false\n  socket_path = \"{0}\"\n  \
             plugin_path = \"{dir}/nri\"\n  plugin_config_path = \"{dir}/nri.conf.d\"\n",
            nri_socket(settings.dir).display()
        ));
    } else if settings.generation == Generation::V2_1 {
        // It is on by default, and its socket has a fixed path that two labs would fight for.
        text.push_str("[plugins.\"io.containerd.nri.v1.nri\"]\n  disable = true\n");
    }
    text
}

/// Where plugins of NRI find the containerd in `dir`.
pub(super) fn nri_socket(dir: &Path) -> PathBuf {
    dir.join("nri.sock")
}

/// The CNI network: a bridge without an address of its own, so that the machine's routing stays as it is. With `gates`
/// our own plugin stands before it.
pub(super) fn conflist(dir: &Path, network: &str, bridge: &str, gates: bool) -> String {
    let ipam = json!({
        "type": "host-local",
        "ranges": [[{ "subnet": "10.219.0.0/24" }]],
        "dataDir": dir.join("ipam"),
    });
    let plugin =
        json!({ "type": "bridge", "bridge": bridge, "isGateway": false, "ipMasq": false, "ipam": ipam });
    let mut plugins = vec![plugin];
    if gates {
        plugins.insert(0, json!({ "type": gate::NAME }));
    }
    json!({ "cniVersion": "0.4.0", "name": network, "plugins": plugins }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(generation: Generation, cgroup_driver: CgroupDriver) -> String {
        toml(&Settings {
            generation,
            dir: Path::new("/tmp/lab"),
            cni_plugins: Path::new("/cache/cni"),
            cgroup_driver,
            metrics: SocketAddr::from(([127, 0, 0, 1], 20_000)),
            restrict_oom_score_adj: true,
            snapshotter: "overlayfs",
            base_spec: (generation == Generation::V1_7).then_some(Path::new("/tmp/lab/base.json")),
            nri: generation == Generation::V1_7,
            largest_message: None,
        })
    }

    #[test]
    fn every_path_is_below_the_lab() {
        let text = settings(Generation::V1_6, CgroupDriver::Cgroupfs);
        for line in text.lines().filter(|line| line.contains("= \"/")) {
            assert!(line.contains("\"/tmp/lab/") || line.contains("\"/cache/cni\""), "{line}");
        }
        assert!(text.contains("restrict_oom_score_adj = true"));
        assert!(text.contains("address = \"127.0.0.1:20000\""));
    }

    #[test]
    fn options_follow_the_generation_and_the_driver() {
        let old = settings(Generation::V1_4, CgroupDriver::Cgroupfs);
        assert!(!old.contains("netns_mounts_under_state_dir") && old.contains("SystemdCgroup = false"));
        let new = settings(Generation::V2_1, CgroupDriver::Systemd);
        assert!(new.contains("nri.v1.nri") && new.contains("SystemdCgroup = true"));
    }

    #[test]
    fn gates_are_there_only_when_asked_for() {
        let base = "runtimes.runc]\n      base_runtime_spec = \"/tmp/lab/base.json\"\n";
        assert!(settings(Generation::V1_7, CgroupDriver::Cgroupfs).contains(base));
        assert!(!settings(Generation::V1_6, CgroupDriver::Cgroupfs).contains("base_runtime_spec"));
        let text = conflist(Path::new("/tmp/lab"), "net", "br0", true);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["plugins"][0]["type"], "lab-gate");
        assert_eq!(value["plugins"][1]["type"], "bridge");
    }

    #[test]
    fn the_network_is_private() {
        let text = conflist(Path::new("/tmp/lab"), "net", "br0", false);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["plugins"][0]["bridge"], "br0");
        assert_eq!(value["plugins"][0]["ipam"]["dataDir"], "/tmp/lab/ipam");
        assert_eq!(value["name"], "net");
    }
}
