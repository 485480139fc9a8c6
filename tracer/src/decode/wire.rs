//! [`MessageRec`] → [`Message`].

use plegtrace_common::{
    kind::RecKind,
    rec::MessageRec,
    wire::ttrpc::{HEAD, Names},
};
use zerocopy::FromBytes;

use super::{DecodeError, Message, MessageId, MonoNs};

/// Reads an answered request.
pub(super) fn decode(bytes: &[u8]) -> Result<Message, DecodeError> {
    let rec = MessageRec::read_from_bytes(bytes).map_err(|_| DecodeError::Size {
        kind: RecKind::Message,
        want: size_of::<MessageRec>(),
        have: bytes.len(),
    })?;
    let (start, end) = (MonoNs(rec.start_ns), MonoNs(rec.header.ts_ns));
    if end < start {
        return Err(DecodeError::Backwards { start, end });
    }
    let (service, method) =
        message_names(rec.service, rec.method, &rec.head).ok_or(DecodeError::MessageNames)?;
    Ok(Message {
        id: MessageId { socket: rec.socket, stream: rec.stream, start },
        asker: rec.asker,
        answerer: rec.header.tgid,
        end,
        service,
        method,
    })
}

/// Service and method of a request, from the beginning of it that the kernel side keeps; empty texts when it could not
/// read them, `None` when what it kept cannot be names.
#[must_use]
pub fn message_names(service: u32, method: u32, head: &[u8; HEAD]) -> Option<(String, String)> {
    if method == 0 {
        return Some(Default::default());
    }
    let (service, method) = Names { service, method }.texts(head)?;
    Some((service.to_owned(), method.to_owned()))
}

#[cfg(test)]
mod tests {
    use plegtrace_common::{ABI_VERSION, header::RecHeader};
    use zerocopy::IntoBytes;

    use super::*;

    fn rec(start_ns: u64, ts_ns: u64) -> MessageRec {
        let len = u32::try_from(size_of::<MessageRec>()).unwrap();
        let mut head = [0; HEAD];
        head[..8].copy_from_slice(b"\n\x03a.B\x12\x01M");
        MessageRec {
            header: RecHeader {
                ts_ns,
                len,
                kind: RecKind::Message as u16,
                abi: ABI_VERSION,
                tgid: 20,
                tid: 21,
            },
            start_ns,
            socket: 77,
            stream: 5,
            asker: 10,
            bytes: 40,
            answer_bytes: 2,
            service: 3,
            method: 1,
            head,
        }
    }

    /// Each field lands where it belongs.
    #[test]
    fn fields() {
        let message = decode(rec(5, 9).as_bytes()).unwrap();
        assert_eq!(message.id, MessageId { socket: 77, stream: 5, start: MonoNs(5) });
        assert_eq!((message.asker, message.answerer, message.end), (10, 20, MonoNs(9)));
        assert_eq!((message.service.as_str(), message.method.as_str()), ("a.B", "M"));
        assert!(matches!(decode(rec(9, 5).as_bytes()), Err(DecodeError::Backwards { .. })));
    }

    /// Names that were not read are empty; what cannot be names is an error.
    #[test]
    fn names() {
        let unnamed = MessageRec { service: 0, method: 0, ..rec(5, 9) };
        assert_eq!(decode(unnamed.as_bytes()).unwrap().method, "");
        for (service, method) in [(4, 1), (u32::MAX, 1), (3, 60), (3, u32::MAX)] {
            let hostile = MessageRec { service, method, ..rec(5, 9) };
            assert_eq!(decode(hostile.as_bytes()), Err(DecodeError::MessageNames), "{service} {method}");
        }
    }
}
