//! The methods of the CRI that the lab calls, each blocking, each with a deadline.

use std::time::Duration;

use super::client::{Client, Error};
use super::messages as m;

impl Client {
    /// `Version`.
    ///
    /// # Errors
    ///
    /// As for every call: the deadline, or what the runtime said.
    pub fn version(&self, deadline: Duration) -> Result<m::VersionResponse, Error> {
        self.runtime("Version", m::VersionRequest { version: "0.1.0".to_owned() }, deadline)
    }

    /// `Status`.
    ///
    /// # Errors
    ///
    /// As for every call: the deadline, or what the runtime said.
    pub fn status(&self, deadline: Duration) -> Result<m::StatusResponse, Error> {
        self.runtime("Status", m::StatusRequest {}, deadline)
    }

    /// `ListPodSandbox` without a filter.
    ///
    /// # Errors
    ///
    /// As for every call: the deadline, or what the runtime said.
    pub fn list_pod_sandbox(&self, deadline: Duration) -> Result<Vec<m::PodSandbox>, Error> {
        let list: m::ListPodSandboxResponse = self.runtime("ListPodSandbox", m::Empty {}, deadline)?;
        Ok(list.items)
    }

    /// `ListContainers` without a filter.
    ///
    /// # Errors
    ///
    /// As for every call: the deadline, or what the runtime said.
    pub fn list_containers(&self, deadline: Duration) -> Result<Vec<m::Container>, Error> {
        let list: m::ListContainersResponse = self.runtime("ListContainers", m::Empty {}, deadline)?;
        Ok(list.containers)
    }

    /// `ListContainerStats` without a filter; the figures are not read.
    ///
    /// # Errors
    ///
    /// As for every call: the deadline, or what the runtime said.
    pub fn list_container_stats(&self, deadline: Duration) -> Result<(), Error> {
        self.runtime("ListContainerStats", m::Empty {}, deadline).map(|m::Empty {}| ())
    }

    /// `PodSandboxStatus`.
    ///
    /// # Errors
    ///
    /// As for every call: the deadline, or what the runtime said.
    pub fn pod_sandbox_status(
        &self,
        sandbox: &str,
        deadline: Duration,
    ) -> Result<Option<m::PodSandbox>, Error> {
        let answer: m::PodSandboxStatusResponse = self.runtime("PodSandboxStatus", id(sandbox), deadline)?;
        Ok(answer.status)
    }

    /// `ContainerStatus`.
    ///
    /// # Errors
    ///
    /// As for every call: the deadline, or what the runtime said.
    pub fn container_status(
        &self,
        container: &str,
        deadline: Duration,
    ) -> Result<Option<m::ContainerStatus>, Error> {
        let answer: m::ContainerStatusResponse = self.runtime("ContainerStatus", id(container), deadline)?;
        Ok(answer.status)
    }

    /// `ContainerStats`; what it says is not looked at.
    ///
    /// # Errors
    ///
    /// As for every call: the deadline, or what the runtime said.
    pub fn container_stats(&self, container: &str, deadline: Duration) -> Result<(), Error> {
        self.runtime("ContainerStats", id(container), deadline).map(|m::Empty {}| ())
    }

    /// `RunPodSandbox`; gives the sandbox's id.
    ///
    /// # Errors
    ///
    /// As for every call: the deadline, or what the runtime said.
    pub fn run_pod_sandbox(&self, config: m::PodSandboxConfig, deadline: Duration) -> Result<String, Error> {
        let request = m::RunPodSandboxRequest { config: Some(config) };
        let answer: m::Id = self.runtime("RunPodSandbox", request, deadline)?;
        Ok(answer.id)
    }

    /// `StopPodSandbox`.
    ///
    /// # Errors
    ///
    /// As for every call: the deadline, or what the runtime said.
    pub fn stop_pod_sandbox(&self, sandbox: &str, deadline: Duration) -> Result<(), Error> {
        self.runtime("StopPodSandbox", id(sandbox), deadline).map(|m::Empty {}| ())
    }

    /// `RemovePodSandbox`.
    ///
    /// # Errors
    ///
    /// As for every call: the deadline, or what the runtime said.
    pub fn remove_pod_sandbox(&self, sandbox: &str, deadline: Duration) -> Result<(), Error> {
        self.runtime("RemovePodSandbox", id(sandbox), deadline).map(|m::Empty {}| ())
    }

    /// `CreateContainer`; gives the container's id.
    ///
    /// # Errors
    ///
    /// As for every call: the deadline, or what the runtime said.
    pub fn create_container(
        &self,
        request: m::CreateContainerRequest,
        deadline: Duration,
    ) -> Result<String, Error> {
        let answer: m::Id = self.runtime("CreateContainer", request, deadline)?;
        Ok(answer.id)
    }

    /// `StartContainer`.
    ///
    /// # Errors
    ///
    /// As for every call: the deadline, or what the runtime said.
    pub fn start_container(&self, container: &str, deadline: Duration) -> Result<(), Error> {
        self.runtime("StartContainer", id(container), deadline).map(|m::Empty {}| ())
    }

    /// `StopContainer`: SIGTERM, and SIGKILL after `grace` (whole seconds).
    ///
    /// # Errors
    ///
    /// As for every call: the deadline, or what the runtime said.
    pub fn stop_container(&self, container: &str, grace: Duration, deadline: Duration) -> Result<(), Error> {
        let timeout = i64::try_from(grace.as_secs()).unwrap_or(i64::MAX);
        let request = m::StopContainerRequest { container_id: container.to_owned(), timeout };
        self.runtime("StopContainer", request, deadline).map(|m::Empty {}| ())
    }

    /// `RemoveContainer`.
    ///
    /// # Errors
    ///
    /// As for every call: the deadline, or what the runtime said.
    pub fn remove_container(&self, container: &str, deadline: Duration) -> Result<(), Error> {
        self.runtime("RemoveContainer", id(container), deadline).map(|m::Empty {}| ())
    }

    /// `ExecSync`: runs `command` in the container and waits for its end.
    ///
    /// # Errors
    ///
    /// As for every call: the deadline, or what the runtime said. A command that fails is an answer, not an error.
    pub fn exec_sync(
        &self,
        container: &str,
        command: &[&str],
        deadline: Duration,
    ) -> Result<m::ExecSyncResponse, Error> {
        let cmd = command.iter().map(|&word| word.to_owned()).collect();
        let request = m::ExecSyncRequest { container_id: container.to_owned(), cmd, timeout: 0 };
        self.runtime("ExecSync", request, deadline)
    }

    /// `UpdateContainerResources` with a new CPU weight.
    ///
    /// # Errors
    ///
    /// As for every call: the deadline, or what the runtime said.
    pub fn update_container_resources(
        &self,
        container: &str,
        cpu_shares: i64,
        deadline: Duration,
    ) -> Result<(), Error> {
        let linux = Some(m::LinuxContainerResources { cpu_shares });
        let request = m::UpdateContainerResourcesRequest { container_id: container.to_owned(), linux };
        self.runtime("UpdateContainerResources", request, deadline).map(|m::Empty {}| ())
    }

    /// `ListImages` of the image service.
    ///
    /// # Errors
    ///
    /// As for every call: the deadline, or what the runtime said.
    pub fn list_images(&self, deadline: Duration) -> Result<Vec<m::Image>, Error> {
        let list: m::ListImagesResponse = self.call("ImageService", "ListImages", m::Empty {}, deadline)?;
        Ok(list.images)
    }
}

fn id(id: &str) -> m::Id {
    m::Id { id: id.to_owned() }
}
