//! Turns an address and a path into the body of a page, with a deadline: just enough HTTP for metrics and health
//! pages on the loopback interface.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

/// Gets `path` from `address` within `deadline`.
///
/// # Errors
///
/// When it does not connect or answer in time, or answers with another status than 200.
pub fn get(address: SocketAddr, path: &str, deadline: Duration) -> Result<String> {
    let end = Instant::now() + deadline;
    let page = format!("http://{address}{path}");
    let mut stream =
        TcpStream::connect_timeout(&address, deadline).with_context(|| format!("cannot reach {page}"))?;
    // HTTP/1.0: the answer comes in one piece and ends with the connection.
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\nAccept: text/plain\r\n\r\n");
    stream.set_write_timeout(Some(deadline)).context("cannot set a deadline")?;
    stream.write_all(request.as_bytes()).with_context(|| format!("cannot ask for {page}"))?;
    let mut answer = Vec::new();
    let mut buffer = [0; 16 << 10];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        ensure!(!left.is_zero(), "{page} unanswered after {deadline:?}");
        stream.set_read_timeout(Some(left)).context("cannot set a deadline")?;
        match stream.read(&mut buffer).with_context(|| format!("{page} unanswered after {deadline:?}"))? {
            0 => break,
            count => answer.extend_from_slice(&buffer[..count]),
        }
    }
    body(&String::from_utf8_lossy(&answer)).with_context(|| format!("bad answer from {page}"))
}

fn body(answer: &str) -> Result<String> {
    let (head, body) = answer.split_once("\r\n\r\n").context("no end of the header")?;
    let status = head.lines().next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        bail!("{status}: {}", body.trim());
    }
    Ok(body.to_owned())
}

/// A TCP port of the loopback interface that nobody listens on, below the range the kernel gives to outgoing
/// connections (32768 and up), and not given before by this process.
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
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no free TCP port between {FIRST} and {}", FIRST + COUNT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_status_200_has_a_body() {
        assert_eq!(body("HTTP/1.0 200 OK\r\nA: b\r\n\r\nx\r\n\r\ny").unwrap(), "x\r\n\r\ny");
        assert!(body("HTTP/1.0 404 Not Found\r\n\r\nno").unwrap_err().to_string().contains("404"));
        assert!(body("garbage").is_err());
    }

    #[test]
    fn ports_differ() {
        assert_ne!(free_port().unwrap(), free_port().unwrap());
    }

    #[test]
    fn a_silent_server_runs_into_the_deadline() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let start = Instant::now();
        assert!(get(silent.local_addr().unwrap(), "/", Duration::from_millis(50)).is_err());
        assert!(start.elapsed() < Duration::from_secs(5));
    }
}
