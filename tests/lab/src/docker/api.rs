//! Turns a path of dockerd's HTTP API into an answer, with a deadline, and a request that is to hang into one in flight.

use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use serde_json::Value;

use crate::http::{self, Ask};

/// dockerd's API at its socket; each request has a connection of its own.
#[derive(Clone, Debug)]
pub struct Api {
    socket: PathBuf,
}

impl Api {
    pub(super) fn new(socket: PathBuf) -> Api {
        Api { socket }
    }

    /// The socket.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Gets `path` (`/containers/json`) within `deadline`.
    ///
    /// # Errors
    ///
    /// When it does not answer in time ([`http::Unanswered`] in the chain), or not with a success.
    pub fn get(&self, path: &str, deadline: Duration) -> Result<Value> {
        let body = self.ask(&Ask { method: "GET", path, ..Ask::default() }, deadline)?;
        serde_json::from_str(&body).with_context(|| format!("dockerd's answer for {path} is no JSON"))
    }

    /// Posts to `path` what `body` is, of this content type, within `deadline`; gives what it answers.
    ///
    /// # Errors
    ///
    /// As for [`Api::get`].
    pub fn post(&self, path: &str, content: &str, body: &[u8], deadline: Duration) -> Result<String> {
        self.ask(&Ask { method: "POST", path, content, body }, deadline)
    }

    /// Whether it answers at all.
    pub(super) fn ping(&self, deadline: Duration) -> Result<()> {
        self.ask(&Ask { method: "GET", path: "/_ping", ..Ask::default() }, deadline).map(drop)
    }

    /// Posts an empty request to `path` and does not wait for the answer.
    ///
    /// # Errors
    ///
    /// When it cannot be connected to, or the thread that waits cannot be started.
    pub fn start(&self, path: &str, deadline: Duration) -> Result<Request> {
        let mut stream = self.connect()?;
        let connection = stream.try_clone().context("cannot share a connection")?;
        let (sender, answer) = mpsc::channel();
        let path = path.to_owned();
        let thread = std::thread::Builder::new().name("lab-docker".to_owned());
        let start = thread.spawn(move || {
            let ask = Ask { method: "POST", path: &path, ..Ask::default() };
            // Nobody listens any more when the request was dropped.
            let _ = sender.send(http::exchange(&mut stream, &ask, deadline).map(drop));
        });
        start.context("cannot start a thread for a request")?;
        Ok(Request { connection, answer, early: None })
    }

    fn ask(&self, ask: &Ask<'_>, deadline: Duration) -> Result<String> {
        http::exchange(&mut self.connect()?, ask, deadline)
    }

    fn connect(&self) -> Result<UnixStream> {
        UnixStream::connect(&self.socket)
            .with_context(|| format!("cannot reach dockerd at {}", self.socket.display()))
    }
}

/// A request in flight in a thread of its own; given up when dropped.
#[derive(Debug)]
pub struct Request {
    connection: UnixStream,
    answer: Receiver<Result<()>>,
    early: Option<Result<()>>,
}

impl Request {
    /// Whether there is no answer yet.
    pub fn is_pending(&mut self) -> bool {
        if self.early.is_none() {
            self.early = match self.answer.try_recv() {
                Ok(answer) => Some(answer),
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => Some(Err(anyhow!("the thread of the request is gone"))),
            };
        }
        self.early.is_none()
    }

    /// Waits for the answer, for at most `limit`.
    ///
    /// # Errors
    ///
    /// When there is none, or it is no success.
    pub fn wait(mut self, limit: Duration) -> Result<()> {
        if let Some(answer) = self.early.take() {
            return answer;
        }
        match self.answer.recv_timeout(limit) {
            Ok(answer) => answer,
            Err(_) => bail!("dockerd did not answer within {limit:?}"),
        }
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        // Wakes the thread that reads; a connection that is gone is fine.
        let _ = self.connection.shutdown(Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_request_in_flight_ends_with_its_answer_or_when_it_is_given_up() {
        use std::io::{Read as _, Write as _};
        let dir = tempfile::tempdir().unwrap();
        let api = Api::new(dir.path().join("d.sock"));
        let listener = UnixListener::bind(api.socket()).unwrap();
        let limit = Duration::from_secs(10);
        let mut request = api.start("/x", limit).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let mut asked = [0; 12];
        server.read_exact(&mut asked).unwrap();
        assert_eq!(&asked, b"POST /x HTTP");
        assert!(request.is_pending());
        server.write_all(b"HTTP/1.0 204 No Content\r\n\r\n").unwrap();
        server.shutdown(Shutdown::Write).unwrap();
        request.wait(limit).unwrap();

        let given_up = api.start("/y", limit).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        drop(given_up);
        server.set_read_timeout(Some(limit)).unwrap();
        server.read_to_end(&mut Vec::new()).unwrap();
    }
}
