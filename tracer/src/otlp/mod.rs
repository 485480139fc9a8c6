//! The slowest relists and requests of a snapshot as traces for an OpenTelemetry collector (OTLP over gRPC): what is open is sent as
//! it stands, which no instrumentation of the programs can do, since it reports a span when that ends.
//!
//! One trace for each relist or request that is open, has failed, or took a second or longer. Names and attributes follow the RPC
//! conventions of OpenTelemetry (semantic-conventions, `docs/rpc`); what they have no name for begins with `plegtrace.`. The
//! same relist or request has the same ids each time it is sent: of an open one the next window brings the rest.
//!
//! The cargo feature `otlp` brings it, which is on by default; without, [`send`] says so.

#[cfg(not(feature = "otlp"))]
mod absent;
#[cfg(feature = "otlp")]
mod attributes;
mod exporter;
#[cfg(feature = "otlp")]
mod ids;
#[cfg(feature = "otlp")]
mod send;
#[cfg(feature = "otlp")]
mod spans;

#[cfg(not(feature = "otlp"))]
pub use absent::{OtlpError, Request, requests, send};
pub(crate) use exporter::Exporter;
/// Spans on their way to a collector.
#[cfg(feature = "otlp")]
pub use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest as Request;
#[cfg(feature = "otlp")]
pub use send::{OtlpError, send};
#[cfg(feature = "otlp")]
pub use spans::requests;

/// What came of an export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Spans that were sent.
    pub spans: u64,
    /// Those among them that the collector has not taken.
    pub rejected: u64,
}
