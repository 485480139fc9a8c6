//! All connections, within bounds.

use std::collections::BTreeMap;

use super::{Connection, Request, Side};

/// Most connections that are followed.
pub const MAX_CONNECTIONS: usize = 512;
/// Most requests that all of them hold, open ones and those that nobody took; above it none is begun.
pub const MAX_HELD: usize = 65_536;

/// Connections by a key of the caller's.
#[derive(Debug, Default)]
pub struct Connections {
    all: BTreeMap<u64, Connection>,
    held: usize,
    /// Pushes of connections that did not fit.
    pub refused_connections: u64,
    /// Pushes that were not read because too many requests were held; their connections are out of step.
    pub refused_pushes: u64,
}

impl Connections {
    /// Begins to follow a connection, from its first byte or late; false when there are too many.
    pub fn begin(&mut self, key: u64, from_start: bool) -> bool {
        if self.all.len() >= MAX_CONNECTIONS && !self.all.contains_key(&key) {
            self.refused_connections += 1;
            return false;
        }
        let connection = if from_start { Connection::new() } else { Connection::late() };
        let old = self.all.insert(key, connection);
        self.held -= old.map_or(0, |old| old.held());
        true
    }

    /// Takes bytes of a connection; one that was not begun is joined late.
    pub fn push(&mut self, key: u64, side: Side, at_ns: u64, bytes: &[u8]) {
        if !self.all.contains_key(&key) && !self.begin(key, false) {
            return;
        }
        let Some(connection) = self.all.get_mut(&key) else { return };
        if self.held >= MAX_HELD && side == Side::Client {
            self.refused_pushes += 1;
            connection.miss(side);
            return;
        }
        let before = connection.held();
        connection.push(side, at_ns, bytes);
        self.held = self.held + connection.held() - before;
    }

    /// A connection.
    #[must_use]
    pub fn get(&self, key: u64) -> Option<&Connection> {
        self.all.get(&key)
    }

    /// Says what the request of a stream was.
    pub fn teach(&mut self, key: u64, stream: u32, method: &str) -> Option<super::Taught> {
        Some(self.all.get_mut(&key)?.teach(stream, method))
    }

    /// The requests of a connection that have ended since the last time.
    pub fn take_finished(&mut self, key: u64) -> Vec<Request> {
        let Some(connection) = self.all.get_mut(&key) else { return Vec::new() };
        let taken = connection.take_finished();
        self.held -= taken.len();
        taken
    }

    /// Forgets a connection that was closed; gives its last state.
    pub fn close(&mut self, key: u64) -> Option<Connection> {
        let closed = self.all.remove(&key)?;
        self.held -= closed.held();
        Some(closed)
    }
}
