//! The unix sockets of the node, and who holds their ends.

use std::{collections::HashMap, io};

use super::{files::Holders, kept::Kept, read, tell::Tell, unix_diag::Link};
use crate::{
    census::protocol::Step,
    input::SocketFact,
    target::{UnixSocket, unix_sockets},
};

/// Text of /proc/net/unix that is read.
const MAX_TABLE: u64 = 16 << 20;

/// All sockets by inode.
#[derive(Debug, Default)]
pub(super) struct Sockets {
    all: HashMap<u64, UnixSocket>,
}

impl Sockets {
    /// Asks the kernel: by netlink, else by /proc/net/unix, which knows neither queues nor peers.
    pub(super) fn read(tell: &mut Tell, kept: &mut Kept) -> io::Result<Self> {
        if !tell.ask(0, "", Step::Sockets)? {
            return Ok(Self::default());
        }
        let own = tell.is_here();
        let dumped =
            if own { kept.link().and_then(Link::dump) } else { Err(io::ErrorKind::Unsupported.into()) };
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
        Ok(Self { all: list.into_iter().map(|socket| (socket.inode, socket)).collect() })
    }

    /// What is known of a socket; `None` when it is no unix socket that streams.
    pub(super) fn fact(&self, inode: u64, holders: &Holders) -> Option<SocketFact> {
        let socket = self.all.get(&inode)?;
        let peer = socket.peer.and_then(|peer| self.all.get(&peer));
        Some(SocketFact {
            inode,
            path: socket.name.clone().or_else(|| peer?.name.clone()),
            listening: socket.listening,
            unread: socket.unread.unwrap_or(0),
            backlog: socket.backlog.unwrap_or(0),
            peer_inode: socket.peer,
            peers: socket.peer.map(|peer| holders.of_socket(peer)).unwrap_or_default(),
        })
    }
}
