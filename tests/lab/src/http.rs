//! Turns an address or a socket and a path into the body of a page, with a deadline: just enough HTTP for metrics and
//! health pages on the loopback interface, and for the API of dockerd.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{self as unix, UnixDatagram, UnixStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

/// What is asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ask<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    /// The type of the body; without one there is none.
    pub(crate) content: &'a str,
    pub(crate) body: &'a [u8],
}

/// No answer in time: what a request that hangs ends with.
#[derive(Debug, thiserror::Error)]
#[error("{path} unanswered after {deadline:?}")]
pub struct Unanswered {
    path: String,
    deadline: Duration,
}

impl Unanswered {
    /// Whether `error` says, anywhere in its chain, that there was no answer in time.
    #[must_use]
    pub fn is_in(error: &anyhow::Error) -> bool {
        error.chain().any(<dyn std::error::Error>::is::<Unanswered>)
    }
}

/// A connection whose reads and writes may be given a limit.
pub(crate) trait Connection: Read + Write {
    fn limit(&self, left: Duration) -> io::Result<()>;
}

impl Connection for TcpStream {
    fn limit(&self, left: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(left))?;
        self.set_write_timeout(Some(left))
    }
}

impl Connection for UnixStream {
    fn limit(&self, left: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(left))?;
        self.set_write_timeout(Some(left))
    }
}

/// Gets `path` from `address` within `deadline`.
///
/// # Errors
///
/// When it does not connect or answer in time, or answers with another status than a success.
pub fn get(address: SocketAddr, path: &str, deadline: Duration) -> Result<String> {
    let page = format!("http://{address}{path}");
    let end = Instant::now() + deadline;
    let mut stream =
        TcpStream::connect_timeout(&address, deadline).with_context(|| format!("cannot reach {page}"))?;
    let left = end.saturating_duration_since(Instant::now());
    exchange(&mut stream, &Ask { method: "GET", path, ..Ask::default() }, left).with_context(|| page)
}

/// Asks over a new connection, which is of no use afterwards, and gives the body of the answer.
///
/// # Errors
///
/// [`Unanswered`] in the chain when it does not answer within `deadline`; when it does not answer at all, or with
/// another status than a success.
pub(crate) fn exchange(stream: &mut impl Connection, ask: &Ask<'_>, deadline: Duration) -> Result<String> {
    let Ask { method, path, content, body } = ask;
    let end = Instant::now() + deadline;
    let unanswered = || Unanswered { path: (*path).to_owned(), deadline };
    let limit = |stream: &dyn Connection| {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(unanswered().into());
        }
        stream.limit(left).context("cannot set a deadline")
    };
    let told = |error: io::Error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => anyhow::Error::new(unanswered()),
        _ => anyhow::Error::new(error).context(format!("no answer for {path}")),
    };
    // HTTP/1.0: the answer comes in one piece and ends with the connection.
    let mut head = format!("{method} {path} HTTP/1.0\r\nHost: localhost\r\nAccept: */*\r\n");
    if *method != "GET" {
        head.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    if !content.is_empty() {
        head.push_str(&format!("Content-Type: {content}\r\n"));
    }
    limit(stream)?;
    stream.write_all(format!("{head}\r\n").as_bytes()).and_then(|()| stream.write_all(body)).map_err(told)?;
    let mut answer = Vec::new();
    let mut buffer = [0; 16 << 10];
    loop {
        limit(stream)?;
        match stream.read(&mut buffer).map_err(told)? {
            0 => break,
            count => answer.extend_from_slice(&buffer[..count]),
        }
    }
    self::body(&String::from_utf8_lossy(&answer)).with_context(|| format!("bad answer for {path}"))
}

fn body(answer: &str) -> Result<String> {
    let (head, body) = answer.split_once("\r\n\r\n").context("no end of the header")?;
    let status = head.lines().next().unwrap_or_default();
    if status.split(' ').nth(1).is_none_or(|code| code.len() != 3 || !code.starts_with('2')) {
        bail!("{status}: {}", body.trim());
    }
    Ok(body.to_owned())
}

/// A TCP port of the loopback interface that nobody listens on, below the range the kernel gives to outgoing
/// connections (32768 and up), and that no lab of this machine has been given: a daemon takes seconds until it listens there.
///
/// # Errors
///
/// When none is free.
pub fn free_port() -> Result<u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    const FIRST: u16 = 20_000;
    const COUNT: u16 = 10_000;
    // Processes that run at once begin at different places.
    let offset = u16::try_from(std::process::id() % u32::from(COUNT)).expect("a remainder of 10000 fits");
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = FIRST + (offset.wrapping_mul(7).wrapping_add(step)) % COUNT;
        if let Ok(ours) = reserve(port)
            && TcpListener::bind(("127.0.0.1", port)).is_ok()
        {
            RESERVED.lock().expect("no holder of this lock panics").push(ours);
            return Ok(port);
        }
    }
    bail!("no free TCP port between {FIRST} and {}", FIRST + COUNT)
}

/// What keeps the ports of this process from others, for as long as it lives.
static RESERVED: Mutex<Vec<UnixDatagram>> = Mutex::new(Vec::new());

/// A name that one process of the machine can have at a time, and that goes with it (unix(7), abstract).
fn reserve(port: u16) -> io::Result<UnixDatagram> {
    let name = unix::SocketAddr::from_abstract_name(format!("plegtrace-lab-port-{port}"))?;
    UnixDatagram::bind_addr(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_success_has_a_body() {
        assert_eq!(body("HTTP/1.0 200 OK\r\nA: b\r\n\r\nx\r\n\r\ny").unwrap(), "x\r\n\r\ny");
        assert!(body("HTTP/1.0 404 Not Found\r\n\r\nno").unwrap_err().to_string().contains("404"));
        assert_eq!(body("HTTP/1.0 204 No Content\r\n\r\n").unwrap(), "");
        assert!(body("HTTP/1.0 2 OK\r\n\r\n").is_err());
        assert!(body("garbage").is_err());
    }

    #[test]
    fn ports_differ() {
        assert_ne!(free_port().unwrap(), free_port().unwrap());
    }

    /// What another process was given is left alone, also while nobody listens there yet. Each test that asks for ports takes a few.
    #[test]
    fn ports_of_others_are_left_alone() {
        let first = free_port().unwrap();
        let others: Vec<(u16, UnixDatagram)> =
            (first..first + 200).filter_map(|port| Some((port, reserve(port).ok()?))).collect();
        assert!(others.len() > 100, "{} of 200", others.len());
        let ours: Vec<u16> = (0..20).map(|_| free_port().unwrap()).collect();
        assert!(ours.iter().all(|port| others.iter().all(|(other, _)| other != port)), "{ours:?}");
    }

    #[test]
    fn a_silent_server_runs_into_the_deadline() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let error = get(silent.local_addr().unwrap(), "/", Duration::from_millis(50)).unwrap_err();
        assert!(Unanswered::is_in(&error), "{error:#}");
    }
}
