//! Requests on the sockets of a runtime, from nothing but the bytes on them.
//!
//! A pure stage: whoever delivers what the kernel side saw feeds a [`Connection`] per socket with the bytes of each
//! system call, and gets [`Request`]s with method, status, sizes and times. Connections that are older than plegtrace are
//! joined in their middle: their requests have no name until a teacher (see [`lessons`]) gives enough of them one.
//! Where the kernel side walks over the frames itself, [`Naming`] gives requests their names from header blocks alone,
//! and [`Witnesses`] is the teacher.

pub mod connection;
pub mod connections;
pub mod direction;
pub mod hpack;
pub mod lessons;
pub mod naming;
pub mod request;
pub mod trailers;
pub mod witnesses;

pub use connection::{Connection, Counts, Taught};
pub use connections::Connections;
pub use direction::Side;
pub use naming::{Fragment, Naming};
pub use request::{End, Method, Request};
pub use witnesses::Witnesses;
