//! [`RequestRec`] → [`Request`].

use plegtrace_common::{
    kind::RecKind,
    rec::{RequestRec, how},
};
use zerocopy::FromBytes;

use super::{DecodeError, Message, MessageId, MonoNs, Request, RequestEnd};

/// Reads a gRPC request that has ended.
pub(super) fn decode(bytes: &[u8]) -> Result<Request, DecodeError> {
    let rec = RequestRec::read_from_bytes(bytes).map_err(|_| DecodeError::Size {
        kind: RecKind::Request,
        want: size_of::<RequestRec>(),
        have: bytes.len(),
    })?;
    let end = match rec.how & !how::OTHER {
        how::ANSWERED => RequestEnd::Answered,
        how::CUT => RequestEnd::Cut,
        how::RESET_BY_SERVER => RequestEnd::ResetByServer,
        how::RESET_BY_CLIENT => RequestEnd::ResetByClient,
        how::IN_DOUBT | how::GOING_AWAY => return Err(DecodeError::Private(RecKind::Request)),
        _ => return Err(DecodeError::RequestEnd(rec.how)),
    };
    let (start, at) = (MonoNs(rec.start_ns), MonoNs(rec.header.ts_ns));
    if at < start {
        return Err(DecodeError::Backwards { start, end: at });
    }
    let name = rec.name.split(|byte| *byte == 0).next().unwrap_or_default();
    let name = str::from_utf8(name).map_err(|_| DecodeError::MessageNames)?;
    let (service, method) = request_names(name).ok_or(DecodeError::MessageNames)?;
    let id = MessageId { socket: rec.socket, stream: rec.stream, start };
    let message = Message { id, asker: rec.asker, answerer: rec.answerer, end: at, service, method };
    let of_other = rec.how & how::OTHER != 0;
    Ok(Request { message, end, bytes: rec.bytes, answer_bytes: rec.answer_bytes, of_other })
}

/// Service and method of a name as the kernel's records have it; `unknown#k@table` is a method of no service, and empty is what
/// could not be read. `None` when it cannot be a name.
#[must_use]
pub fn request_names(name: &str) -> Option<(String, String)> {
    let unknown = name.strip_prefix("unknown#");
    if name.is_empty() || unknown.is_some_and(is_number) {
        return Some((String::new(), name.to_owned()));
    }
    let (service, method) = name.split_once('/')?;
    let is_word = |text: &str| {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_');
        !text.is_empty() && text.bytes().all(is_part)
    };
    (is_word(service) && is_word(method)).then(|| (service.to_owned(), method.to_owned()))
}

/// What is unknown: of which entry, of which table.
fn is_number(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'@'))
}

#[cfg(test)]
mod tests {
    use plegtrace_common::{ABI_VERSION, header::RecHeader, wire::request::NAME};
    use zerocopy::IntoBytes;

    use super::*;

    fn rec(name: &[u8]) -> RequestRec {
        let len = u32::try_from(size_of::<RequestRec>()).unwrap();
        let mut text = [0; NAME];
        text[..name.len()].copy_from_slice(name);
        RequestRec {
            header: RecHeader {
                ts_ns: 9,
                len,
                kind: RecKind::Request as u16,
                abi: ABI_VERSION,
                tgid: 20,
                tid: 21,
            },
            start_ns: 5,
            socket: 77,
            bytes: 40,
            answer_bytes: 2,
            stream: 3,
            asker: 10,
            answerer: 20,
            how: how::ANSWERED,
            name: text,
        }
    }

    /// Each field lands where it belongs.
    #[test]
    fn fields() {
        let request = decode(rec(b"runtime.v1.RuntimeService/Version").as_bytes()).unwrap();
        let message = &request.message;
        assert_eq!(message.id, MessageId { socket: 77, stream: 3, start: MonoNs(5) });
        assert_eq!((message.asker, message.answerer, message.end), (10, 20, MonoNs(9)));
        assert_eq!(
            (message.service.as_str(), message.method.as_str()),
            ("runtime.v1.RuntimeService", "Version")
        );
        assert_eq!((request.bytes, request.answer_bytes, request.end), (40, 2, RequestEnd::Answered));
        let late = RequestRec { start_ns: 10, ..rec(b"") };
        assert!(matches!(decode(late.as_bytes()), Err(DecodeError::Backwards { .. })));
    }

    /// How it ended is told; what only the kernel side may say, and what nobody says, is an error.
    #[test]
    fn ends() {
        let with = |how| decode(RequestRec { how, ..rec(b"a.B/C") }.as_bytes()).map(|request| request.end);
        assert_eq!(with(how::RESET_BY_CLIENT), Ok(RequestEnd::ResetByClient));
        assert_eq!(with(how::RESET_BY_SERVER), Ok(RequestEnd::ResetByServer));
        assert_eq!(with(how::CUT), Ok(RequestEnd::Cut));
        assert_eq!(with(how::RESET_BY_CLIENT | how::OTHER), Ok(RequestEnd::ResetByClient));
        assert_eq!(with(how::IN_DOUBT), Err(DecodeError::Private(RecKind::Request)));
        assert_eq!(with(99), Err(DecodeError::RequestEnd(99)));
    }

    /// A request without a name is one; what cannot be a name is an error.
    #[test]
    fn names() {
        let named = |name: &str| request_names(name);
        assert_eq!(named(""), Some((String::new(), String::new())));
        assert_eq!(named("unknown#7"), Some((String::new(), "unknown#7".to_owned())));
        for name in ["a", "/", "a/", "/b", "a/b/c", "a b/c", "unknown#x", "a.B/\u{1b}"] {
            assert_eq!(named(name), None, "{name:?}");
        }
        assert_eq!(decode(rec(b"\xff").as_bytes()), Err(DecodeError::MessageNames));
        assert_eq!(decode(rec(&[b'a'; NAME]).as_bytes()), Err(DecodeError::MessageNames));
    }
}
