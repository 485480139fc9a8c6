//! Turns a blocking method call with a deadline into one unary gRPC call over the runtime's unix socket.

use std::error::Error as _;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use tokio::sync::watch;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Request};
use tonic_prost::ProstCodec;

use super::driver::Driver;

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
    /// We gave it up ourselves: the stream was reset.
    #[error("{method} was cancelled")]
    Cancelled {
        /// The CRI method.
        method: &'static str,
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
    /// Whether the connection broke under the call; the next one makes a new connection.
    #[must_use]
    pub fn is_broken_connection(&self) -> bool {
        matches!(self, Error::Rpc { code: Code::Unknown, message, .. } if message.starts_with("transport error"))
    }

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
    cancelled: watch::Receiver<bool>,
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
        // Without a sender nobody ever cancels.
        let (_, cancelled) = watch::channel(false);
        Ok(Client { socket: socket.to_owned(), api, channel, driver: Arc::new(driver), cancelled })
    }

    /// A twin on the same connection whose calls end when `cancelled` turns true.
    pub(super) fn cancelled_by(&self, cancelled: watch::Receiver<bool>) -> Client {
        Client { cancelled, ..self.clone() }
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

    /// One call of `method` of the service `service` (without its package).
    pub(super) fn call<Q, A>(
        &self,
        service: &str,
        method: &'static str,
        request: Q,
        deadline: Duration,
    ) -> Result<A, Error>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let rpc =
            |status: &tonic::Status| Error::Rpc { method, code: status.code(), message: with_causes(status) };
        let path = format!("/{}.{service}/{method}", self.api.package());
        let path = PathAndQuery::try_from(path).expect("a method path is a valid URI path");
        let mut grpc = tonic::client::Grpc::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE);
        let mut request = Request::new(request);
        let begun = Instant::now();
        request.set_timeout(deadline); // The server learns the deadline, as from a kubelet.
        let exchange = async {
            grpc.ready().await.map_err(|error| tonic::Status::unavailable(error.to_string()))?;
            grpc.unary(request, path, ProstCodec::default()).await
        };
        let mut cancelled = self.cancelled.clone();
        let cancelled = async {
            // An error is the end of a sender that never cancelled.
            if cancelled.wait_for(|&is_cancelled| is_cancelled).await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let answer = self.driver.wait(async {
            tokio::select! {
                answer = tokio::time::timeout(deadline, exchange) => Some(answer),
                () = cancelled => None,
            }
        });
        let Some(answer) = answer else { return Err(Error::Cancelled { method }) };
        match answer {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Err(_) => Err(Error::Deadline { method, deadline }),
            Ok(Err(status)) if is_timeout(&status, begun.elapsed(), deadline) => {
                Err(Error::Deadline { method, deadline })
            }
            Ok(Err(status)) => Err(rpc(&status)),
        }
    }

    /// One call of the runtime service.
    pub(super) fn runtime<Q, A>(
        &self,
        method: &'static str,
        request: Q,
        deadline: Duration,
    ) -> Result<A, Error>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        self.call("RuntimeService", method, request, deadline)
    }
}

/// The runtime's words; where the connection failed, the causes behind tonic's "transport error".
fn with_causes(status: &tonic::Status) -> String {
    let causes = std::iter::successors(status.source(), |&error| error.source());
    causes.fold(status.message().to_owned(), |said, cause| {
        let cause = cause.to_string();
        if said.contains(&cause) { said } else { format!("{said}: {cause}") }
    })
}

/// tonic's own timer and the server's race with ours; all mean the same. A server of grpc-go whose timer is first either says so, or
/// resets the stream; a runtime whose own work ends with the deadline answers with an error of its own, as containerd's "unexpected
/// metrics response". Its timer begins after ours, so such an answer never comes before `deadline`.
fn is_timeout(status: &tonic::Status, elapsed: Duration, deadline: Duration) -> bool {
    let cancelled = |words| status.code() == Code::Cancelled && with_causes(status).contains(words);
    elapsed >= deadline
        || status.code() == Code::DeadlineExceeded
        || cancelled("Timeout expired")
        || cancelled("stream no longer needed")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whose timer was first does not matter, and what the runtime says then neither; what it says earlier is an answer.
    #[test]
    fn an_answer_at_the_deadline_is_none() {
        let [early, late] = [Duration::from_millis(999), Duration::from_millis(1_001)];
        let deadline = Duration::from_secs(1);
        let own = tonic::Status::unknown("unexpected metrics response: []");
        assert!(is_timeout(&own, late, deadline) && !is_timeout(&own, early, deadline));
        let reset = tonic::Status::cancelled("stream no longer needed");
        for status in [tonic::Status::deadline_exceeded("context deadline exceeded"), reset] {
            assert!(is_timeout(&status, early, deadline), "{status}");
        }
    }
}
