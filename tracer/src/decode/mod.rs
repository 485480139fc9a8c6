//! Bytes of one record → one typed [`Event`].
//!
//! Pure and total: any frame gives an event or a [`DecodeError`], never a panic. No clocks, no files. Records are read
//! with their exact length by zerocopy; texts stay raw (they are escaped where they are rendered). One file per family
//! of records, named like the family in `tracer-common`.

mod bus;
mod call;
mod docker;
mod event;
mod fact;
mod park;
mod process;
mod record;
mod request;
mod wire;

pub use bus::bus_names;
pub use docker::docker_line;
pub use event::{
    BusCall, BusCallId, BusKind, BusNames, Call, CallId, CallResult, DockerRequest, Event, Message,
    MessageId, Meta, MonoNs, ParkEvent, Parked, Process, Request, RequestEnd, Step,
};
pub use park::stack;
pub use record::{DecodeError, decode};
pub use request::request_names;
pub use wire::message_names;
