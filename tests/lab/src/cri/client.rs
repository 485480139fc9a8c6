//! Turns a blocking method call with a deadline into one unary gRPC call over the runtime's unix socket.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Request};
use tonic_prost::ProstCodec;

use super::driver::Driver;
use super::messages as m;

/// Large nodes answer ListContainers with more than tonic's 4 MiB.
const MAX_MESSAGE: usize = 16 << 20;

/// Which of the two services of the same shape is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// `runtime.v1`: containerd 1.6 and later.
    V1,
    /// `runtime.v1alpha2`: containerd up to 1.7, kubelet up to 1.25.
    V1alpha2,
}

impl Api {
    fn package(self) -> &'static str {
        match self {
            Api::V1 => "runtime.v1",
            Api::V1alpha2 => "runtime.v1alpha2",
        }
    }
}

impl fmt::Display for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.package().trim_start_matches("runtime."))
    }
}

/// Why a call gave no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The runtime did not answer in time. The stream was reset; its handler may live on.
    #[error("{method} unanswered after {deadline:?}")]
    Deadline {
        /// The CRI method.
        method: &'static str,
        /// The deadline it was given.
        deadline: Duration,
    },
    /// The runtime, or the connection to it, gave an error.
    #[error("{method} failed with {code:?}: {message}")]
    Rpc {
        /// The CRI method.
        method: &'static str,
        /// Its gRPC status.
        code: Code,
        /// The runtime's words.
        message: String,
    },
    /// The client could not be set up.
    #[error("cannot make a CRI client of {socket}: {reason}")]
    Setup {
        /// The runtime's socket.
        socket: String,
        /// What went wrong.
        reason: String,
    },
}

impl Error {
    /// Whether the call ran into its deadline.
    #[must_use]
    pub fn is_deadline(&self) -> bool {
        matches!(self, Error::Deadline { .. })
    }
}

/// A connection to a runtime; cheap to clone, usable from many threads at once.
#[derive(Clone)]
pub struct Client {
    socket: PathBuf,
    api: Api,
    channel: Channel,
    driver: Arc<Driver>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("socket", &self.socket).field("api", &self.api).finish_non_exhaustive()
    }
}

impl Client {
    /// A client of the runtime at `socket`. It connects at the first call, and again after the runtime was restarted.
    ///
    /// # Errors
    ///
    /// When the thread of the client cannot be started.
    pub fn new(socket: &Path, api: Api) -> Result<Client, Error> {
        let setup = |reason: std::io::Error| Error::Setup {
            socket: socket.display().to_string(),
            reason: reason.to_string(),
        };
        let driver = Driver::start().map_err(setup)?;
        let path = socket.to_owned();
        let connector = tower::service_fn(move |_: Uri| {
            let path = path.clone();
            async move { tokio::net::UnixStream::connect(path).await.map(TokioIo::new) }
        });
        // The address is never resolved; it becomes the `:authority` header.
        let endpoint = Endpoint::from_static("http://localhost");
        let channel = driver.enter(|| endpoint.connect_with_connector_lazy(connector));
        Ok(Client { socket: socket.to_owned(), api, channel, driver: Arc::new(driver) })
    }

    /// The version it speaks.
    #[must_use]
    pub fn api(&self) -> Api {
        self.api
    }

    /// The socket it speaks to.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    fn call<Q, A>(&self, service: &str, method: &'static str, request: Q, deadline: Duration) -> Result<A, Error>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let rpc = |status: &tonic::Status| Error::Rpc {
            method,
            code: status.code(),
            message: status.message().to_owned(),
        };
        let path = format!("/{}.{service}/{method}", self.api.package());
        let path = PathAndQuery::try_from(path).expect("a method path is a valid URI path");
        let mut grpc = tonic::client::Grpc::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE);
        let mut request = Request::new(request);
        request.set_timeout(deadline); // The server learns the deadline, as from a kubelet.
        let exchange = async {
            grpc.ready().await.map_err(|error| tonic::Status::unavailable(error.to_string()))?;
            grpc.unary(request, path, ProstCodec::default()).await
        };
        let answer = self.driver.wait(async { tokio::time::timeout(deadline, exchange).await });
        match answer {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Err(_) => Err(Error::Deadline { method, deadline }),
            Ok(Err(status)) if is_timeout(&status) => Err(Error::Deadline { method, deadline }),
            Ok(Err(status)) => Err(rpc(&status)),
        }
    }

    fn runtime<Q, A>(&self, method: &'static str, request: Q, deadline: Duration) -> Result<A, Error>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        self.call("RuntimeService", method, request, deadline)
    }

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

    /// `PodSandboxStatus`.
    ///
    /// # Errors
    ///
    /// As for every call: the deadline, or what the runtime said.
    pub fn pod_sandbox_status(&self, sandbox: &str, deadline: Duration) -> Result<Option<m::PodSandbox>, Error> {
        let answer: m::PodSandboxStatusResponse = self.runtime("PodSandboxStatus", id(sandbox), deadline)?;
        Ok(answer.status)
    }

    /// `ContainerStatus`.
    ///
    /// # Errors
    ///
    /// As for every call: the deadline, or what the runtime said.
    pub fn container_status(&self, container: &str, deadline: Duration) -> Result<Option<m::ContainerStatus>, Error> {
        let answer: m::ContainerStatusResponse = self.runtime("ContainerStatus", id(container), deadline)?;
        Ok(answer.status)
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
    pub fn create_container(&self, request: m::CreateContainerRequest, deadline: Duration) -> Result<String, Error> {
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

/// tonic's own timer and the server's race with ours; all three mean the same.
fn is_timeout(status: &tonic::Status) -> bool {
    status.code() == Code::DeadlineExceeded
        || (status.code() == Code::Cancelled && status.message().contains("Timeout expired"))
}
