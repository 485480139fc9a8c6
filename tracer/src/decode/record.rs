//! [`decode`]: picks the family of a record.

use plegtrace_common::kind::RecKind;

use super::{
    Event, MonoNs, bus, call, docker, fact, park,
    process::{self, Life},
    request, wire,
};
use crate::input::Frame;

/// Why a frame is not an event.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The record has not the size of its kind.
    #[error("{kind:?} record of {have} bytes, its layout has {want}")]
    Size {
        /// Kind of the record.
        kind: RecKind,
        /// Size of the layout.
        want: usize,
        /// Size found.
        have: usize,
    },
    /// A call or park that ends before it starts.
    #[error("record ends at {end}, before its start at {start}")]
    Backwards {
        /// Start it gives.
        start: MonoNs,
        /// End it gives.
        end: MonoNs,
    },
    /// A record that must not be in a stream: it holds a whole command line, or a header block.
    #[error("{0:?} record in a stream: it belongs between the kernel and plegtrace only")]
    Private(RecKind),
    /// A request whose names are none.
    #[error("the names of a request are no names")]
    MessageNames,
    /// A request that ended in a way that nobody knows.
    #[error("a request ended in an unknown way: {0}")]
    RequestEnd(u32),
    /// The JSON of a fact does not have the expected form.
    #[error("fact record is malformed: {0}")]
    Fact(String),
}

/// Turns a frame into an event.
///
/// # Errors
///
/// The payload does not have the layout of its kind, or contradicts itself.
pub fn decode(frame: &Frame) -> Result<Event, DecodeError> {
    match frame.kind {
        RecKind::Call => call::decode(&frame.bytes).map(Event::Call),
        RecKind::Park => park::decode(&frame.bytes).map(Event::Park),
        RecKind::Fork => process::decode(&frame.bytes, Life::Fork).map(Event::Process),
        RecKind::Exec => process::decode(&frame.bytes, Life::Exec).map(Event::Process),
        RecKind::Exit => process::decode(&frame.bytes, Life::Exit).map(Event::Process),
        RecKind::Message => wire::decode(&frame.bytes).map(Event::Message),
        RecKind::BusCall => bus::decode(&frame.bytes).map(Event::BusCall),
        RecKind::Request => request::decode(&frame.bytes).map(Event::Request),
        RecKind::Docker => docker::decode(&frame.bytes).map(Event::Docker),
        RecKind::ExecArgs | RecKind::ExecArgsEnv | RecKind::Block => Err(DecodeError::Private(frame.kind)),
        RecKind::Fact => {
            let fact = fact::decode(frame.payload())?;
            Ok(Event::Fact { at: MonoNs(frame.header.ts_ns), fact: Box::new(fact) })
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use plegtrace_common::header::HEADER_LEN;

    use super::*;
    use crate::input::{Fact, Stop, StopWhy, frame_fact};

    /// A fact comes back as it was framed, with its time.
    #[test]
    fn a_fact_round_trips() {
        let fact = Fact::Stop(Stop { why: StopWhy::Interrupt });
        let event = decode(&frame_fact(7, &fact)).unwrap();
        assert_eq!(event, Event::Fact { at: MonoNs(7), fact: Box::new(fact) });
    }

    /// A payload that is no fact is an error with the reason, not a panic.
    #[test]
    fn a_malformed_fact_is_an_error() {
        let mut frame = frame_fact(7, &Fact::Stop(Stop { why: StopWhy::Interrupt }));
        frame.bytes = Bytes::copy_from_slice(&[frame.bytes.slice(..HEADER_LEN).as_ref(), b"{}"].concat());
        assert!(matches!(decode(&frame), Err(DecodeError::Fact(_))));
    }

    /// A frame whose kind and length disagree is refused by every family.
    #[test]
    fn a_wrong_size_is_an_error() {
        let kinds = [
            RecKind::Call,
            RecKind::Park,
            RecKind::Fork,
            RecKind::Exec,
            RecKind::Exit,
            RecKind::Message,
            RecKind::BusCall,
            RecKind::Request,
            RecKind::Docker,
        ];
        for kind in kinds {
            let mut frame = frame_fact(7, &Fact::Stop(Stop { why: StopWhy::Interrupt }));
            frame.kind = kind;
            assert!(matches!(decode(&frame), Err(DecodeError::Size { .. })), "{kind:?}");
        }
    }
}
