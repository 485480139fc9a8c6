//! Turns the knobs and the paths of a lab into the kubelet's configuration and command line.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::knobs::CgroupDriver;

/// What the configuration depends on.
pub(super) struct Settings<'a> {
    /// Directory of the lab.
    pub(super) dir: &'a Path,
    pub(super) cgroup_driver: CgroupDriver,
    /// Parent of the cgroups of all pods.
    pub(super) cgroup: &'a str,
    /// How long it waits for an answer of the runtime.
    pub(super) request_timeout: Duration,
    /// API (never used), metrics and health.
    pub(super) ports: Ports,
}

/// TCP ports of the loopback interface.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    /// The authenticated API; it cannot be switched off.
    pub(super) api: u16,
    /// The read-only port, which has the metrics.
    pub(super) read_only: u16,
    /// The health page.
    pub(super) healthz: u16,
}

/// Directory of the static pods' manifests.
pub(super) fn manifests(dir: &Path) -> std::path::PathBuf {
    dir.join("manifests")
}

/// `KubeletConfiguration` of 1.20 for a node without an API server that shares its machine with other work.
pub(super) fn file(settings: &Settings<'_>) -> Value {
    let Settings { dir, cgroup_driver, cgroup, request_timeout, ports } = settings;
    json!({
        "kind": "KubeletConfiguration",
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "staticPodPath": manifests(dir),
        // New manifests are seen by inotify; this is only the fallback.
        "fileCheckFrequency": "5s",
        "runtimeRequestTimeout": format!("{}s", request_timeout.as_secs()),
        "address": "127.0.0.1",
        "port": ports.api,
        "readOnlyPort": ports.read_only,
        "healthzPort": ports.healthz,
        "healthzBindAddress": "127.0.0.1",
        "authentication": { "anonymous": { "enabled": true }, "webhook": { "enabled": false } },
        "authorization": { "mode": "AlwaysAllow" },
        "cgroupDriver": cgroup_driver.name(),
        "cgroupRoot": cgroup,
        // The machine's own cgroups are not ours to arrange.
        "cgroupsPerQOS": false,
        "enforceNodeAllocatable": [],
        "failSwapOn": false,
        "makeIPTablesUtilChains": false,
        // Pods of a test are neither evicted nor their image collected because a developer's disk is full.
        "evictionHard": { "memory.available": "1Mi", "nodefs.available": "0%", "imagefs.available": "0%" },
        "imageGCHighThresholdPercent": 100,
        "maxPods": 250,
        "volumePluginDir": dir.join("volume-plugins"),
        // Its socket has a fixed path, whose directory it would clear.
        "featureGates": { "DevicePlugins": false },
    })
}

/// The command line: what the configuration file of 1.20 cannot say.
pub(super) fn arguments(settings: &Settings<'_>, socket: &Path, node: &str) -> Vec<OsString> {
    let endpoint = format!("unix://{}", socket.display());
    let dir = settings.dir.display();
    let arguments = [
        format!("--config={dir}/kubelet.json"),
        "--container-runtime=remote".to_owned(),
        format!("--container-runtime-endpoint={endpoint}"),
        format!("--image-service-endpoint={endpoint}"),
        format!("--root-dir={dir}/kubelet"),
        format!("--cert-dir={dir}/kubelet/pki"),
        format!("--hostname-override={node}"),
        "--v=2".to_owned(),
    ];
    arguments.into_iter().map(OsString::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings<'static> {
        let ports = Ports { api: 20_001, read_only: 20_002, healthz: 20_003 };
        Settings {
            dir: Path::new("/tmp/lab"),
            cgroup_driver: CgroupDriver::Systemd,
            cgroup: "/x.slice",
            request_timeout: Duration::from_secs(45),
            ports,
        }
    }

    #[test]
    fn the_file_leaves_the_machine_alone() {
        let file = file(&settings());
        assert_eq!(file["cgroupsPerQOS"], false);
        assert_eq!(file["makeIPTablesUtilChains"], false);
        assert_eq!(file["readOnlyPort"], 20_002);
        assert_eq!(file["cgroupDriver"], "systemd");
        assert_eq!(file["runtimeRequestTimeout"], "45s");
        assert_eq!(file["staticPodPath"], "/tmp/lab/manifests");
    }

    #[test]
    fn the_command_line_names_the_socket() {
        let arguments = arguments(&settings(), Path::new("/tmp/lab/c.sock"), "n1");
        assert!(arguments.contains(&"--container-runtime-endpoint=unix:///tmp/lab/c.sock".into()));
        assert!(arguments.contains(&"--hostname-override=n1".into()));
    }
}
