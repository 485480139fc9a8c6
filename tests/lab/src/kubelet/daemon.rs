//! Runs the kubelet against a containerd or a Docker of ours and waits until its pods run.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::churn::Churn;
use super::config::{Ports, Runtime, Settings, arguments, cri_socket, file, manifests, volume_plugins};
use super::{build, manifest, sysctls};
use crate::containerd::{Containerd, log_tail};
use crate::control_plane::ControlPlane;
use crate::cri::{Api, Client, ContainerState, Pod, PodSandbox};
use crate::daemon::Daemon;
use crate::docker::Docker;
use crate::knobs::{Knobs, Network};
use crate::promtext::Page;
use crate::{http, logs, process};

/// From start to all pods running, and for each container on top of it.
const READY_LIMIT: Duration = Duration::from_secs(60);
const READY_LIMIT_PER_CONTAINER: Duration = Duration::from_secs(3);
/// Where kubelets have the sockets of device plugins (`pluginapi.DevicePluginPath`).
const DEVICE_PLUGINS: &str = "/var/lib/kubelet/device-plugins";
/// So often one that ends at its start is started again.
const RESTARTS: u32 = 2;
/// For one CRI call on a healthy but busy machine.
const CALL_LIMIT: Duration = Duration::from_secs(20);

/// A running kubelet. Drop kills it; its pods are removed with their containerd.
#[derive(Debug)]
pub struct Kubelet {
    daemon: Daemon,
    program: PathBuf,
    dir: PathBuf,
    ports: Ports,
    knobs: Knobs,
    client: Client,
}

impl Kubelet {
    /// Starts the kubelet on `containerd` with `knobs.pods` static pods named `p1`, `p2` … and waits until they run.
    ///
    /// # Errors
    ///
    /// When the kubelet cannot be built, ends, or its pods do not run in time; then with the end of its log.
    pub fn start(containerd: &Containerd, knobs: &Knobs) -> Result<Kubelet> {
        Kubelet::launch(containerd, &Runtime::Remote(containerd.socket()), None, knobs)
    }

    /// The same as a node of `plane`.
    ///
    /// # Errors
    ///
    /// As for [`Kubelet::start`].
    pub fn start_in(plane: &ControlPlane, containerd: &Containerd, knobs: &Knobs) -> Result<Kubelet> {
        let runtime = Runtime::Remote(containerd.socket());
        Kubelet::launch(containerd, &runtime, Some(plane.kubeconfig()), knobs)
    }

    /// The same with `docker`, which runs on `containerd`, for a runtime: the kubelet asks it through its dockershim.
    ///
    /// # Errors
    ///
    /// As for [`Kubelet::start`].
    pub fn start_on_docker(docker: &Docker, containerd: &Containerd, knobs: &Knobs) -> Result<Kubelet> {
        let (root, cni_plugins) = (docker.root(), containerd.cni_plugins()?);
        let runtime =
            Runtime::Docker { socket: docker.api().socket(), root: &root, cni_plugins: &cni_plugins };
        Kubelet::launch(containerd, &runtime, None, knobs)
    }

    fn launch(
        containerd: &Containerd,
        runtime: &Runtime<'_>,
        kubeconfig: Option<&Path>,
        knobs: &Knobs,
    ) -> Result<Kubelet> {
        let by_v1 = !containerd.knobs().generation.serves_v1alpha2();
        ensure!(
            !(by_v1 && (knobs.blocking_pleg || knobs.locking_kubelet)),
            "kubelets with a defect do not speak v1 of the CRI"
        );
        let program = if knobs.locking_kubelet {
            build::program_that_locks_itself_out()?
        } else if knobs.blocking_pleg {
            build::program_with_blocking_pleg()?
        } else if by_v1 {
            build::program_of_v1()?
        } else {
            build::program(knobs.kubelet)?
        };
        let dir = containerd.scratch().path().to_owned();
        let ports =
            Ports { api: http::free_port()?, read_only: http::free_port()?, healthz: http::free_port()? };
        let cgroup = containerd.scratch().cgroup(knobs.cgroup_driver);
        let Knobs { cgroup_driver, request_timeout, device_plugins, .. } = *knobs;
        let settings = Settings {
            dir: &dir,
            cgroup_driver,
            cgroup: &cgroup,
            request_timeout,
            device_plugins,
            kubeconfig,
            ports,
        };
        fs::create_dir_all(manifests(&dir)).context("cannot make the manifest directory")?;
        fs::write(dir.join("kubelet.json"), file(&settings).to_string())
            .context("cannot write kubelet.json")?;
        for number in 1..=knobs.pods {
            let exec_probes = knobs.exec_probes && number <= knobs.probed_pods;
            let name = format!("p{number}");
            let pod = manifest::pod(&name, &Knobs { exec_probes, ..knobs.clone() });
            manifest::publish(&manifests(&dir), &name, &pod)?;
        }
        sysctls::save(&dir)?;
        let mut command = if device_plugins { with_own_var_lib(&program) } else { Command::new(&program) };
        command.args(arguments(&settings, runtime, &containerd.scratch().network())).current_dir("/");
        let daemon = Daemon::start(containerd.scratch(), command, &dir.join("kubelet.log"))?;
        let client = match runtime {
            Runtime::Remote(_) => containerd.client().clone(),
            Runtime::Docker { .. } => Client::new(&cri_socket(runtime, &dir), Api::V1alpha2)?,
        };
        let kubelet = Kubelet { daemon, program, dir, ports, knobs: knobs.clone(), client };
        let ready = kubelet.wait_until_pods_run();
        if ready.is_err() {
            // Its lab goes with the error, before anything panics.
            let _said = containerd.scratch().keep_logs(&logs::test_name());
        }
        ready.with_context(|| {
            format!("the kubelet is not ready; end of its log:\n{}", log_tail(&kubelet.log_path()))
        })?;
        Ok(kubelet)
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.daemon.pid()
    }

    /// The daemon, to kill it and to start it again.
    #[must_use]
    pub fn daemon(&self) -> &Daemon {
        &self.daemon
    }

    /// Its program.
    #[must_use]
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// A client of the CRI that it asks: the runtime's, or that of its own dockershim.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Where it keeps what belongs to the pod with this UID.
    #[must_use]
    pub fn pod_directory(&self, uid: &str) -> PathBuf {
        self.dir.join("kubelet/pods").join(uid)
    }

    /// Where it looks for manifests of static pods.
    #[must_use]
    pub fn manifests(&self) -> PathBuf {
        manifests(&self.dir)
    }

    /// The directory of the sockets of device plugins, as it is seen from outside of a kubelet that takes them.
    #[must_use]
    pub fn device_plugins(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{DEVICE_PLUGINS}", self.pid()))
    }

    /// Where it looks for drivers of FlexVolumes.
    #[must_use]
    pub fn volume_plugins(&self) -> PathBuf {
        volume_plugins(&self.dir)
    }

    /// What it printed.
    #[must_use]
    pub fn log_path(&self) -> PathBuf {
        self.dir.join("kubelet.log")
    }

    /// The address of its read-only port (`/metrics`, `/pods` …).
    #[must_use]
    pub fn read_only_address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.ports.read_only))
    }

    /// The address of its API, which speaks TLS and lets everybody in (`/debug/pprof/…`).
    #[must_use]
    pub fn api_address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.ports.api))
    }

    /// Its metrics page, within `deadline`: on a stalled node the page itself may hang.
    ///
    /// # Errors
    ///
    /// When the page does not answer in time.
    pub fn metrics(&self, deadline: Duration) -> Result<Page> {
        Ok(Page::parse(&http::get(self.read_only_address(), "/metrics", deadline)?))
    }

    /// Its health page, within `deadline`.
    ///
    /// # Errors
    ///
    /// When it does not answer in time, or is not healthy.
    pub fn healthz(&self, deadline: Duration) -> Result<()> {
        http::get(self.healthz_address(), "/healthz", deadline).map(drop)
    }

    /// The address of its health page.
    #[must_use]
    pub fn healthz_address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.ports.healthz))
    }

    /// The pods that run now: sandbox ready, container running.
    ///
    /// # Errors
    ///
    /// When the runtime does not list them.
    pub fn running_pods(&self) -> Result<Vec<Pod>> {
        let containers = self.client.list_containers(CALL_LIMIT)?;
        let mut pods = Vec::new();
        for sandbox in self.client.list_pod_sandbox(CALL_LIMIT)?.into_iter().filter(PodSandbox::is_ready) {
            let is_running = |state: i32| state == i32::from(ContainerState::Running);
            let mut own = containers.iter().filter(|c| c.pod_sandbox_id == sandbox.id && is_running(c.state));
            if let Some(container) = own.next() {
                let name = static_name(sandbox.pod_name()).to_owned();
                pods.push(Pod { name, sandbox: sandbox.id, container: container.id.clone() });
            }
        }
        pods.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(pods)
    }

    /// Adds a static pod; it runs some time later.
    ///
    /// # Errors
    ///
    /// When its manifest cannot be written.
    pub fn add_pod(&self, name: &str) -> Result<()> {
        manifest::publish(&manifests(&self.dir), name, &manifest::pod(name, &self.knobs))
    }

    /// Adds a static pod with a network of its own, whatever others have; it runs once a network plugin has made that.
    ///
    /// # Errors
    ///
    /// When its manifest cannot be written.
    pub fn add_pod_with_network(&self, name: &str) -> Result<()> {
        let knobs = Knobs { network: Network::Bridge, ..self.knobs.clone() };
        manifest::publish(&manifests(&self.dir), name, &manifest::pod(name, &knobs))
    }

    /// Adds a static pod with a FlexVolume of this driver (`vendor/name`), and gives its manifest; it runs once that is mounted.
    ///
    /// # Errors
    ///
    /// When its manifest cannot be written.
    pub fn add_pod_with_volume(&self, name: &str, driver: &str) -> Result<PathBuf> {
        let dir = manifests(&self.dir);
        manifest::publish(&dir, name, &manifest::with_volume(manifest::pod(name, &self.knobs), driver))?;
        Ok(manifest::path(&dir, name))
    }

    /// Adds a static pod that wants one of these devices, and gives its manifest; it runs once a plugin has allocated that.
    ///
    /// # Errors
    ///
    /// When its manifest cannot be written.
    pub fn add_pod_with_device(&self, name: &str, resource: &str) -> Result<PathBuf> {
        let dir = manifests(&self.dir);
        manifest::publish(&dir, name, &manifest::with_device(manifest::pod(name, &self.knobs), resource))?;
        Ok(manifest::path(&dir, name))
    }

    /// Adds a static pod of this image, which the kubelet pulls when the node does not have it, and gives its manifest.
    ///
    /// # Errors
    ///
    /// When its manifest cannot be written.
    pub fn add_pod_with_image(&self, name: &str, image: &str) -> Result<PathBuf> {
        let dir = manifests(&self.dir);
        manifest::publish(&dir, name, &manifest::with_image(manifest::pod(name, &self.knobs), image))?;
        Ok(manifest::path(&dir, name))
    }

    /// Adds a static pod from which the node can be debugged ([`super::TOOLS`] is the directory `tools`); it runs some time later.
    ///
    /// # Errors
    ///
    /// When its manifest cannot be written.
    pub fn add_debugger(&self, name: &str, tools: &Path) -> Result<()> {
        manifest::publish(&manifests(&self.dir), name, &manifest::debugger(name, tools))
    }

    /// Adds a static pod with the privileges of the DaemonSet that is shipped, whose `/var/lib/plegtrace` is the directory `windows`.
    ///
    /// # Errors
    ///
    /// When its manifest cannot be written.
    pub fn add_daemon(&self, name: &str, image: &str, args: &[&str], windows: &Path) -> Result<()> {
        manifest::publish(&manifests(&self.dir), name, &manifest::daemon(name, image, args, windows))
    }

    /// Removes a static pod; it is gone some time later.
    ///
    /// # Errors
    ///
    /// When it has no manifest.
    pub fn remove_pod(&self, name: &str) -> Result<()> {
        manifest::remove(&manifests(&self.dir), name)
    }

    /// Adds and removes a pod of changing name, each `period`, until the result is dropped.
    #[must_use]
    pub fn churn(&self, period: Duration) -> Churn {
        Churn::start(manifests(&self.dir), self.knobs.clone(), period)
    }

    /// How many containers run now.
    fn running_containers(&self) -> Result<usize> {
        let running = i32::from(ContainerState::Running);
        Ok(self.client.list_containers(CALL_LIMIT)?.iter().filter(|found| found.state == running).count())
    }

    /// A kubelet may end at its start, as 1.20 does when it asks for the root file system before its cAdvisor has looked at it ("failed to
    /// get rootfs info", `pkg/kubelet/cm/container_manager_linux.go`). It is started again then, as its unit would
    /// (`Restart=always`), and its last words are told.
    fn wait_until_pods_run(&self) -> Result<()> {
        let mut restarts = 0;
        let wanted = self.knobs.pods * self.knobs.containers;
        let containers = u32::try_from(wanted).context("too many containers")?;
        let limit = READY_LIMIT + READY_LIMIT_PER_CONTAINER * containers;
        process::wait_for(&format!("the start of {wanted} containers"), limit, || {
            if let Some(status) = self.daemon.ended()? {
                ensure!(restarts < RESTARTS, "the kubelet ended at start ({status})");
                eprintln!("the kubelet ended at start ({status}):\n{}", log_tail(&self.log_path()));
                self.daemon.restart()?;
                restarts += 1;
            }
            let is_healthy = self.healthz(Duration::from_secs(2)).is_ok();
            // A busy start may let a list time out; the limit decides.
            let is_complete = self.running_containers().is_ok_and(|running| running >= wanted);
            Ok((is_healthy && is_complete).then_some(()))
        })
    }
}

/// The kubelet in a mount namespace of its own, in which it finds nothing below `/var/lib` but a directory for sockets of device plugins.
fn with_own_var_lib(program: &Path) -> Command {
    const SCRIPT: &str = "mount -t tmpfs lab /var/lib && mkdir -p \"$1\" && shift && exec \"$@\"";
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--propagation", "slave", "--", "sh", "-c", SCRIPT, "sh", DEVICE_PLUGINS])
        .arg(program);
    command
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.daemon.close();
    }
}

/// The name in the manifest: the kubelet appends `-` and the node's name to those of static pods.
fn static_name(pod: &str) -> &str {
    pod.split_once("-plegtrace-lab-").map_or(pod, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_is_cut_from_a_static_pods_name() {
        assert_eq!(static_name("p1-plegtrace-lab-0123abcd"), "p1");
        assert_eq!(static_name("alone"), "alone");
    }
}
