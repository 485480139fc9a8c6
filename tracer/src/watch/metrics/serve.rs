//! The HTTP server of the page, in a thread of its own: whoever reads slowly holds up nobody else.

use std::{
    convert::Infallible,
    io,
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::Semaphore;

use super::{
    classic,
    figures::Figures,
    page::{CONTENT_TYPE, page},
};

/// Connections that are served at the same time; others wait.
const CONNECTIONS: usize = 8;
/// For a whole connection.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why there are no metrics.
#[derive(Debug, thiserror::Error)]
#[error("cannot serve metrics at {address}")]
pub struct MetricsError {
    /// Where they were to be served.
    address: SocketAddr,
    /// Why not.
    #[source]
    source: io::Error,
}

/// Listens, and serves from then on; where, which matters when the system chooses the port.
pub(super) fn start(address: SocketAddr, figures: Arc<Mutex<Figures>>) -> Result<SocketAddr, MetricsError> {
    let failed = |source| MetricsError { address, source };
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let serve = move || {
        if let Err(error) = runtime.block_on(accept(listener, &figures)) {
            tracing::warn!("metrics are no longer served: {error}");
        }
    };
    thread::Builder::new().name("metrics".to_owned()).spawn(serve).map_err(failed)?;
    Ok(bound)
}

async fn accept(listener: TcpListener, figures: &Arc<Mutex<Figures>>) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return Ok(()) };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Too many open files, or a client that has gone: neither lasts.
                tracing::debug!("cannot accept a connection: {error}");
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
        };
        let figures = Arc::clone(figures);
        tokio::spawn(async move {
            let answers = service_fn(move |request| {
                let answer = answer(&request, &figures);
                async move { Ok::<_, Infallible>(answer) }
            });
            let mut http = http1::Builder::new();
            let connection = http.timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), answers);
            if let Ok(Err(error)) = tokio::time::timeout(PATIENCE, connection).await {
                tracing::debug!("a reader of the metrics went away: {error}");
            }
            drop(place);
        });
    }
}

fn answer(request: &Request<Incoming>, figures: &Arc<Mutex<Figures>>) -> Response<Full<Bytes>> {
    let with = |status: StatusCode, kind: &'static str, body: String| {
        let mut response = Response::new(Full::new(Bytes::from(body)));
        *response.status_mut() = status;
        response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
        response
    };
    let text = |status, body: &str| with(status, "text/plain; charset=utf-8", body.to_owned());
    if request.method() != Method::GET {
        return text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n");
    }
    if request.uri().path() != "/metrics" {
        return text(StatusCode::NOT_FOUND, "metrics are at /metrics\n");
    }
    let accepts = request.headers().get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    match page(figures) {
        Ok(body) if accepts.into_iter().any(classic::knows_openmetrics) => {
            with(StatusCode::OK, CONTENT_TYPE, body)
        }
        Ok(body) => with(StatusCode::OK, classic::CONTENT_TYPE, classic::from_openmetrics(&body)),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, &format!("{error}\n")),
    }
}
