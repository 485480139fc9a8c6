//! [`send`]: spans to a collector. It may be down, slow or far away: nothing waits for it for long.

use std::{io, time::Duration};

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use tonic::transport::{Channel, Endpoint};

use super::{Request, Sent};
use crate::{cli::Collector, render::escape};

/// To connect, and for the answer to each request.
const LIMIT: Duration = Duration::from_secs(5);
/// For all of it.
const WHOLE: Duration = Duration::from_secs(15);

/// Characters of a refusal that are shown.
const WORDS: usize = 200;

/// Why traces were not sent.
#[derive(Debug, thiserror::Error)]
pub enum OtlpError {
    /// No loop to send in.
    #[error("cannot send traces")]
    Loop(#[source] io::Error),
    /// Nobody answers there.
    #[error("no collector at {url}")]
    Connect {
        /// The address.
        url: String,
        /// Why.
        #[source]
        source: tonic::transport::Error,
    },
    /// It does not take them.
    #[error("the collector at {url} refuses traces: {words}")]
    Refused {
        /// The address.
        url: String,
        /// Code and message of the answer.
        words: String,
    },
    /// It takes too long.
    #[error("the collector at {url} has not answered within {} s", WHOLE.as_secs())]
    Late {
        /// The address.
        url: String,
    },
}

/// Sends one after the other, within 15 seconds for all of them. Blocks.
///
/// # Errors
///
/// The collector does not answer, or refuses one; those before it have arrived.
pub fn send(collector: &Collector, requests: Vec<Request>) -> Result<Sent, OtlpError> {
    if requests.is_empty() {
        return Ok(Sent::default());
    }
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(OtlpError::Loop)?;
    let late = |_| OtlpError::Late { url: collector.to_string() };
    runtime.block_on(async { tokio::time::timeout(WHOLE, all(collector, requests)).await.map_err(late)? })
}

async fn all(collector: &Collector, requests: Vec<Request>) -> Result<Sent, OtlpError> {
    let mut client = TraceServiceClient::new(connect(collector).await?);
    let mut sent = Sent::default();
    for request in requests {
        let scopes = request.resource_spans.iter().flat_map(|process| &process.scope_spans);
        sent.spans += scopes.map(|scope| scope.spans.len() as u64).sum::<u64>();
        let answer = client.export(request).await.map_err(|status| OtlpError::Refused {
            url: collector.to_string(),
            // What it says is its own.
            words: format!("{}: {}", status.code(), escape::text_to(status.message(), WORDS)),
        })?;
        let partial = answer.into_inner().partial_success;
        sent.rejected += partial.map_or(0, |part| u64::try_from(part.rejected_spans).unwrap_or_default());
    }
    Ok(sent)
}

async fn connect(collector: &Collector) -> Result<Channel, OtlpError> {
    let failed = |source| OtlpError::Connect { url: collector.to_string(), source };
    let endpoint = Endpoint::from_shared(collector.url().to_owned()).map_err(failed)?;
    endpoint.connect_timeout(LIMIT).timeout(LIMIT).connect().await.map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nobody there is an error with the address, and nothing to send asks nobody.
    #[test]
    fn nobody_listens() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", taken.local_addr().unwrap());
        drop(taken);
        let collector: Collector = url.parse().unwrap();
        assert_eq!(send(&collector, Vec::new()).unwrap(), Sent::default());
        let error = send(&collector, vec![Request::default()]).unwrap_err();
        assert!(matches!(error, OtlpError::Connect { .. }) && error.to_string().contains(&url), "{error}");
    }
}
