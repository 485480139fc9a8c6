//! The unix sockets of the node, and who holds their ends.

use std::{collections::HashMap, io};

use super::{files::Holders, kept::Kept, read, tell::Tell};
use crate::{
    census::protocol::Step,
    input::SocketFact,
    target::{UnixSocket, unix_diag, unix_sockets},
};

/// Text of /proc/net/unix that is read.
const MAX_TABLE: u64 = 16 << 20;

/// All sockets by inode.
#[derive(Debug, Default)]
pub(super) struct Sockets {
    all: HashMap<u64, UnixSocket>,
    /// Listeners by the inode of the end that waits to be accepted, once they were asked for.
    pending: HashMap<u64, u64>,
}

impl Sockets {
    /// Asks the kernel: by netlink, else by /proc/net/unix, which knows neither queues nor peers.
    pub(super) fn read(tell: &mut Tell, kept: &mut Kept) -> io::Result<Self> {
        if !tell.ask(0, "", Step::Sockets)? {
            return Ok(Self::default());
        }
        let own = tell.is_here();
        let dumped =
            if own { kept.link().and_then(unix_diag::dump) } else { Err(io::ErrorKind::Unsupported.into()) };
        let list = match dumped {
            Ok(list) => list,
            Err(error) => {
                if own {
                    tell.refused(0, "", "queues of unix sockets", &error)?;
                }
                let table = read::bytes(&tell.path("/proc/net/unix"), MAX_TABLE).unwrap_or_default();
                unix_sockets(&String::from_utf8_lossy(&table))
            }
        };
        let all = list.into_iter().map(|socket| (socket.inode, socket)).collect();
        Ok(Self { all, pending: HashMap::new() })
    }

    /// Asks which connections wait to be accepted. Where the kernel does not say, none is known.
    pub(super) fn read_pending(&mut self, kept: &mut Kept) {
        let listeners = kept.link().and_then(unix_diag::pending).unwrap_or_default();
        for listener in listeners {
            self.pending.extend(listener.pending.iter().map(|end| (*end, listener.inode)));
            self.all.entry(listener.inode).or_insert(listener);
        }
    }

    /// The same of a socket by which its holder has called another, and how many bytes that has not read; `None` for those at which it was
    /// called.
    pub(super) fn called(&self, inode: u64, holders: &Holders) -> Option<(SocketFact, u32)> {
        let socket = self.all.get(&inode).filter(|socket| socket.name.is_none() && !socket.listening)?;
        let unread = socket.peer.and_then(|peer| self.all.get(&peer)?.unread);
        Some((self.fact(inode, holders)?, unread.unwrap_or(0)))
    }

    /// What is known of a socket; `None` when it is no unix socket that streams.
    pub(super) fn fact(&self, inode: u64, holders: &Holders) -> Option<SocketFact> {
        let socket = self.all.get(&inode)?;
        let listener = self.pending.get(&inode).filter(|_| socket.peer.is_none());
        let other = socket.peer.as_ref().or(listener);
        let path = || other.and_then(|other| self.all.get(other)?.name.clone());
        Some(SocketFact {
            inode,
            path: socket.name.clone().or_else(path),
            listening: socket.listening,
            unread: socket.unread.unwrap_or(0),
            backlog: socket.backlog.unwrap_or(0),
            peer_inode: socket.peer,
            peers: other.map(|other| holders.of_socket(*other)).unwrap_or_default(),
            pending: listener.is_some(),
            ..SocketFact::default()
        })
    }
}
