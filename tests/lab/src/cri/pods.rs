//! Turns a wish ("one pod with one container that waits") into the CRI calls that a kubelet would make for it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::client::{Client, Error};
use super::messages as m;
use crate::process::POLL;

/// A pod to run through the CRI, without a kubelet.
#[derive(Clone, Debug)]
pub struct PodSpec {
    /// Its name; also its UID.
    pub name: String,
    /// Image of its container.
    pub image: String,
    /// What the container runs.
    pub command: Vec<String>,
    /// In the node's network, without CNI.
    pub host_network: bool,
    /// Parent of its cgroups.
    pub cgroup_parent: String,
    /// Where its log goes.
    pub log_directory: PathBuf,
}

/// A running pod with one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Its name.
    pub name: String,
    /// Its sandbox.
    pub sandbox: String,
    /// Its container.
    pub container: String,
}

impl PodSpec {
    fn labels(&self) -> HashMap<String, String> {
        let labels = [
            ("io.kubernetes.pod.name", self.name.as_str()),
            ("io.kubernetes.pod.namespace", "default"),
            ("io.kubernetes.pod.uid", self.name.as_str()),
            ("io.kubernetes.container.name", "c"),
        ];
        labels.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    fn namespaces(&self) -> m::NamespaceOption {
        let network = if self.host_network { m::NamespaceMode::Node } else { m::NamespaceMode::Pod };
        let (pod, container) = (m::NamespaceMode::Pod, m::NamespaceMode::Container);
        m::NamespaceOption { network: network.into(), pid: container.into(), ipc: pod.into() }
    }

    /// The configuration of its sandbox.
    #[must_use]
    pub fn sandbox(&self) -> m::PodSandboxConfig {
        let security_context = m::LinuxSandboxSecurityContext { namespace_options: Some(self.namespaces()) };
        let metadata = m::PodSandboxMetadata {
            name: self.name.clone(),
            uid: self.name.clone(),
            namespace: "default".to_owned(),
            attempt: 0,
        };
        m::PodSandboxConfig {
            metadata: Some(metadata),
            log_directory: self.log_directory.display().to_string(),
            labels: self.labels(),
            linux: Some(m::LinuxPodSandboxConfig {
                cgroup_parent: self.cgroup_parent.clone(),
                security_context: Some(security_context),
            }),
        }
    }

    fn container(&self) -> m::ContainerConfig {
        let security = m::LinuxContainerSecurityContext {
            namespace_options: Some(self.namespaces()),
            ..m::LinuxContainerSecurityContext::default()
        };
        m::ContainerConfig {
            metadata: Some(m::ContainerMetadata { name: "c".to_owned(), attempt: 0 }),
            image: Some(m::ImageSpec { image: self.image.clone() }),
            command: self.command.clone(),
            mounts: Vec::new(),
            labels: self.labels(),
            annotations: HashMap::new(),
            log_path: format!("{}.log", self.name),
            linux: Some(m::LinuxContainerConfig {
                resources: Some(m::LinuxContainerResources { cpu_shares: 2 }),
                security_context: Some(security),
            }),
        }
    }
}

/// One more container for a sandbox that runs, also for a kubelet's: it takes no notice of what it did not ask for in
/// a pod that it did.
#[derive(Clone, Debug, Default)]
pub struct Extra {
    /// Name of the container in its pod.
    pub name: String,
    /// Image of the container.
    pub image: String,
    /// What it runs.
    pub command: Vec<String>,
    /// Path of its seccomp profile.
    pub seccomp: Option<PathBuf>,
    /// A path of the node that it gets.
    pub host_path: Option<PathBuf>,
    /// Bytes of an annotation that it gets.
    pub ballast: usize,
    /// Parent of its cgroup; empty is containerd's own.
    pub cgroup_parent: String,
    /// Where its log goes.
    pub log_directory: PathBuf,
}

impl Extra {
    fn annotations(&self) -> HashMap<String, String> {
        let ballast = || ("plegtrace.lab/ballast".to_owned(), "x".repeat(self.ballast));
        (self.ballast > 0).then(ballast).into_iter().collect()
    }

    /// The request for `sandbox`. The labels are the pod's own: by others a kubelet would take it for a stray pod.
    fn request(&self, sandbox: &m::PodSandbox) -> m::CreateContainerRequest {
        let metadata = sandbox.metadata.clone().unwrap_or_default();
        let labels = [
            ("io.kubernetes.pod.name", metadata.name.clone()),
            ("io.kubernetes.pod.namespace", metadata.namespace.clone()),
            ("io.kubernetes.pod.uid", metadata.uid.clone()),
            ("io.kubernetes.container.name", self.name.clone()),
        ];
        let labels: HashMap<String, String> =
            labels.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let namespace_options = m::NamespaceOption {
            network: m::NamespaceMode::Node.into(),
            pid: m::NamespaceMode::Container.into(),
            ipc: m::NamespaceMode::Pod.into(),
        };
        let seccomp = self.seccomp.as_ref().map(|path| format!("localhost/{}", path.display()));
        let security = m::LinuxContainerSecurityContext {
            namespace_options: Some(namespace_options),
            seccomp_profile_path: seccomp.unwrap_or_default(),
        };
        let mount = |path: &PathBuf| m::Mount {
            container_path: "/host".to_owned(),
            host_path: path.display().to_string(),
        };
        let config = m::ContainerConfig {
            metadata: Some(m::ContainerMetadata { name: self.name.clone(), attempt: 0 }),
            image: Some(m::ImageSpec { image: self.image.clone() }),
            command: self.command.clone(),
            mounts: self.host_path.iter().map(mount).collect(),
            labels: labels.clone(),
            annotations: self.annotations(),
            log_path: format!("{}.log", self.name),
            linux: Some(m::LinuxContainerConfig { resources: None, security_context: Some(security) }),
        };
        let linux =
            m::LinuxPodSandboxConfig { cgroup_parent: self.cgroup_parent.clone(), security_context: None };
        let sandbox_config = m::PodSandboxConfig {
            metadata: Some(metadata),
            log_directory: self.log_directory.display().to_string(),
            labels,
            linux: Some(linux),
        };
        m::CreateContainerRequest {
            pod_sandbox_id: sandbox.id.clone(),
            config: Some(config),
            sandbox_config: Some(sandbox_config),
        }
    }
}

impl Client {
    /// Makes one more container in `sandbox`, without starting it; gives its id.
    ///
    /// # Errors
    ///
    /// The call that failed; [`Error::Setup`] when there is no such sandbox.
    pub fn create_extra(&self, sandbox: &str, extra: &Extra, deadline: Duration) -> Result<String, Error> {
        let all = self.list_pod_sandbox(deadline)?;
        let found = all.iter().find(|found| found.id == sandbox).ok_or_else(|| Error::Setup {
            socket: self.socket().display().to_string(),
            reason: format!("there is no sandbox {sandbox}"),
        })?;
        self.create_container(extra.request(found), deadline)
    }

    /// Runs a pod: RunPodSandbox, CreateContainer, StartContainer, each within `deadline`.
    ///
    /// # Errors
    ///
    /// The first call that failed; what was made before it stays until the runtime is torn down.
    pub fn run_pod(&self, spec: &PodSpec, deadline: Duration) -> Result<Pod, Error> {
        let sandbox = self.run_pod_sandbox(spec.sandbox(), deadline)?;
        let request = m::CreateContainerRequest {
            pod_sandbox_id: sandbox.clone(),
            config: Some(spec.container()),
            sandbox_config: Some(spec.sandbox()),
        };
        let container = self.create_container(request, deadline)?;
        self.start_container(&container, deadline)?;
        Ok(Pod { name: spec.name.clone(), sandbox, container })
    }

    /// Ends a container: StopContainer, RemoveContainer, each within `deadline`. containerd answers StopContainer as soon as its
    /// task is gone, and refuses to remove the container until it has written down that it has ended; so this waits for that.
    ///
    /// # Errors
    ///
    /// The first call that failed; when it is running still after `deadline`, RemoveContainer.
    pub fn end_container(&self, container: &str, grace: Duration, deadline: Duration) -> Result<(), Error> {
        self.stop_container(container, grace, deadline)?;
        let began = Instant::now();
        while self.is_running(container, deadline)? && began.elapsed() < deadline {
            std::thread::sleep(POLL);
        }
        self.remove_container(container, deadline)
    }

    fn is_running(&self, container: &str, deadline: Duration) -> Result<bool, Error> {
        let status = self.container_status(container, deadline)?;
        Ok(status.is_some_and(|status| status.state == m::ContainerState::Running as i32))
    }

    /// Ends a pod: StopContainer, RemoveContainer, StopPodSandbox, RemovePodSandbox, each within `deadline`.
    ///
    /// # Errors
    ///
    /// The first call that failed.
    pub fn remove_pod(&self, pod: &Pod, deadline: Duration) -> Result<(), Error> {
        self.end_container(&pod.container, Duration::from_secs(2), deadline)?;
        self.stop_pod_sandbox(&pod.sandbox, deadline)?;
        self.remove_pod_sandbox(&pod.sandbox, deadline)
    }
}
