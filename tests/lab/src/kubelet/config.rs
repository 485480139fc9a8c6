//! Turns the knobs and the paths of a lab into the kubelet's configuration and command line.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use crate::image;
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
    /// It takes device plugins.
    pub(super) device_plugins: bool,
    /// How to reach its API server, if it has one.
    pub(super) kubeconfig: Option<&'a Path>,
    /// API (used by an API server only), metrics and health.
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
pub(super) fn manifests(dir: &Path) -> PathBuf {
    dir.join("manifests")
}

/// `KubeletConfiguration` of 1.20 for a node that shares its machine with other work.
pub(super) fn file(settings: &Settings<'_>) -> Value {
    let Settings { dir, cgroup_driver, cgroup, request_timeout, device_plugins, ports, .. } = settings;
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
        "volumePluginDir": volume_plugins(dir),
        // Its socket has a fixed path, whose directory it clears.
        "featureGates": { "DevicePlugins": device_plugins },
    })
}

/// Where a kubelet in `dir` looks for drivers of FlexVolumes.
pub(super) fn volume_plugins(dir: &Path) -> PathBuf {
    dir.join("volume-plugins")
}

/// Whom the kubelet asks.
pub(super) enum Runtime<'a> {
    /// A runtime that serves the CRI at this socket.
    Remote(&'a Path),
    /// Docker, through the dockershim, which is part of the kubelet and serves the CRI itself.
    Docker {
        /// The socket of dockerd.
        socket: &'a Path,
        /// Where dockerd keeps its containers.
        root: &'a Path,
        /// The directory of the CNI plugins.
        cni_plugins: &'a Path,
    },
}

/// Where the CRI is served in the lab in `dir`: by the runtime, or by the dockershim.
pub(super) fn cri_socket(runtime: &Runtime<'_>, dir: &Path) -> PathBuf {
    match runtime {
        Runtime::Remote(socket) => (*socket).to_owned(),
        Runtime::Docker { .. } => dir.join("dockershim.sock"),
    }
}

/// The command line: what the configuration file of 1.20 cannot say.
pub(super) fn arguments(settings: &Settings<'_>, runtime: &Runtime<'_>, node: &str) -> Vec<OsString> {
    let endpoint = format!("unix://{}", cri_socket(runtime, settings.dir).display());
    let dir = settings.dir.display();
    let kind = if matches!(runtime, Runtime::Remote(_)) { "remote" } else { "docker" };
    let mut arguments = vec![
        format!("--config={dir}/kubelet.json"),
        format!("--container-runtime={kind}"),
        format!("--container-runtime-endpoint={endpoint}"),
        format!("--image-service-endpoint={endpoint}"),
        format!("--root-dir={dir}/kubelet"),
        format!("--cert-dir={dir}/kubelet/pki"),
        format!("--hostname-override={node}"),
        "--v=2".to_owned(),
    ];
    if let Some(kubeconfig) = settings.kubeconfig {
        arguments.push(format!("--kubeconfig={}", kubeconfig.display()));
    }
    if let Runtime::Docker { socket, root, cni_plugins } = runtime {
        let docker = format!("unix://{}", socket.display());
        arguments.extend([
            format!("--docker-endpoint={docker}"),
            // The same for cAdvisor.
            format!("--docker={docker}"),
            format!("--docker-root={}", root.display()),
            format!("--experimental-dockershim-root-directory={dir}/dockershim"),
            format!("--pod-infra-container-image={}", image::REFERENCE),
            "--network-plugin=cni".to_owned(),
            format!("--cni-bin-dir={}", cni_plugins.display()),
            format!("--cni-conf-dir={dir}/net.d"),
            format!("--cni-cache-dir={dir}/cni-cache"),
        ]);
    }
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
            device_plugins: false,
            kubeconfig: None,
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
        let arguments = arguments(&settings(), &Runtime::Remote(Path::new("/tmp/lab/c.sock")), "n1");
        assert!(arguments.contains(&"--container-runtime-endpoint=unix:///tmp/lab/c.sock".into()));
        assert!(arguments.contains(&"--hostname-override=n1".into()));
    }

    #[test]
    fn every_path_of_the_dockershim_is_below_the_lab() {
        let [socket, root, cni_plugins] =
            ["/tmp/lab/docker.sock", "/tmp/lab/docker", "/tmp/lab/cni-bin"].map(Path::new);
        let runtime = Runtime::Docker { socket, root, cni_plugins };
        let arguments = arguments(&settings(), &runtime, "n1");
        let arguments: Vec<&str> = arguments.iter().filter_map(|word| word.to_str()).collect();
        for expected in [
            "--container-runtime=docker",
            "--container-runtime-endpoint=unix:///tmp/lab/dockershim.sock",
            "--docker-endpoint=unix:///tmp/lab/docker.sock",
        ] {
            assert!(arguments.contains(&expected), "{expected} is not in {arguments:?}");
        }
        for (_, value) in arguments.iter().filter_map(|word| word.split_once('=')) {
            let path = value.trim_start_matches("unix://");
            assert!(!path.starts_with('/') || path.starts_with("/tmp/lab/"), "{path}");
        }
    }
}
