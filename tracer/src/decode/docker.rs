//! [`DockerRec`] → [`DockerRequest`].

use plegtrace_common::{kind::RecKind, rec::DockerRec, wire::docker::HEAD};
use zerocopy::FromBytes;

use super::{DecodeError, DockerRequest, Message, MessageId, MonoNs};
use crate::cri::DockerCall;

/// Reads an answered request.
pub(super) fn decode(bytes: &[u8]) -> Result<DockerRequest, DecodeError> {
    let rec = DockerRec::read_from_bytes(bytes).map_err(|_| DecodeError::Size {
        kind: RecKind::Docker,
        want: size_of::<DockerRec>(),
        have: bytes.len(),
    })?;
    let (start, end) = (MonoNs(rec.start_ns), MonoNs(rec.header.ts_ns));
    if end < start {
        return Err(DecodeError::Backwards { start, end });
    }
    let DockerCall { method, container } =
        docker_line(&rec.head).and_then(DockerCall::read).ok_or(DecodeError::MessageNames)?;
    let message = Message {
        id: MessageId { socket: rec.socket, stream: 0, start },
        asker: rec.asker,
        answerer: rec.header.tgid,
        end,
        service: String::new(),
        method,
    };
    Ok(DockerRequest { message, container, status: rec.status })
}

/// Method and path at the beginning of a request; the query is left out, and may have anything in it.
#[must_use]
pub fn docker_line(head: &[u8; HEAD]) -> Option<&str> {
    let verb = head.iter().position(|byte| *byte == b' ')?;
    let path = head.get(verb + 1..)?;
    let ends = |byte: &u8| matches!(*byte, b'?' | b'#') || !byte.is_ascii_graphic();
    let len = path.iter().position(ends).unwrap_or(path.len());
    str::from_utf8(head.get(..verb + 1 + len)?).ok()
}

#[cfg(test)]
mod tests {
    use plegtrace_common::{ABI_VERSION, header::RecHeader};
    use zerocopy::IntoBytes;

    use super::*;

    fn head(text: &[u8]) -> [u8; HEAD] {
        let mut head = [0; HEAD];
        head[..text.len()].copy_from_slice(text);
        head
    }

    fn rec(text: &[u8]) -> DockerRec {
        let len = u32::try_from(size_of::<DockerRec>()).unwrap();
        DockerRec {
            header: RecHeader {
                ts_ns: 9,
                len,
                kind: RecKind::Docker as u16,
                abi: ABI_VERSION,
                tgid: 20,
                tid: 21,
            },
            start_ns: 5,
            socket: 7,
            asker: 10,
            status: 404,
            head: head(text),
        }
    }

    /// Who asked whom what, and how it was answered.
    #[test]
    fn an_answer() {
        let seen = decode(rec(b"GET /v1.40/containers/0123456789ab/json").as_bytes()).unwrap();
        let Message { id, asker, answerer, end, ref service, ref method } = seen.message;
        assert_eq!((id.socket, id.stream, id.start, end), (7, 0, MonoNs(5), MonoNs(9)));
        assert_eq!((asker, answerer, service.as_str()), (10, 20, ""));
        assert_eq!((method.as_str(), seen.container.as_str()), ("GET /containers/{id}/json", "0123456789ab"));
        assert_eq!(seen.status, 404);
    }

    /// Time does not go back, and a request has a line.
    #[test]
    fn what_is_no_request() {
        let late = DockerRec { start_ns: 10, ..rec(b"GET /x") };
        assert!(matches!(decode(late.as_bytes()), Err(DecodeError::Backwards { .. })));
        for text in [&b""[..], b"GET", b"\xff\xff /x", b"GET \x01"] {
            assert_eq!(decode(rec(text).as_bytes()), Err(DecodeError::MessageNames), "{text:?}");
        }
    }

    /// Nothing of a query, a version or a header enters the stream.
    #[test]
    fn lines() {
        let line = |text: &[u8]| docker_line(&head(text)).map(str::to_owned);
        assert_eq!(line(b"GET /a?token=x HTTP/1.1\r\n").as_deref(), Some("GET /a"));
        assert_eq!(line(b"GET /a HTTP/1.1\r\nX: y").as_deref(), Some("GET /a"));
        assert_eq!(line(&[b'a'; HEAD]), None);
        assert_eq!(line(&[&b"GET /"[..], &[b'b'; HEAD - 5]].concat()).map(|it| it.len()), Some(HEAD));
    }
}
