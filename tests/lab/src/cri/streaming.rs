//! Sessions that last as long as somebody wants them to, as `crictl exec -i`, `attach` and `port-forward` hold them: the
//! runtime answers with a URL, and the server behind it turns the connection into a WebSocket.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::client::Client;
use super::messages as m;

/// One of them; it ends when dropped.
#[derive(Debug)]
pub struct Session {
    _connection: TcpStream,
}

impl Session {
    /// What the server sends afterwards is not read: a command that prints little does not notice.
    fn open(url: &str, query: &str, protocol: &str, deadline: Duration) -> Result<Session> {
        let address = url.strip_prefix("http://").context("the URL of a session is not http")?;
        let (address, path) = address.split_once('/').context("the URL of a session has no path")?;
        let address: SocketAddr = address.parse().context("the URL of a session has no address")?;
        let mut connection =
            TcpStream::connect_timeout(&address, deadline).context("cannot reach the server")?;
        connection.set_read_timeout(Some(deadline)).context("cannot set a deadline")?;
        let request = format!(
            "GET /{path}{query} HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\
             Sec-WebSocket-Protocol: {protocol}\r\n\r\n"
        );
        connection.write_all(request.as_bytes()).context("cannot ask for a session")?;
        let mut status = String::new();
        BufReader::new(&connection).read_line(&mut status).context("no answer from the server")?;
        ensure!(status.starts_with("HTTP/1.1 101 "), "no session: {}", status.trim());
        Ok(Session { _connection: connection })
    }
}

impl Client {
    /// `Exec`: runs `command` in the container, with its output to the session.
    ///
    /// # Errors
    ///
    /// As for every call, and when the server does not open a session in time.
    pub fn exec(&self, container: &str, command: &[&str], deadline: Duration) -> Result<Session> {
        let cmd = command.iter().map(|&word| word.to_owned()).collect();
        let request = m::ExecRequest { container_id: container.to_owned(), cmd, stdout: true, stderr: true };
        let url: m::Id = self.runtime("Exec", request, deadline)?;
        Session::open(&url.id, "", "v4.channel.k8s.io", deadline)
    }

    /// `Attach`: follows the output of the container's first process.
    ///
    /// # Errors
    ///
    /// As for every call, and when the server does not open a session in time.
    pub fn attach(&self, container: &str, deadline: Duration) -> Result<Session> {
        let request = m::AttachRequest { container_id: container.to_owned(), stdout: true, stderr: true };
        let url: m::Id = self.runtime("Attach", request, deadline)?;
        Session::open(&url.id, "", "v4.channel.k8s.io", deadline)
    }

    /// `PortForward`: a way to this port of a sandbox.
    ///
    /// # Errors
    ///
    /// As for every call, and when the server does not open a session in time.
    pub fn port_forward(&self, sandbox: &str, port: u16, deadline: Duration) -> Result<Session> {
        let request =
            m::PortForwardRequest { pod_sandbox_id: sandbox.to_owned(), port: vec![i32::from(port)] };
        let url: m::Id = self.runtime("PortForward", request, deadline)?;
        Session::open(&url.id, &format!("?port={port}"), "v4.channel.k8s.io", deadline)
    }
}
