//! Stands between a runtime's socket and its clients, and writes down each chunk as it was read.

use std::{
    collections::BTreeMap,
    fs,
    io::{Read as _, Write as _},
    net::Shutdown,
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use anyhow::{Context as _, Result};
use plegtrace::wire::Side;

use super::Chunk;

/// Most bytes of one read.
const MOST: usize = 64 << 10;

type Log = Arc<Mutex<Vec<Chunk>>>;

/// A relay in the place of a socket; the socket is put back when it is dropped.
#[derive(Debug)]
pub struct Relay {
    socket: PathBuf,
    behind: PathBuf,
    log: Log,
    is_ending: Arc<AtomicBool>,
    acceptor: Option<JoinHandle<()>>,
}

impl Relay {
    /// Moves a listening socket aside and listens in its place. Connections that exist stay as they are.
    ///
    /// # Errors
    ///
    /// The socket cannot be moved or replaced.
    pub fn insert(socket: &Path) -> Result<Relay> {
        let behind = socket.with_extension("real");
        fs::rename(socket, &behind).context("cannot move the socket aside")?;
        let listener = UnixListener::bind(socket).context("cannot listen in the socket's place")?;
        let (log, is_ending) = (Log::default(), Arc::new(AtomicBool::new(false)));
        let (logs, ending, target) = (Arc::clone(&log), Arc::clone(&is_ending), behind.clone());
        let acceptor = thread::spawn(move || accept(&listener, &target, &logs, &ending));
        Ok(Relay { socket: socket.to_owned(), behind, log, is_ending, acceptor: Some(acceptor) })
    }

    /// Whether on each connection the server was the last who said something.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let last: BTreeMap<usize, Side> = log.iter().map(|chunk| (chunk.connection, chunk.side)).collect();
        last.values().all(|side| *side == Side::Server)
    }

    /// What went through it, once all its clients have closed their connections.
    #[must_use]
    pub fn finish(mut self) -> Vec<Chunk> {
        self.end();
        std::mem::take(&mut *self.log.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn end(&mut self) {
        let Some(acceptor) = self.acceptor.take() else { return };
        self.is_ending.store(true, Ordering::SeqCst);
        // Wakes it up; without a listener it has ended already.
        drop(UnixStream::connect(&self.socket));
        let _ = acceptor.join();
        let _ = fs::rename(&self.behind, &self.socket);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.end();
    }
}

fn accept(listener: &UnixListener, target: &Path, log: &Log, is_ending: &AtomicBool) {
    let (mut servers, mut asking, mut answering) = (Vec::new(), Vec::new(), Vec::new());
    for (number, client) in listener.incoming().enumerate() {
        if is_ending.load(Ordering::SeqCst) {
            break;
        }
        let (Ok(client), Ok(server)) = (client, UnixStream::connect(target)) else { continue };
        let (Ok(from_client), Ok(from_server)) = (client.try_clone(), server.try_clone()) else { continue };
        servers.extend(server.try_clone());
        for (side, from, to, copies) in [
            (Side::Client, from_client, server, &mut asking),
            (Side::Server, from_server, client, &mut answering),
        ] {
            let log = Arc::clone(log);
            copies.push(thread::spawn(move || copy(number, side, from, to, &log)));
        }
    }
    asking.into_iter().for_each(|copy| drop(copy.join()));
    // A server need not hang up on a client that is gone, as long as it has something to answer.
    servers.iter().for_each(|server| drop(server.shutdown(Shutdown::Both)));
    answering.into_iter().for_each(|copy| drop(copy.join()));
}

/// Passes one direction on until it ends.
fn copy(connection: usize, side: Side, mut from: UnixStream, mut to: UnixStream, log: &Log) {
    let mut buffer = vec![0; MOST];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        let bytes = buffer[..length].to_vec();
        log.lock().unwrap_or_else(PoisonError::into_inner).push(Chunk { connection, side, bytes });
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    // The other end may be gone already.
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}
