//! Where in a stream the contents of messages are, which captures are kept without.

mod grpc;
pub(super) mod http1;
pub mod protobuf;
mod ttrpc;

use plegtrace::wire::Side;

/// What is spoken on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// gRPC over HTTP/2.
    Grpc,
    /// HTTP/1.1, as on Docker's socket.
    Http1,
    /// ttrpc, as between containerd and its shims.
    Ttrpc,
}

impl Protocol {
    /// Calls `with` for each byte of the content of each message in a whole direction.
    pub(super) fn each_content(self, side: Side, stream: &mut [u8], with: &mut impl FnMut(&mut u8)) {
        match self {
            Protocol::Grpc => grpc::each_content(side, stream, with),
            Protocol::Http1 => http1::each_content(stream, with),
            Protocol::Ttrpc => ttrpc::each_content(stream, with),
        }
    }
}
