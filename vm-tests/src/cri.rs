//! CRI requests with few or no arguments over the runtime's socket: enough to make its handlers run, without a kubelet and
//! without a gRPC library in the guest.
//!
//! One connection carries one request. The protocol is HTTP/2 (RFC 9113) with header fields that are never indexed
//! (RFC 7541, 6.2.2), so that no state has to be kept; the answer's header fields are not decoded, a request counts
//! as answered when its stream carried a message.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

/// Where Debian's containerd listens.
const SOCKET: &str = "/run/containerd/containerd.sock";

/// The API as kubelets know it, newest first; containerd 1.4 has only the second.
const APIS: [&str; 2] = ["runtime.v1", "runtime.v1alpha2"];

/// A request that takes longer than this will not be answered. The removal of images from a slow disk takes a minute and more where the
/// guest itself is slow; a client that gives up then is a failure that nobody has asked for.
pub(crate) const DEADLINE: Duration = Duration::from_secs(300);

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const STREAM: u32 = 1;
/// Larger than any list of an empty runtime.
const FRAME_LIMIT: usize = 1 << 20;

// Frame types and flags: RFC 9113, section 6.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// A runtime that answers.
#[derive(Debug, Clone)]
pub struct Client {
    api: &'static str,
}

struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl Client {
    /// Finds out which version of the API the runtime speaks.
    ///
    /// # Errors
    /// When nobody listens or no known version is answered.
    pub fn connect() -> Result<Self> {
        let mut last = None;
        for api in APIS {
            match request(api, "RuntimeService/Version", &[]) {
                Ok(_) => return Ok(Self { api }),
                Err(error) => last = Some(error),
            }
        }
        Err(last.context("no version of the API is known")?)
    }

    /// Makes one request with an empty message, such as `ListContainers`; returns the bytes of the reply's message.
    ///
    /// # Errors
    /// When the runtime does not answer with a message.
    pub fn call(&self, method: &str) -> Result<Vec<u8>> {
        request(self.api, &format!("RuntimeService/{method}"), &[])
    }

    /// Asks for the removal of the image with this name (`RemoveImage`).
    ///
    /// # Errors
    /// When the runtime does not answer with a message.
    pub fn remove_image(&self, name: &str) -> Result<()> {
        // RemoveImageRequest and ImageSpec: the first field of each is what is wanted.
        let message = field(&field(name.as_bytes()));
        request(self.api, "ImageService/RemoveImage", &message).map(drop)
    }

    /// Package name of the API, such as `runtime.v1`.
    #[must_use]
    pub fn api(&self) -> &'static str {
        self.api
    }

    /// The socket that requests go to.
    #[must_use]
    pub fn socket(&self) -> &'static str {
        SOCKET
    }
}

/// Field 1 of a protobuf message, when it is a text or another message.
fn field(content: &[u8]) -> Vec<u8> {
    let length =
        u8::try_from(content.len()).ok().filter(|length| *length < 128).expect("our texts are short");
    [&[0x0a, length], content].concat()
}

fn request(api: &str, method: &str, message: &[u8]) -> Result<Vec<u8>> {
    let mut stream = UnixStream::connect(SOCKET).with_context(|| format!("cannot connect to {SOCKET}"))?;
    stream.set_read_timeout(Some(DEADLINE))?;
    let mut bytes = PREFACE.to_vec();
    bytes.extend(frame(SETTINGS, 0, 0, &[]));
    bytes.extend(frame(HEADERS, END_HEADERS, STREAM, &headers(&format!("/{api}.{method}"))));
    // Not compressed, and its length.
    let length = u32::try_from(message.len()).expect("our messages are small").to_be_bytes();
    bytes.extend(frame(DATA, END_STREAM, STREAM, &[&[0], &length[..], message].concat()));
    stream.write_all(&bytes).with_context(|| format!("cannot write to {SOCKET}"))?;
    answer(&mut stream).with_context(|| format!("{method} of {api}"))
}

/// Reads frames until our stream ends, answering what the protocol wants answered.
fn answer(stream: &mut UnixStream) -> Result<Vec<u8>> {
    let mut message = Vec::new();
    loop {
        let got = read_frame(stream)?;
        let ours = got.stream == STREAM;
        match got.kind {
            SETTINGS if got.flags & ACK == 0 => stream.write_all(&frame(SETTINGS, ACK, 0, &[]))?,
            PING if got.flags & ACK == 0 => stream.write_all(&frame(PING, ACK, 0, &got.payload))?,
            DATA if ours => message.extend(got.payload),
            RST_STREAM if ours => bail!("the stream was reset"),
            GOAWAY => bail!("the connection was refused"),
            _ => {}
        }
        if ours && matches!(got.kind, DATA | HEADERS) && got.flags & END_STREAM != 0 {
            break;
        }
    }
    ensure!(message.len() >= 5, "no message in the answer, so an error status");
    Ok(message.split_off(5))
}

fn read_frame(stream: &mut UnixStream) -> Result<Frame> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).context("no answer")?;
    let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
    ensure!(length <= FRAME_LIMIT, "a frame of {length} bytes");
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload).context("half an answer")?;
    let id = u32::from_be_bytes([head[5], head[6], head[7], head[8]]) & 0x7fff_ffff;
    Ok(Frame { kind: head[3], flags: head[4], stream: id, payload })
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("our frames are small").to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

fn headers(path: &str) -> Vec<u8> {
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "localhost"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    let mut bytes = Vec::new();
    for (name, value) in fields {
        bytes.push(0);
        for text in [name, value] {
            bytes.push(u8::try_from(text.len()).ok().filter(|n| *n < 127).expect("our fields are short"));
            bytes.extend(text.bytes());
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame is what RFC 9113, section 4.1 draws, and is read back as it was written.
    #[test]
    fn frames_are_read_back() {
        let (mut here, mut there) = UnixStream::pair().unwrap();
        here.write_all(&frame(PING, ACK, 0x1234, b"12345678")).unwrap();
        let got = read_frame(&mut there).unwrap();
        assert_eq!(
            (got.kind, got.flags, got.stream, got.payload.as_slice()),
            (PING, ACK, 0x1234, &b"12345678"[..])
        );
    }

    /// A message in a message, as protobuf writes it: the field's number and kind, its length, its bytes.
    #[test]
    fn a_name_is_wrapped() {
        assert_eq!(field(&field(b"a/b")), *b"\x0a\x05\x0a\x03a/b");
    }

    /// The peer's settings are acknowledged and its message is returned without the five bytes of its frame.
    #[test]
    fn a_reply_is_unwrapped() {
        let (mut here, mut there) = UnixStream::pair().unwrap();
        let mut bytes = frame(SETTINGS, 0, 0, &[]);
        bytes.extend(frame(DATA, 0, STREAM, b"\0\0\0\0\x02hi"));
        bytes.extend(frame(HEADERS, END_STREAM | END_HEADERS, STREAM, &[]));
        there.write_all(&bytes).unwrap();
        assert_eq!(answer(&mut here).unwrap(), b"hi");
        assert_eq!(read_frame(&mut there).unwrap().flags, ACK);
    }

    /// An answer of trailers only is an error status, not an empty reply.
    #[test]
    fn an_error_status_is_an_error() {
        let (mut here, mut there) = UnixStream::pair().unwrap();
        there.write_all(&frame(HEADERS, END_STREAM | END_HEADERS, STREAM, &[])).unwrap();
        assert!(answer(&mut here).unwrap_err().to_string().contains("error status"));
    }
}
