//! Recordings: the input stream as a file, and back.
//!
//! A recording is what [`Tap`](crate::engine::Tap) sees, record by record, so a report made of it is the report that was
//! printed while it was written. Nothing passes that is not in the stream already: what may enter that is decided by
//! [`admit`](crate::input::admit) and by the allow-lists of the facts.
//!
//! # Format
//!
//! All numbers are little endian. A file header, then blocks until the end of the file:
//!
//! | bytes | file header |
//! |---|---|
//! | 8 | magic, `89 50 4c 54 0d 0a 1a 0a`: damaged by whatever mistakes it for text |
//! | 2 | version of this format, 1 |
//! | 2 | `ABI_VERSION` of the writer |
//! | 4 | CRC-32 of the 12 bytes before |
//!
//! | bytes | block |
//! |---|---|
//! | 4 | marker, `b7 50 4c 42` |
//! | 4 | kind: 1 records, 2 the end |
//! | 8 | number of records before this block, those that were left out included |
//! | 4 | records in this block |
//! | 4 | length of the payload as stored, at most 17 MiB |
//! | 4 | length of the payload when unpacked, at most 16 MiB |
//! | 4 | CRC-32 of the payload as stored |
//! | 4 | CRC-32 of the 32 bytes before |
//! | … | the payload: raw DEFLATE (RFC 1951) |
//!
//! A block holds whole records (`input::Frame`) and can be unpacked without any other. Its writer closes it after a
//! second, so whatever ends the writer leaves all but the last second. A reader that finds damage goes on at the next
//! marker with a right checksum; the number of records before a block tells how many are missing. The payload of the end
//! is one number of 8 bytes: records that were left out because the file was full or the disk too slow.
//!
//! A reader takes nothing on trust: lengths are bounded before anything is allocated, and unpacking stops at the length
//! that was announced.

mod block;
mod damage;
mod encode;
mod file;
mod read;
mod write;

#[cfg(test)]
mod tests;

pub use damage::Damage;
pub use encode::Encoder;
pub use file::{Destination, RecordError};
pub use read::{Recording, RecordingError};
pub use write::{Recorded, Recorder};
