//! A registry of images that begins to send a layer and then sends nothing any more: the connection stays, as behind a proxy or a
//! firewall that has lost it. Just enough of the distribution protocol for the runtimes to come that far.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use anyhow::{Context as _, Result};
use serde_json::json;

use crate::image::sha256;

/// The image's name in the registry.
const NAME: &str = "plegtrace-lab-silent";
/// What the manifest says that the layer has.
const LAYER_BYTES: usize = 32 << 20;
/// What is sent of it.
const SENT_BYTES: usize = 64 << 10;
/// Requests longer than this are not of a runtime.
const LONGEST_REQUEST: u64 = 64 << 10;
const MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";

/// What all connections share.
#[derive(Default)]
struct Shared {
    /// Both ends of what is open: they are shut down at the end.
    streams: Vec<TcpStream>,
    /// Since when nothing is sent any more: a layer was asked for.
    is_silent: bool,
    is_over: bool,
}

/// A registry on the loopback interface; it ends when it is dropped, and each pull from it fails then.
pub struct SilentRegistry {
    address: SocketAddr,
    shared: Arc<Mutex<Shared>>,
    listening: Option<JoinHandle<()>>,
}

impl SilentRegistry {
    /// Listens.
    ///
    /// # Errors
    ///
    /// When there is no port.
    pub fn start() -> Result<SilentRegistry> {
        let listener = TcpListener::bind("127.0.0.1:0").context("the registry cannot listen")?;
        let address = listener.local_addr().context("the registry has no address")?;
        let shared = Arc::new(Mutex::new(Shared::default()));
        let theirs = Arc::clone(&shared);
        let listening = thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if lock(&theirs).is_over {
                    break;
                }
                let shared = Arc::clone(&theirs);
                // It ends with its connection.
                thread::spawn(move || serve(&stream, &shared));
            }
        });
        Ok(SilentRegistry { address, shared, listening: Some(listening) })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The image that cannot be pulled; containerd asks a registry on the loopback interface without TLS.
    #[must_use]
    pub fn image(&self) -> String {
        format!("{}/{NAME}:1", self.address)
    }

    /// Whether somebody waits for the rest of the layer.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        lock(&self.shared).is_silent
    }
}

impl Drop for SilentRegistry {
    fn drop(&mut self) {
        let streams = {
            let mut shared = lock(&self.shared);
            shared.is_over = true;
            std::mem::take(&mut shared.streams)
        };
        for stream in streams {
            // The other end may have gone.
            let _ = stream.shutdown(Shutdown::Both);
        }
        // It looks at the end after a connection.
        drop(TcpStream::connect(self.address));
        let _ = self.listening.take().map(JoinHandle::join);
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers one connection until it ends, or until a layer is asked for.
fn serve(stream: &TcpStream, shared: &Mutex<Shared>) {
    let Ok(ours) = stream.try_clone() else { return };
    lock(shared).streams.push(ours);
    let mut reader = BufReader::new(stream);
    while let Some((method, path)) = request(&mut reader) {
        let is_layer = method == "GET" && path.ends_with(&layer());
        if answer(stream, &method, &path).is_err() {
            return;
        }
        if is_layer {
            lock(shared).is_silent = true;
            // Until the runtime gives up, or the registry ends.
            let _ = reader.read(&mut [0]);
            return;
        }
    }
}

/// The method and the path of a request; `None` at the end of a connection.
fn request(reader: &mut BufReader<&TcpStream>) -> Option<(String, String)> {
    let mut head = reader.take(LONGEST_REQUEST);
    let mut line = String::new();
    head.read_line(&mut line).ok().filter(|length| *length > 0)?;
    let mut words = line.split(' ').map(str::to_owned);
    let request = (words.next()?, words.next()?);
    loop {
        let mut line = String::new();
        head.read_line(&mut line).ok().filter(|length| *length > 0)?;
        if line == "\r\n" {
            return Some(request);
        }
    }
}

fn config() -> String {
    let diff_ids = [layer()];
    json!({ "architecture": "amd64", "os": "linux", "rootfs": { "type": "layers", "diff_ids": diff_ids } })
        .to_string()
}

/// The digest of a layer that nobody has.
fn layer() -> String {
    format!("sha256:{}", sha256(NAME.as_bytes()))
}

fn manifest() -> String {
    let config = config();
    json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": {
            "mediaType": "application/vnd.docker.container.image.v1+json",
            "size": config.len(),
            "digest": format!("sha256:{}", sha256(config.as_bytes())),
        },
        "layers": [{
            "mediaType": "application/vnd.docker.image.rootfs.diff.tar",
            "size": LAYER_BYTES,
            "digest": layer(),
        }],
    })
    .to_string()
}

/// The manifest whatever its reference, the configuration, or the first bytes of the layer.
fn answer(mut stream: &TcpStream, method: &str, path: &str) -> std::io::Result<()> {
    let (content, length, body) = if path.contains("/manifests/") {
        let manifest = manifest().into_bytes();
        (MANIFEST, manifest.len(), manifest)
    } else if path.ends_with(&layer()) {
        ("application/octet-stream", LAYER_BYTES, vec![0; SENT_BYTES])
    } else {
        let config = config().into_bytes();
        ("application/octet-stream", config.len(), config)
    };
    let digest = if path.contains("/manifests/") { sha256(&body) } else { String::new() };
    let digest =
        if digest.is_empty() { digest } else { format!("Docker-Content-Digest: sha256:{digest}\r\n") };
    let head =
        format!("HTTP/1.1 200 OK\r\nContent-Type: {content}\r\nContent-Length: {length}\r\n{digest}\r\n");
    stream.write_all(head.as_bytes())?;
    if method == "HEAD" { Ok(()) } else { stream.write_all(&body) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn ask(registry: &SilentRegistry, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(registry.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        write!(stream, "{request} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        stream
    }

    fn head(stream: &mut BufReader<TcpStream>) -> String {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(stream.read_line(&mut head).unwrap(), 0, "{head}");
        }
        head
    }

    #[test]
    fn a_manifest_is_known_by_its_digest() {
        let registry = SilentRegistry::start().unwrap();
        let mut stream = BufReader::new(ask(&registry, "GET /v2/x/manifests/1"));
        let head = head(&mut stream);
        let mut body = vec![0; manifest().len()];
        stream.read_exact(&mut body).unwrap();
        assert!(head.contains(&format!("Docker-Content-Digest: sha256:{}", sha256(&body))), "{head}");
        assert!(!registry.is_silent());
    }

    #[test]
    fn a_layer_begins_and_does_not_end_before_the_registry_does() {
        let registry = SilentRegistry::start().unwrap();
        let mut stream = BufReader::new(ask(&registry, &format!("GET /v2/x/blobs/{}", layer())));
        assert!(head(&mut stream).contains(&format!("Content-Length: {LAYER_BYTES}")));
        let mut body = vec![0; SENT_BYTES];
        stream.read_exact(&mut body).unwrap();
        while !registry.is_silent() {
            thread::yield_now();
        }
        drop(registry);
        assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
    }
}
