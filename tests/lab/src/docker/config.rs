//! Turns the knobs and the paths of a lab into dockerd's configuration.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::knobs::CgroupDriver;

/// Name of the runtime with the lab's runc: `runc` is taken by the one in dockerd's `PATH`.
const RUNTIME: &str = "lab";

/// What the configuration depends on.
pub(super) struct Settings<'a> {
    /// Directory of the lab.
    pub(super) dir: &'a Path,
    pub(super) cgroup_driver: CgroupDriver,
    /// Parent of the cgroups of containers that do not say where they want to be.
    pub(super) cgroup: &'a str,
    pub(super) runc: &'a Path,
    pub(super) storage_driver: &'a str,
}

/// Where it serves its API.
pub(super) fn socket(dir: &Path) -> PathBuf {
    dir.join("docker.sock")
}

/// Where it keeps images, containers and their logs.
pub(super) fn root(dir: &Path) -> PathBuf {
    dir.join("docker")
}

/// The command line: what Debian's unit says there, too.
pub(super) fn arguments(dir: &Path, containerd: &Path) -> Vec<OsString> {
    let arguments = [
        format!("--host=unix://{}", socket(dir).display()),
        format!("--containerd={}", containerd.display()),
        format!("--config-file={}", configuration(dir).display()),
    ];
    arguments.into_iter().map(OsString::from).collect()
}

/// Where its configuration file is.
pub(super) fn configuration(dir: &Path) -> PathBuf {
    dir.join("daemon.json")
}

/// `daemon.json` for a machine that is not ours to arrange: no bridge, no iptables rules, no forwarding.
pub(super) fn file(settings: &Settings<'_>) -> Value {
    let Settings { dir, cgroup_driver, cgroup, runc, storage_driver } = settings;
    json!({
        "data-root": root(dir),
        "exec-root": dir.join("docker-exec"),
        "pidfile": dir.join("docker.pid"),
        // Its default is /etc/docker/key.json.
        "deprecated-key-path": dir.join("docker-key.json"),
        "storage-driver": storage_driver,
        "exec-opts": [format!("native.cgroupdriver={}", cgroup_driver.name())],
        // For systemd the parent is a slice, and that goes by its name.
        "cgroup-parent": match cgroup_driver {
            CgroupDriver::Cgroupfs => cgroup,
            CgroupDriver::Systemd => cgroup.trim_start_matches('/'),
        },
        "runtimes": { RUNTIME: { "path": runc } },
        "default-runtime": RUNTIME,
        // Lowering it takes CAP_SYS_RESOURCE.
        "oom-score-adjust": 0,
        "bridge": "none",
        "iptables": false,
        "ip-forward": false,
        "ip-masq": false,
        "userland-proxy": false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(cgroup_driver: CgroupDriver) -> Value {
        file(&Settings {
            dir: Path::new("/tmp/lab"),
            cgroup_driver,
            cgroup: "/lab.slice",
            runc: Path::new("/tmp/lab/bin/runc"),
            storage_driver: "overlay2",
        })
    }

    #[test]
    fn every_path_is_below_the_lab() {
        let file = settings(CgroupDriver::Cgroupfs).to_string();
        let words = file.split('"').filter(|word| word.starts_with('/'));
        let paths: Vec<&str> = words.filter(|word| *word != "/lab.slice").collect();
        assert_eq!(paths.len(), 5, "{paths:?}");
        assert!(paths.iter().all(|path| path.starts_with("/tmp/lab/")), "{paths:?}");
    }

    #[test]
    fn the_command_line_names_the_sockets() {
        let arguments = arguments(Path::new("/tmp/lab"), Path::new("/tmp/lab/c.sock"));
        assert_eq!(arguments[0], "--host=unix:///tmp/lab/docker.sock");
        assert_eq!(arguments[1], "--containerd=/tmp/lab/c.sock");
        assert_eq!(arguments[2], "--config-file=/tmp/lab/daemon.json");
    }

    #[test]
    fn the_machines_network_is_left_alone() {
        let file = settings(CgroupDriver::Cgroupfs);
        assert_eq!(file["bridge"], "none");
        for switch in ["iptables", "ip-forward", "ip-masq", "userland-proxy"] {
            assert_eq!(file[switch], false, "{switch}");
        }
    }

    #[test]
    fn the_parent_of_cgroups_follows_the_driver() {
        assert_eq!(settings(CgroupDriver::Cgroupfs)["cgroup-parent"], "/lab.slice");
        let systemd = settings(CgroupDriver::Systemd);
        assert_eq!(systemd["cgroup-parent"], "lab.slice");
        assert_eq!(systemd["exec-opts"][0], "native.cgroupdriver=systemd");
    }
}
